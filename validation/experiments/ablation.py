"""Experiment: where T3's loss comes from: the fused kernel with traffic left out, and seeds of start jitter.

What is left out, and how, is told in `validation.experiments.ablation_runs`.
"""

import msgspec

from sim.scenario.scenario import Scenario
from traces.units import PS_PER_US
from validation.experiments.ablation_runs import VARIANTS, variant_tasks
from validation.experiments.cases import Workbench
from validation.experiments.parts import part_task
from validation.experiments.sublayers import PERCENT
from validation.experiments.task import Experiment, Outcome, Outcomes, Task

MEGA = 1_000_000
PARTS = ("gemm", "rs", "t3", "t3_mca")
FUSED = ("t3", "t3_mca")


class Ablation(Experiment, tag="ablation", frozen=True, kw_only=True):
    """Cases under several seeds of start jitter.

    Attributes:
        cases: `model/layer/tpN`.
        jitter_ps: largest delay of a workgroup's start; 0 is always run too, as seed 0.
        seeds: of the jitter.
        bench: the machine.
    """

    cases: tuple[str, ...]
    jitter_ps: int
    seeds: tuple[int, ...]
    bench: Workbench = Workbench()

    def _seeded(self) -> dict[tuple[str, int], Scenario]:
        """(case, seed) -> case."""
        found = {(name, 0): case for name, case in self.bench.cases(self.cases).items()}
        for seed in self.seeds:
            jitter = (f"dispatch.jitter_ps={self.jitter_ps}", f"dispatch.seed={seed}")
            bench = msgspec.structs.replace(self.bench, overrides=(*self.bench.overrides, *jitter))
            found |= {(name, seed): case for name, case in bench.cases(self.cases).items()}
        return found

    def tasks(self) -> list[Task]:
        tasks = []
        for case in self._seeded().values():
            tasks += [*(part_task(case, part) for part in PARTS), *variant_tasks(case)]
        return tasks

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        """`<case>/seed<n>/...`: kernels' times, and slow-downs against the GEMM alone in percent."""
        answers: dict[str, float] = {}
        for (name, seed), case in self._seeded().items():
            found = {part: outcomes[part_task(case, part).key] for part in PARTS}
            for task in variant_tasks(case):
                found |= outcomes[task.key]
            answers |= {f"{name}/seed{seed}/{key}": value for key, value in _case_answers(found).items()}
        return answers


def _case_answers(found: dict[str, Outcome]) -> dict[str, float]:
    gemm_ps = found["gemm"]["time_ps"]
    ideal_ps = max(gemm_ps, found["rs"]["time_ps"])
    answers = {"gemm_us": gemm_ps / PS_PER_US, "gemm_read_MB": found["gemm"]["dram_bytes"][0] / MEGA}
    for part in (*VARIANTS, *FUSED):
        answers[f"{part}/kernel_us"] = found[part]["kernel_ps"] / PS_PER_US
        answers[f"{part}/gemm_slowdown"] = PERCENT * (found[part]["kernel_ps"] / gemm_ps - 1)
    for variant in VARIANTS:
        answers |= {f"{variant}/{stream}_MB": b / MEGA for stream, b in found[variant]["dram_bytes"].items()}
    for part in FUSED:
        answers[f"{part}/overlap_loss"] = PERCENT * (found[part]["time_ps"] / ideal_ps - 1)
    return answers
