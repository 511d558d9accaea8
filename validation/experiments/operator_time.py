"""Experiment: time of memory-bound operators and fused attention. `validation.against.operator_time` has the rows."""

from sim.run.run import KernelRun
from validation.against.operator_time import Row, measured, outcome, overheads_us, predicted_us, run_of
from validation.experiments.experiment import Experiment, Results


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
