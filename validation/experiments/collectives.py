"""Experiments: collectives alone on idle machines. They measure the gain of near-memory updates, and time over size."""

from sim.presets import load_preset
from sim.run.run import Run
from sim.scenario.scenario import Scenario
from tracer.gemm.source import GemmProblem
from tracer.workloads import DEFAULT_KERNEL
from traces.units import MEGA, PS_PER_US
from validation.experiments.experiment import Experiment, Results
from validation.experiments.sublayers import PERCENT
from validation.experiments.workbench import Workbench, gpus_of, scenario_run

RUNS = ("rs", "rs_nmc", "ag")
ROW_ELEMENTS = 4096
ELEMENT_BYTES = 2


class ScatterGain(Experiment, tag="scatter_gain", frozen=True, kw_only=True):
    """A reduce-scatter of the outputs of sub-layers, with and without near-memory updates.

    Attributes:
        scenarios: `model/layer/tpN`; their outputs are reduced.
        bench: the machine.
    """

    scenarios: tuple[str, ...]
    bench: Workbench = Workbench()

    def runs(self) -> list[Run]:
        scenarios = self.bench.scenarios(self.scenarios).values()
        return [scenario_run(scenario, name) for scenario in scenarios for name in RUNS[:2]]

    def answers(self, results: Results) -> dict[str, float]:
        """`<sub-layer>/nmc_gain` = saved time in percent of the time with near-memory updates; also its means by N."""
        answers: dict[str, float] = {}
        gains: dict[int, list[float]] = {}
        for name, scenario in self.bench.scenarios(self.scenarios).items():
            plain, near = (results[scenario_run(scenario, run).key].time_ps for run in RUNS[:2])
            answers[f"{name}/rs_us"], answers[f"{name}/rs_nmc_us"] = plain / PS_PER_US, near / PS_PER_US
            answers[f"{name}/nmc_gain"] = PERCENT * (plain / near - 1)
            gains.setdefault(gpus_of(name), []).append(answers[f"{name}/nmc_gain"])
        return answers | {f"mean/tp{gpus}/nmc_gain": sum(values) / len(values) for gpus, values in gains.items()}


class ScatterSizes(Experiment, tag="scatter_sizes", frozen=True, kw_only=True):
    """A reduce-scatter, with and without near-memory updates, and an all-gather, for several sizes of the buffer.

    Attributes:
        preset, overrides: the machine.
        gpus: numbers of GPUs.
        sizes_MB: sizes of the whole buffer in 10^6 bytes, rounded to whole tiles of 128 rows of 8 KB.
    """

    preset: str = "t3_2024"
    overrides: tuple[str, ...] = ()
    gpus: tuple[int, ...]
    sizes_MB: tuple[int, ...]

    def buffers(self) -> dict[str, Scenario]:
        preset = load_preset(self.preset, self.overrides)
        return {
            f"{gpus}/{megabytes}MB": Scenario(preset, _buffer(megabytes * MEGA), DEFAULT_KERNEL, gpus)
            for gpus in self.gpus
            for megabytes in self.sizes_MB
        }

    def runs(self) -> list[Run]:
        return [scenario_run(scenario, name) for scenario in self.buffers().values() for name in RUNS]

    def answers(self, results: Results) -> dict[str, float]:
        answers: dict[str, float] = {}
        for name, scenario in self.buffers().items():
            answers[f"{name}/bytes"] = float(scenario.problem.m * scenario.problem.n * ELEMENT_BYTES)
            for run in RUNS:
                answers[f"{name}/{run}_us"] = results[scenario_run(scenario, run).key].time_ps / PS_PER_US
        return answers


def _buffer(wanted_bytes: int) -> GemmProblem:
    """A GEMM whose output has about `wanted_bytes`, in whole tiles. Only its output is used."""
    row_bytes = ROW_ELEMENTS * ELEMENT_BYTES
    tile_rows = max(1, round(wanted_bytes / (row_bytes * DEFAULT_KERNEL.tile_m)))
    return GemmProblem(m=tile_rows * DEFAULT_KERNEL.tile_m, n=ROW_ELEMENTS, k=DEFAULT_KERNEL.tile_k)
