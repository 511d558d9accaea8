"""Compare claims with answers: published and simulated value, error and verdict. Finds claims that got worse."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from traces.errors import UserError
from traces.output import replacing
from validation.claims.claim import FOLDER, OVER_CLAIMS, Claim

BASELINE = FOLDER / "baseline.json"
"""Ids of the claims that were inside their tolerance when the committed report was made."""
INSIDE, OUTSIDE, SHOWN, NOT_RUN, FAILED = "inside", "outside", "shown", "not run", "failed"
"""Verdicts. shown: a claim without tolerance. failed: the experiment ended with an error."""
PERCENT = 100.0

Answers = Mapping[str, Mapping[str, float]]
"""Experiment -> answer -> number."""


class Row(NamedTuple):
    """A claim with its simulated value and its verdict."""

    claim: Claim
    simulated: float | None
    verdict: str

    @property
    def error(self) -> float | None:
        """Simulated minus published, in the unit of the claim."""
        return None if self.simulated is None else self.simulated - self.claim.published

    @property
    def error_percent(self) -> float | None:
        """The error in percent of the published value."""
        return (
            None if self.error is None or not self.claim.published else PERCENT * self.error / abs(self.claim.published)
        )

    def as_dict(self) -> dict:
        """Plain values for JSON."""
        claim = self.claim
        return {
            "id": claim.id,
            "published": claim.published,
            "simulated": self.simulated,
            "unit": claim.unit,
            "error": self.error,
            "error_percent": self.error_percent,
            "tolerance": claim.tolerance,
            "verdict": self.verdict,
            "kind": claim.kind,
            "source": claim.source,
            "quantity": claim.quantity,
        }


def compare(claims: Sequence[Claim], answers: Answers, failed: Sequence[str] = ()) -> list[Row]:
    """Rows in the order of the claims.

    Args:
        answers: answers of the experiments that have run.
        failed: experiments that ended with an error.
    """
    rows = {claim.id: _row(claim, answers, failed) for claim in claims if claim.experiment != OVER_CLAIMS}
    for claim in claims:
        if claim.experiment == OVER_CLAIMS:
            mean = _mean_error([row for row in rows.values() if row.claim.group == claim.answer])
            rows[claim.id] = Row(claim, mean, NOT_RUN if mean is None else verdict(claim, mean))
    return [rows[claim.id] for claim in claims]


def _row(claim: Claim, answers: Answers, failed: Sequence[str]) -> Row:
    if claim.experiment in failed:
        return Row(claim, None, FAILED)
    simulated = answers.get(claim.experiment, {}).get(claim.answer)
    return Row(claim, simulated, NOT_RUN if simulated is None else verdict(claim, simulated))


def verdict(claim: Claim, simulated: float) -> str:
    """Inside or outside the tolerance, on the side that the claim's relation gives."""
    if claim.tolerance is None:
        return SHOWN
    allowed = claim.tolerance * (abs(claim.published) / PERCENT if claim.mode == "relative" else 1)
    return INSIDE if abs(claim.difference(simulated)) <= allowed else OUTSIDE


def _mean_error(rows: Sequence[Row]) -> float | None:
    """Mean absolute error in percent; None unless all rows are answered."""
    errors = [abs(row.error_percent) for row in rows if row.error_percent is not None]
    return sum(errors) / len(errors) if rows and len(errors) == len(rows) else None


def worse(rows: Sequence[Row], baseline: Path = BASELINE) -> list[Row]:
    """Rows that were inside their tolerance in the baseline and are not now. Claims that have not run are left out."""
    before = _inside(baseline)
    return [row for row in rows if row.claim.id in before and row.verdict in (OUTSIDE, FAILED)]


def _inside(baseline: Path) -> set[str]:
    """Ids of the claims in the baseline; none without one."""
    if not baseline.is_file():
        return set()
    try:
        return set(json.loads(baseline.read_text(encoding="utf-8"))["inside"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{baseline}: damaged; allowed is what `t3sim validate --accept` writes") from None


def accept(rows: Sequence[Row], baseline: Path = BASELINE) -> None:
    """Store the claims that are inside now as the baseline. Claims that have not run keep their state."""
    before = _inside(baseline)
    known, ran = {row.claim.id for row in rows}, {row.claim.id for row in rows if row.verdict != NOT_RUN}
    inside = ((before & known) - ran) | {row.claim.id for row in rows if row.verdict == INSIDE}
    with replacing(baseline) as temporary:
        temporary.write_text(json.dumps({"inside": sorted(inside)}, indent=1) + "\n", encoding="utf-8")
