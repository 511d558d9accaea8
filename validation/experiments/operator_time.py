"""Experiment: time of memory-bound operators and fused attention. `validation.against.operator_time` has the rows."""

from typing import Any

from sim.run.run import KernelRun
from validation.against.operator_time import (
    ATTENTION,
    CALIBRATION,
    GOALS,
    Row,
    measured,
    outcome,
    overheads_us,
    predicted_us,
    run_of,
)
from validation.claims.claim import Claim, measured_time
from validation.experiments.experiment import Experiment, Results

GROUPS = {"memory": "operators-time", ATTENTION: "attention-time"}
"""Goal -> group of claims."""


class OperatorTime(Experiment, tag="operator_time", frozen=True, kw_only=True):
    """Time of operators on a machine. preset: the rows of `references/operator_time.csv` with this preset."""

    preset: str

    @property
    def _rows(self) -> list[Row]:
        return [row for row in measured() if row.preset == self.preset]

    def runs(self) -> list[KernelRun]:  # type: ignore[override]
        return [run_of(row) for row in self._rows]

    def answers(self, results: Results) -> dict[str, float]:
        """`<case>/us`, and `<stack>/overhead_us` of each software stack."""
        outcomes = [outcome(row, results[run_of(row).key]) for row in self._rows]
        answers = {f"{case}/us": time_us for case, time_us in predicted_us(outcomes).items()}
        return answers | {f"{stack}/overhead_us": value for stack, value in overheads_us(outcomes).items()}

    def claims(self, name: str) -> list[Claim]:
        """The measured rows."""
        return [_claim(row, name) for row in self._rows]


def _claim(row: Row, experiment: str) -> Claim:
    """A measured row; those that do not count are shown only."""
    judged: dict[str, Any] = {"note": "calibration or short: shown only"}
    if row.counts:
        tolerance = round(100 * GOALS[row.group][0])
        judged = {"tolerance": tolerance, "mode": "relative", "group": GROUPS[row.group]}
    case, quantity = f"operator-time/{row.case}", f"time of {row.case} on {row.preset}"
    return measured_time(case, quantity, row.time_us, row.source, row.kind == CALIBRATION, experiment, **judged)
