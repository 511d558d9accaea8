"""Experiment: time of the library's GEMMs on measured machines. `validation.against.gemm_library` has the rows."""

from sim.run.run import KernelRun
from validation.against.gemm_library import (
    DATA_SETS,
    LARGE_M,
    OVERHEAD,
    DataSet,
    Row,
    kernel_us,
    overhead_us,
    predicted_us,
    run_of,
    sample,
)
from validation.claims.claim import Claim, measured_time
from validation.experiments.experiment import Experiment, Results


class GemmTime(Experiment, tag="gemm_time", frozen=True, kw_only=True):
    """Time of GEMMs on a machine. preset: the data sets with this preset."""

    preset: str

    @property
    def _data(self) -> list[DataSet]:
        return [data for data in DATA_SETS if data.preset == self.preset]

    def runs(self) -> list[KernelRun]:  # type: ignore[override]
        return [run_of(row) for data in self._data for row in sample(data)]

    def answers(self, results: Results) -> dict[str, float]:
        """`<data set>/<M>x<N>x<K>/us`, and `<data set>/overhead_us`."""
        answers: dict[str, float] = {}
        for data in self._data:
            kernels_us = {row: kernel_us(results[run_of(row).key]) for row in sample(data)}
            ours = predicted_us(data, kernels_us)
            answers |= {f"{_case(row)}/us": time_us for row, time_us in ours.items()}
            answers[f"{data.name}/overhead_us"] = overhead_us(data, kernels_us)
        return answers

    def claims(self, name: str) -> list[Claim]:
        """The measured rows."""
        return [_claim(row, name) for data in self._data for row in sample(data)]


def _claim(row: Row, experiment: str) -> Claim:
    """A measured row. Rows that determine an overhead, and those of a data set apart, are in no mean."""
    group = "gemm-time-large" if row.m >= LARGE_M else "gemm-time-small"
    quantity = f"time of a GEMM {row.m} x {row.n} x {row.k} ({row.dtype}) on {row.data.gpu}"
    overhead = row.kind == OVERHEAD
    judged = "" if overhead or row.data.apart else group
    case = f"gemm-time/{_case(row)}"
    return measured_time(case, quantity, row.time_us, row.source, overhead, experiment, group=judged)


def _case(row: Row) -> str:
    return f"{row.data.name}/{row.m}x{row.n}x{row.k}"
