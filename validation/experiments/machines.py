"""Experiments on presets of real machines: microbenchmarks, collectives.

The modules of `validation.against` do the simulations.
"""

from dataclasses import dataclass
from typing import Any

from sim.presets import load_preset
from sim.run.run import Run
from sim.scenario.collective import Collective, result_of
from traces.units import NS_PER_US
from validation.against import collectives, gemm_mi300x, machines_of_today, microbenchmarks
from validation.experiments.experiment import Experiment, FiguresRun, Results


@dataclass(frozen=True, kw_only=True)
class MicrobenchmarkRun(FiguresRun):
    """Latencies and bandwidths of a preset. machine: its name, one of `microbenchmarks.MACHINES`."""

    machine: str

    def input(self) -> dict[str, Any]:
        return {"microbenchmarks": self.machine}

    def modules(self) -> tuple[str, ...]:
        return (microbenchmarks.__name__, __name__)

    def figures(self) -> dict[str, float]:
        return microbenchmarks.figures(self.machine)


@dataclass(frozen=True, kw_only=True)
class MachineOfTodayRun(FiguresRun):
    """Latencies and bandwidths of a preset. machine: one of `machines_of_today.MACHINES`."""

    machine: machines_of_today.Machine

    def input(self) -> dict[str, Any]:
        return dict(self.machine._asdict())

    def modules(self) -> tuple[str, ...]:
        return (machines_of_today.__name__, __name__)

    def figures(self) -> dict[str, float]:
        return machines_of_today.figures(self.machine)


@dataclass(frozen=True, kw_only=True)
class Mi300xRun(FiguresRun):
    """The measured GEMMs of an MI300X. cus: number of CUs; 0 = the GEMM of one wave."""

    cus: int

    def input(self) -> dict[str, Any]:
        return {"gemm_mi300x": self.cus}

    def modules(self) -> tuple[str, ...]:
        return (gemm_mi300x.__name__, __name__)

    def figures(self) -> dict[str, float]:
        if not self.cus:
            return {"one_wave/TFLOP_per_s": gemm_mi300x.one_wave_tflops()}
        traffic = gemm_mi300x.simulated() if self.cus == gemm_mi300x.ALL_CUS else {}
        return traffic | {f"{self.cus}_cus/TFLOP_per_s": gemm_mi300x.rate_tflops(self.cus)}


class Microbenchmarks(Experiment, tag="microbenchmarks", frozen=True, kw_only=True):
    """Latencies and bandwidths of a preset. The answers are columns of `references/gpu_microbenchmarks.csv`.

    Attributes:
        preset: one of `microbenchmarks.MACHINES`.
    """

    preset: str

    def runs(self) -> list[Run]:
        return [
            MicrobenchmarkRun(
                preset=load_preset(self.preset),
                name=f"microbenchmarks of {self.preset}",
                requests=3e7,
                machine=self.preset,
            )
        ]

    def answers(self, results: Results) -> dict[str, float]:
        return _figures(self.runs(), results)


class MachineOfToday(Experiment, tag="machine_of_today", frozen=True, kw_only=True):
    """Latencies and bandwidths of a preset. The answers are columns of `references/gpu_benches.csv`.

    Attributes:
        preset: of one of `machines_of_today.MACHINES`.
    """

    preset: str

    def runs(self) -> list[Run]:
        machine = next(machine for machine in machines_of_today.MACHINES if machine.preset == self.preset)
        preset, name = load_preset(self.preset), f"microbenchmarks of {self.preset}"
        return [MachineOfTodayRun(preset=preset, name=name, requests=4e7, machine=machine)]

    def answers(self, results: Results) -> dict[str, float]:
        return _figures(self.runs(), results)


class Mi300xGemm(Experiment, tag="gemm_mi300x", frozen=True, kw_only=True):
    """GEMMs of an MI300X: traffic, rate on several numbers of CUs, rate of one full wave."""

    def runs(self) -> list[Run]:
        preset = load_preset("mi300x")
        return [
            Mi300xRun(
                preset=preset,
                name=f"GEMM of mi300x, {cus or 'all'} CUs",
                requests=7.5e7 if cus == gemm_mi300x.ALL_CUS else 1.5e7,
                cus=cus,
            )
            for cus in (0, *gemm_mi300x.CUS)
        ]

    def answers(self, results: Results) -> dict[str, float]:
        return _figures(self.runs(), results)


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


def _figures(runs: list[Run], results: Results) -> dict[str, float]:
    return {name: value for run in runs for name, value in results[run.key].figures.items()}
