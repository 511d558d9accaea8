"""Experiment: where T3's loss comes from: the fused kernel with traffic left out, and seeds of start jitter.

What is left out, and how, is told in `validation.experiments.ablation_runs`.
"""

from typing import Any

import msgspec

from sim.run.result import RunResult
from sim.run.run import Run
from sim.scenario.scenario import Scenario
from traces.units import PS_PER_US
from validation.experiments.ablation_runs import VARIANTS, ring_runs
from validation.experiments.experiment import Experiment, Results
from validation.experiments.sublayers import MEGA, PERCENT
from validation.experiments.workbench import Workbench, scenario_run

RUNS = ("gemm", "rs", "t3", "t3_mca")
FUSED = ("t3", "t3_mca")


class Ablation(Experiment, tag="ablation", frozen=True, kw_only=True):
    """Sub-layers under several seeds of start jitter.

    Attributes:
        scenarios: `model/layer/tpN`.
        jitter_ps: largest delay of a workgroup's start; 0 is always run too, as seed 0.
        seeds: of the jitter.
        bench: the machine.
    """

    scenarios: tuple[str, ...]
    jitter_ps: int
    seeds: tuple[int, ...]
    bench: Workbench = Workbench()

    def _seeded(self) -> dict[tuple[str, int], Scenario]:
        """(name, seed) -> scenario."""
        found = {(name, 0): each for name, each in self.bench.scenarios(self.scenarios).items()}
        for seed in self.seeds:
            jitter = (f"dispatch.jitter_ps={self.jitter_ps}", f"dispatch.seed={seed}")
            bench = msgspec.structs.replace(self.bench, overrides=(*self.bench.overrides, *jitter))
            found |= {(name, seed): each for name, each in bench.scenarios(self.scenarios).items()}
        return found

    def runs(self) -> list[Run]:
        runs: list[Run] = []
        for scenario in self._seeded().values():
            runs += [*(scenario_run(scenario, name) for name in RUNS), *ring_runs(scenario)]
        return runs

    def answers(self, results: Results) -> dict[str, float]:
        """`<sub-layer>/seed<n>/...`: kernels' times, and slow-downs against the GEMM alone in percent."""
        answers: dict[str, float] = {}
        for (name, seed), scenario in self._seeded().items():
            found = {run: results[scenario_run(scenario, run).key] for run in RUNS}
            rings: dict[str, Any] = {}
            for run in ring_runs(scenario):
                rings |= results[run.key].figures
            answers |= {f"{name}/seed{seed}/{key}": value for key, value in _answers(found, rings).items()}
        return answers


def _answers(found: dict[str, RunResult], rings: dict[str, int]) -> dict[str, float]:
    """Of one sub-layer and seed, from its runs and the figures of the rings."""
    gemm_ps = found["gemm"].time_ps
    ideal_ps = max(gemm_ps, found["rs"].time_ps)
    answers = {"gemm_us": gemm_ps / PS_PER_US, "gemm_read_MB": int(found["gemm"].dram_bytes[0]) / MEGA}
    kernels_ps = {name: rings[f"{name}/kernel_ps"] for name in VARIANTS}
    kernels_ps |= {name: found[name].kernel_ps or 0 for name in FUSED}
    for name, kernel_ps in kernels_ps.items():
        answers[f"{name}/kernel_us"] = kernel_ps / PS_PER_US
        answers[f"{name}/gemm_slowdown"] = PERCENT * (kernel_ps / gemm_ps - 1)
    for key, value in rings.items():
        name, _, stream = key.partition("/dram_bytes/")
        if stream:
            answers[f"{name}/{stream}_MB"] = value / MEGA
    for name in FUSED:
        answers[f"{name}/overlap_loss"] = PERCENT * (found[name].time_ps / ideal_ps - 1)
    return answers
