"""Claims: every published or measured number that the simulator is held against, as data.

A claim is one `[[claim]]` of a TOML file or one row of a CSV file in this folder; a new one needs no code. It names
the experiment that answers it (`validation/experiments`) and which of that experiment's answers is meant.
"""

import csv
import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec

from traces.errors import UserError

FOLDER = Path(__file__).parent
OVER_CLAIMS = "claims"
"""Experiment of a claim about other claims: its answer names a group, and is their mean absolute error in percent."""


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A number with its source.

    Attributes:
        id: unique.
        source: paper section or figure, or data set.
        quantity: what it says, in words.
        published: the number, in `unit`.
        read: how it was read off the source.
        kind: calibration, if a parameter was chosen by it; else prediction.
        experiment: TOML file of `validation/experiments` that answers it, or OVER_CLAIMS.
        answer: which answer of the experiment.
        tolerance: in `unit`, or in percent of `published` where mode is relative; None = shown without a verdict.
        mode: of the tolerance.
        relation: of what is simulated to what is published.
        group: claims that are averaged by another claim.
        note: why it is missed, or what to know.
    """

    id: str
    source: str
    quantity: str
    published: float
    unit: str
    read: str
    kind: Literal["calibration", "prediction"]
    experiment: str
    answer: str
    tolerance: float | None = None
    mode: Literal["absolute", "relative"] = "absolute"
    relation: Literal["equal", "at_least", "at_most"] = "equal"
    group: str = ""
    note: str = ""


def load_claims(folder: Path = FOLDER) -> list[Claim]:
    """All claims of a folder, those written by hand (TOML) before the tables (CSV), file by file.

    Raises:
        UserError: names the file, the claim and what is wrong with it; or two claims of one id.
    """
    claims: dict[str, Claim] = {}
    for path in sorted(folder.iterdir(), key=lambda path: (path.suffix != ".toml", path.name)):
        for number, given in enumerate(_rows(path), 1):
            claim = _claim(given, f"{path.name}: claim {given.get('id', number)!s}")
            if claim.id in claims:
                raise UserError(f"{path.name}: claim {claim.id}: this id is taken; allowed is one claim per id")
            claims[claim.id] = claim
    return list(claims.values())


def _rows(path: Path) -> list[dict[str, Any]]:
    """Claims of one file as plain dicts. In CSV an empty cell is a field that is not given."""
    if path.suffix == ".toml":
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as problem:
            raise UserError(f"{path.name}: not a TOML file: {problem}") from None
        defaults = content.get("defaults", {})
        return [defaults | claim for claim in content.get("claim", [])]
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            return [{name: cell for name, cell in row.items() if cell} for row in csv.DictReader(file)]
    return []


def _claim(given: dict[str, Any], where: str) -> Claim:
    try:
        return msgspec.convert(given, Claim, strict=False)
    except msgspec.ValidationError as problem:
        raise UserError(f"{where}: {problem}") from None
