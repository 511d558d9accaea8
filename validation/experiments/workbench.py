"""Build scenarios from names `model/layer/tpN`, on a preset with some values replaced."""

from dataclasses import replace

import msgspec

from sim.presets import load_preset
from sim.run.run import Run
from sim.scenario.result import CONFIGURATIONS, ScenarioResult
from sim.scenario.scenario import Scenario, assemble, runs_of
from tracer.kernels import make_gemm
from tracer.workloads import PAPER_NAMES, named_sublayer
from traces.units import PS_PER_NS
from validation.experiments.experiment import Results

TIMED_RUNS = ("gemm", "t3", "t3_mca")
"""Runs that record time series in a scenario with an interval."""
PAPER = "paper"
"""Name for the 16 sub-layers of the paper."""


class Workbench(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings that the scenarios of an experiment share.

    Attributes:
        preset: name of a preset.
        overrides: "unit.field=value".
        kernel: fields of the GEMM to replace (`tracer.kernels`), of its kernel or of its matrices.
        tokens: M of all GEMMs; None = M of the model.
        interval_ns: interval of the time series.
        series: scenarios with time series. Scenarios of the same shape have them too.
    """

    preset: str = "t3_2024"
    overrides: tuple[str, ...] = ()
    kernel: dict[str, int | str] = {}
    tokens: int | None = None
    interval_ns: int = 5000
    series: tuple[str, ...] = ()

    def scenarios(self, names: tuple[str, ...]) -> dict[str, Scenario]:
        """Name -> scenario.

        Raises:
            UserError: an unknown workload, preset or field.
        """
        preset = load_preset(self.preset, self.overrides)
        timed = {self._extents(name) for name in self.series}
        scenarios = {}
        for name in scenario_names(names):
            shape, gpus = extents = self._extents(name)
            source = make_gemm("gemm", shape=shape, **self.kernel).source
            interval_ps = self.interval_ns * PS_PER_NS if extents in timed else 0
            scenarios[name] = Scenario(preset, source.problem, source.kernel, gpus, interval_ps=interval_ps)
        return scenarios

    def _extents(self, name: str) -> tuple[tuple[int, int, int], int]:
        """M, N and K of a scenario, and its number of GPUs."""
        problem, gpus = named_sublayer(name)
        return (self.tokens or problem.m, problem.n, problem.k), gpus


def scenario_run(scenario: Scenario, name: str) -> Run:
    """The run of a scenario with this name. Only TIMED_RUNS record time series."""
    return (scenario if name in TIMED_RUNS else replace(scenario, interval_ps=0)).run(name)


def runs_for(scenario: Scenario) -> dict[str, Run]:
    """All runs that the configurations of the paper need, by name."""
    return {name: scenario_run(scenario, name) for name in runs_of(CONFIGURATIONS)}


def assembled(scenario: Scenario, results: Results) -> ScenarioResult:
    """The result of a scenario in these configurations, from the results of its runs."""
    return assemble(scenario, {name: results[run.key] for name, run in runs_for(scenario).items()})


def scenario_names(names: tuple[str, ...]) -> list[str]:
    """The names, with PAPER replaced by the names of the paper's sub-layers."""
    return [each for name in names for each in (PAPER_NAMES if name == PAPER else [name])]


def gpus_of(name: str) -> int:
    """N of `model/layer/tpN`."""
    return int(name.rpartition("/tp")[2])


def layer_of(name: str) -> str:
    return name.split("/")[1]
