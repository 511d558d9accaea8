"""Experiment: the causes of T3's loss. It omits traffic of the fused kernel, and varies the seed of the start jitter.

`validation.experiments.ablation_runs` describes the omitted traffic.
"""

from typing import Any

import msgspec

from sim.run.result import RunResult
from sim.run.run import Run
from sim.scenario.result import FUSED_RUNS
from sim.scenario.scenario import Scenario
from traces.units import MEGA, PS_PER_US
from validation.experiments.ablation_runs import VARIANTS, ring_runs
from validation.experiments.experiment import Experiment, Results
from validation.experiments.sublayers import PERCENT
from validation.experiments.workbench import Workbench, scenario_run

RUNS = ("gemm", "rs", *FUSED_RUNS)


class Ablation(Experiment, tag="ablation", frozen=True, kw_only=True):
    """Sub-layers with several seeds of the start jitter.

    Attributes:
        scenarios: `model/layer/tpN`.
        jitter_ps: largest delay of a workgroup's start. Runs without jitter are always added, as seed 0.
        seeds: seeds of the jitter.
        bench: the machine.
    """

    scenarios: tuple[str, ...]
    jitter_ps: int
    seeds: tuple[int, ...]
    bench: Workbench = Workbench()

    def _seeded(self) -> dict[tuple[str, int], Scenario]:
        """(name, seed) -> scenario."""
        seeded = {(name, 0): scenario for name, scenario in self.bench.scenarios(self.scenarios).items()}
        for seed in self.seeds:
            jitter = (f"dispatch.jitter_ps={self.jitter_ps}", f"dispatch.seed={seed}")
            bench = msgspec.structs.replace(self.bench, overrides=(*self.bench.overrides, *jitter))
            seeded |= {(name, seed): scenario for name, scenario in bench.scenarios(self.scenarios).items()}
        return seeded

    def runs(self) -> list[Run]:
        runs: list[Run] = []
        for scenario in self._seeded().values():
            runs += [*(scenario_run(scenario, name) for name in RUNS), *ring_runs(scenario)]
        return runs

    def answers(self, results: Results) -> dict[str, float]:
        """`<sub-layer>/seed<n>/...`: times of the kernels, and their slow-downs in percent of the GEMM alone."""
        answers: dict[str, float] = {}
        for (name, seed), scenario in self._seeded().items():
            own = {run: results[scenario_run(scenario, run).key] for run in RUNS}
            rings: dict[str, Any] = {}
            for run in ring_runs(scenario):
                rings |= results[run.key].figures
            answers |= {f"{name}/seed{seed}/{key}": value for key, value in _answers(own, rings).items()}
        return answers


def _answers(results: dict[str, RunResult], rings: dict[str, int]) -> dict[str, float]:
    """Answers of one sub-layer and seed, from the results of its runs and the figures of the rings."""
    gemm_ps = results["gemm"].time_ps
    ideal_ps = max(gemm_ps, results["rs"].time_ps)
    answers = {"gemm_us": gemm_ps / PS_PER_US, "gemm_read_MB": int(results["gemm"].dram_bytes[0]) / MEGA}
    kernels_ps = {name: rings[f"{name}/kernel_ps"] for name in VARIANTS}
    kernels_ps |= {name: results[name].kernel_ps or 0 for name in FUSED_RUNS}
    for name, kernel_ps in kernels_ps.items():
        answers[f"{name}/kernel_us"] = kernel_ps / PS_PER_US
        answers[f"{name}/gemm_slowdown"] = PERCENT * (kernel_ps / gemm_ps - 1)
    for key, value in rings.items():
        name, _, stream = key.partition("/dram_bytes/")
        if stream:
            answers[f"{name}/{stream}_MB"] = value / MEGA
    for name in FUSED_RUNS:
        answers[f"{name}/overlap_loss"] = PERCENT * (results[name].time_ps / ideal_ps - 1)
    return answers
