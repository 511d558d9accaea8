"""Experiment: time of the library's GEMMs on measured machines. `validation.against.gemm_library` has the rows."""

from sim.run.run import KernelRun
from validation.against.gemm_library import DATA_SETS, DataSet, kernel_us, overhead_us, predicted_us, run_of, sample
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
            answers |= {f"{data.name}/{row.m}x{row.n}x{row.k}/us": time_us for row, time_us in ours.items()}
            answers[f"{data.name}/overhead_us"] = overhead_us(data, kernels_us)
        return answers
