"""Experiments on presets of real machines: microbenchmarks, collectives.

The modules of `validation.against` do the simulations.
"""

from sim.presets import load_preset
from sim.run.run import Run
from sim.scenario.collective import Collective, result_of
from traces.units import NS_PER_US, bytes_text
from validation.against import collectives, gemm_mi300x, microbenchmarks
from validation.claims.claim import Claim, measured_time
from validation.experiments.experiment import Experiment, MeasuredRun, Results, figures_of


class Microbenchmarks(Experiment, tag="microbenchmarks", frozen=True, kw_only=True):
    """Latencies and bandwidths of a preset. The answers are columns of its file in `references`.

    Attributes:
        preset: one of `microbenchmarks.MACHINES`.
    """

    preset: str

    def runs(self) -> list[Run]:
        return [
            MeasuredRun(
                preset=load_preset(self.preset),
                name=f"microbenchmarks of {self.preset}",
                requests=4e7,
                measure=microbenchmarks.figures,
                given=(self.preset,),
            )
        ]

    def answers(self, results: Results) -> dict[str, float]:
        return figures_of(self.runs(), results)


class Mi300xGemm(Experiment, tag="gemm_mi300x", frozen=True, kw_only=True):
    """GEMMs of an MI300X: traffic, rate on several numbers of CUs, rate of one full wave."""

    def runs(self) -> list[Run]:
        preset = load_preset("mi300x")
        return [
            MeasuredRun(
                preset=preset,
                name=f"GEMM of mi300x, {cus or 'all'} CUs",
                requests=7.5e7 if cus == gemm_mi300x.ALL_CUS else 1.5e7,
                measure=gemm_mi300x.figures,
                given=(cus,),
            )
            for cus in (0, *gemm_mi300x.CUS)
        ]

    def answers(self, results: Results) -> dict[str, float]:
        return figures_of(self.runs(), results)


class MachineCollectives(Experiment, tag="machine_collectives", frozen=True, kw_only=True):
    """Collectives of a measured machine, at all measured sizes.

    Attributes:
        system: its name in `references/nccl_*.csv`.
    """

    system: str

    def questions(self) -> dict[str, Collective]:
        """`<collective>/<GPUs>/<bytes>` -> the collective."""
        return {
            f"{case.kind}/{case.gpus}/{size}": collectives.question(case, size)
            for case, times in collectives.measured().items()
            if case.system == self.system
            for size in times
        }

    def runs(self) -> list[Run]:
        return [run for asked in self.questions().values() for run in asked.runs().values()]

    def answers(self, results: Results) -> dict[str, float]:
        """`<collective>/<GPUs>/<bytes>/us`."""
        answers = {}
        for name, asked in self.questions().items():
            runs = asked.runs()
            found = result_of(asked, runs, {size: results[run.key] for size, run in runs.items()})
            answers[f"{name}/us"] = found.time_ns / NS_PER_US
        return answers

    def claims(self, name: str) -> list[Claim]:
        """The measured points."""
        return [
            _claim(case, size, time_us, name)
            for case, times in collectives.measured().items()
            if case.system == self.system
            for size, time_us in times.items()
        ]


def _claim(case: collectives.Case, data_bytes: int, time_us: float, experiment: str) -> Claim:
    """A measured point of a collective. Curves that calibrate are in no mean."""
    name = experiment.replace("collectives", "collective").replace("_", "-")
    small = "" if data_bytes >= collectives.LARGE_BYTES else "-small"
    return measured_time(
        f"{name}/{case.kind}/{case.gpus}/{data_bytes}",
        f"time of {case.kind} of {bytes_text(data_bytes)} on {case.gpus} {case.system}",
        time_us,
        collectives.published()[case, data_bytes]["source"],
        case.calibrates,
        experiment,
        group="" if case.calibrates else f"{name}{small}",
    )
