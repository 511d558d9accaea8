"""The report of a validation: first the claims, then each experiment with its figures, numbers and assumptions."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from traces.command.document import (
    Block,
    Bullets,
    Heading,
    Picture,
    Table,
    Text,
    from_markdown,
    to_html,
    to_markdown,
)
from traces.command.tables import Quantity, number_text
from traces.output import replacing
from validation.report.answers import Findings
from validation.report.compare import FAILED, INSIDE, NOT_RUN, OUTSIDE, SHOWN, Row
from validation.report.tables import answer_tables

NOTES = Path(__file__).parent / "evaluation_notes.md"
"""Meaning of the committed numbers, and reasons for claims that are missed. Each heading names experiments."""
TITLE = "t3sim against what was published and measured"
CLAIM_COLUMNS = ("claim", "published", "simulated", "error", "error %", "verdict", "kind")
CLAIM_NUMBERS = ("published", "simulated", "error", "error %")
ROUNDING = 1e-12
"""Relative error of floating-point arithmetic."""


def write_report(folder: Path, found: Findings, pictures: Mapping[str, list[Picture]]) -> None:
    """Write `report.md` and `report.html` into `folder`."""
    blocks = report_blocks(found, pictures)
    for name, text in (("report.md", to_markdown(blocks)), ("report.html", to_html(blocks, TITLE, folder))):
        with replacing(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def report_blocks(found: Findings, pictures: Mapping[str, list[Picture]]) -> list[Block]:
    blocks: list[Block] = [Heading(TITLE, 1), Text(summary(found.rows)), Text(WORDS)]
    for experiment, rows in by_experiment(found.rows).items():
        if any(row.simulated is not None or row.verdict == FAILED for row in rows):
            title = found.experiments[experiment].title if experiment in found.experiments else "Means over claims"
            blocks += [Heading(f"Claims: {title}", 2), claim_table(rows)]
            notes = dict.fromkeys(f"{row.claim.note}" for row in rows if row.claim.note)
            blocks += [Bullets(list(notes))] if notes else []
    said = conclusions(found.answers)
    blocks += [Heading("What the numbers say", 2), *said] if said else []
    claimed = [name for name in by_experiment(found.rows) if name in found.answers]
    for name in dict.fromkeys((*claimed, *found.answers)):
        blocks += _experiment_blocks(name, found, pictures.get(name, []))
    return blocks + _missing(found)


def conclusions(held: Collection[str]) -> list[Block]:
    """The notes whose experiments are all in `held`. Lists that follow each other are one list."""
    blocks: list[Block] = []
    kept = False
    for block in from_markdown(NOTES.read_text(encoding="utf-8")):
        if isinstance(block, Heading):
            kept = set(block.text.split(", ")) <= set(held)
        elif kept and isinstance(block, Bullets) and blocks and isinstance(blocks[-1], Bullets):
            blocks[-1] = Bullets([*blocks[-1].lines, *block.lines])
        elif kept:
            blocks.append(block)
    return blocks


WORDS = (
    "inside, outside: the claim's tolerance; shown: a number without a tolerance. calibration: this number determined "
    "a parameter; prediction: it did not."
)


def summary(rows: Sequence[Row]) -> str:
    """Number of claims with each verdict, and how many of those inside and outside are no predictions."""
    counted = {name: sum(row.verdict == name for row in rows) for name in (INSIDE, OUTSIDE, SHOWN, FAILED, NOT_RUN)}
    text = f"{len(rows)} claims: " + ", ".join(f"{count} {name}" for name, count in counted.items() if count) + "."
    kinds = [
        f"{kind}s: {sum(row.verdict == INSIDE for row in of_kind)} inside, "
        f"{sum(row.verdict == OUTSIDE for row in of_kind)} outside"
        for kind in ("prediction", "calibration")
        if (of_kind := [row for row in rows if row.claim.kind == kind and row.verdict in (INSIDE, OUTSIDE)])
    ]
    return f"{text} Of these, {'; '.join(kinds)}." if len(kinds) > 1 else text


def by_experiment(rows: Sequence[Row]) -> dict[str, list[Row]]:
    rows_of: dict[str, list[Row]] = {}
    for row in rows:
        rows_of.setdefault(row.claim.experiment, []).append(row)
    return rows_of


def claim_cells(row: Row) -> tuple[object, ...]:
    """Cells of a claim, in the order of CLAIM_COLUMNS."""
    claim, simulated, error, percent = row.claim, row.simulated, row.error, row.error_percent
    published = f"{SIGNS[claim.relation]}{number_text(claim.published)} {claim.unit}"
    return (
        claim.quantity,
        Quantity(claim.published, published, claim.unit),
        None if simulated is None else Quantity(simulated, f"{number_text(simulated)} {claim.unit}", claim.unit),
        None if error is None else Quantity(error, _difference(error, claim.published), claim.unit),
        None if percent is None else Quantity(percent, f"{percent:+.1f}"),
        row.verdict,
        claim.kind,
    )


def _difference(error: float, published: float) -> str:
    """A signed difference; 0 if it is only rounding."""
    return "0" if abs(error) <= ROUNDING * abs(published) else f"{error:+.4g}"


SIGNS = {"equal": "", "at_least": ">= ", "at_most": "<= "}


def claim_table(rows: Sequence[Row]) -> Table:
    return Table(CLAIM_COLUMNS, [[*map(number_text, claim_cells(row))] for row in rows], CLAIM_NUMBERS)


def _experiment_blocks(name: str, found: Findings, pictures: Sequence[Picture]) -> list[Block]:
    experiment, answers = found.experiments[name], found.answers[name]
    blocks: list[Block] = [Heading(experiment.title, 2), *pictures]
    blocks += answer_tables(experiment, answers)
    return blocks + ([Text("Assumed:"), Bullets(list(experiment.assumed))] if experiment.assumed else [])


def _missing(found: Findings) -> list[Block]:
    """Experiments without answers, and the reasons."""
    lines = [f"{name}: failed: {reason}" for name, reason in found.failed.items()]
    for name, experiment in found.experiments.items():
        if name in found.failed or found.answers.get(name):
            continue
        how = "--full" if experiment.full and not experiment.named else f"--only {name}"
        lines.append(f"{name}: {experiment.title}: not run (t3sim validate {how})")
    return [Heading("Not in this report", 2), Bullets(lines)] if lines else []
