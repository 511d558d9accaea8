"""A GEMM of a model and the exchange of its output: the pair that T3, or software of today, overlaps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.run.result import RunResult
from sim.run.run import Run
from sim.scenario.result import IDEAL, IDEAL_NMC, LIBRARY, NEEDS, NVLS, REDUCE_AT_ONCE, SEQUENTIAL, SP_NVLS
from sim.scenario.scenario import Scenario, check_scenario, runs_of
from traces.errors import UserError

AT_ONCE = NEEDS[LIBRARY][-1]
"""The run of a library's collective."""
AFTER_GEMM = (*REDUCE_AT_ONCE, SP_NVLS)
"""Configurations whose exchange follows the GEMM, which runs as in Sequential."""


@dataclass(frozen=True)
class Pair:
    """A GEMM and the exchange of its output.

    Attributes:
        scenario: the two as a scenario of `sim.scenario.scenario`, with the library's best kernel without split-K.
        kind: of the exchange: all_reduce or reduce_scatter.
        configurations: those that are asked for.
        refused: configuration -> why the machine cannot run it.
    """

    scenario: Scenario
    kind: str
    configurations: tuple[str, ...]
    refused: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Runs of the scenario that the pair needs (`sim.scenario.result.RUNS`). The GEMM alone has its own run."""
        usable = [name for name in self.configurations if name not in self.refused]
        reduces = self.kind == "reduce_scatter"
        unused = {"gemm", *(NEEDS[name][-1] for name in usable if reduces and name != LIBRARY)}
        return tuple(name for name in runs_of(usable) if name not in unused)

    def runs(self) -> dict[str, Run]:
        """By name. The library does the exchange in one kernel, whatever its kind."""
        scenario = self.scenario
        return {name: scenario.library_run(self.kind) if name == AT_ONCE else scenario.run(name) for name in self.names}

    def overlapped_ps(self, name: str, gemm_ps: int, runs: Mapping[str, RunResult]) -> int:
        """Time of the GEMM and its reduce-scatter in a configuration that overlaps them.

        gemm_ps: of the GEMM alone, with a gap before it. runs: results of `runs`.
        """
        if name in (IDEAL, IDEAL_NMC):
            return max(gemm_ps, runs["rs" if name == IDEAL else "rs_nmc"].time_ps)
        dispatch = self.scenario.preset.machine.dispatch
        return sum(runs[run].time_ps for run in NEEDS[name][:-1]) - dispatch.launch_ps + dispatch.gap_ps

    def exchange_ps(self, name: str, runs: Mapping[str, RunResult]) -> int:
        """Time of what follows that: the last run of a configuration, if it is needed; of SP_NVLS both exchanges."""
        left = NEEDS[name][1:] if name == SP_NVLS else NEEDS[name][-1:]
        return sum(runs[run].time_ps for run in left if run in runs)


def refused_in(scenario: Scenario, kind: str, names: Sequence[str]) -> dict[str, str]:
    """Configuration, except Sequential -> why a pair cannot run in it."""
    refused = {}
    for name in (name for name in names if name != SEQUENTIAL):
        try:
            check_scenario(scenario, (name,))
            if name == LIBRARY:
                scenario.library_run(kind)
        except UserError as reason:
            refused[name] = str(reason)
        if kind == "reduce_scatter" and name == NVLS:
            refused[name] = f"{name} ends with an all-reduce, the exchange is a reduce-scatter"
    return refused
