"""Claims: all published or measured numbers that simulated numbers are compared with, as data.

A claim is one `[[claim]]` of a TOML file or one row of a CSV file in this folder. A new claim needs no code. It names
an experiment (`validation/experiments`) and one answer of that experiment.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from traces.errors import UserError
from traces.toml_file import read_toml
from validation.csv_file import read_csv

FOLDER = Path(__file__).parent
OVER_CLAIMS = "claims"
"""Name of the experiment for a mean of claims. The answer is the name of a group; the simulated number is the mean
absolute error of its claims, in percent."""


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A number with its source.

    Attributes:
        id: unique name.
        source: paper section or figure, or data set.
        quantity: name of the quantity, in words.
        published: the number, in `unit`.
        read: how it was read from the source.
        kind: calibration if the number was used to choose a parameter, else prediction.
        experiment: name of a TOML file of `validation/experiments`, or OVER_CLAIMS.
        answer: name of an answer of the experiment.
        tolerance: in `unit`; in percent of `published` if mode is relative; None = shown without a verdict.
        mode: mode of the tolerance.
        relation: required relation of the simulated to the published number.
        group: name of a group; another claim can give the mean error of the group.
        note: why the claim is outside its tolerance, or another remark.
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

    def difference(self, simulated: float) -> float:
        """Simulated less published; 0 on the side that the relation allows."""
        found = simulated - self.published
        if self.relation == "at_least":
            return min(found, 0.0)
        return max(found, 0.0) if self.relation == "at_most" else found


def measured_time(
    case: str, quantity: str, time_us: float, source: str, calibrates: bool, experiment: str, **judged: Any
) -> Claim:
    """The claim that a row of a file of references is: a measured time.

    Args:
        case: `<what>/<case>`; the experiment answers `<case>/us`. judged: tolerance, mode, group and note.
    """
    return Claim(
        id=case.replace("/", "-").replace("_", "-"),
        source=source,
        quantity=quantity,
        published=time_us,
        unit="us",
        read="column time_us of the file in references",
        kind="calibration" if calibrates else "prediction",
        experiment=experiment,
        answer=f"{case.partition('/')[2]}/us",
        **judged,
    )


def load_claims(folder: Path = FOLDER) -> list[Claim]:
    """All claims of a folder: first the TOML files, then the CSV files, each in order of their names.

    Raises:
        UserError: an invalid claim (names the file, the claim and the mistake), or two claims with one id.
    """
    claims: dict[str, Claim] = {}
    for path in sorted(folder.iterdir(), key=lambda path: (path.suffix != ".toml", path.name)):
        for number, given in enumerate(_rows(path), 1):
            claim = _claim(given, f"{path.name}: claim {given.get('id', number)!s}")
            if claim.id in claims:
                raise UserError(
                    f"{path.name}: claim {claim.id}: another claim has this id; allowed is one claim per id"
                )
            claims[claim.id] = claim
    return list(claims.values())


def _rows(path: Path) -> list[dict[str, Any]]:
    """Claims of one file as plain dicts. An empty cell of a CSV file is a missing field."""
    if path.suffix == ".toml":
        content = read_toml(path)
        defaults = content.get("defaults", {})
        return [defaults | claim for claim in content.get("claim", [])]
    if path.suffix == ".csv":
        return [{name: cell for name, cell in row.items() if cell} for row in read_csv(path)]
    return []


def _claim(given: dict[str, Any], where: str) -> Claim:
    try:
        return msgspec.convert(given, Claim, strict=False)
    except msgspec.ValidationError as problem:
        raise UserError(f"{where}: {problem}") from None
