"""Experiment: where T3's loss comes from: the fused kernel with its communication taken out, and seeds of start jitter.

Without communication every tile stays where it is made, as near-memory updates: what is then slower than the GEMM alone
is due to the GEMM's own uncached updates; the rest is due to arriving updates and DMA reads.
"""

from functools import partial

import msgspec
import numpy as np

from sim.cluster import Cluster
from sim.collective.plans import Counts, Plan
from sim.collective.space import Region, make_gates, make_tiles, map_regions
from sim.configurations import Case
from sim.hw.space import Map
from sim.jobs import replace_unit
from sim.spec import Arbiter
from sim.units import PS_PER_US
from sim.window import Launch
from validation.experiments.cases import Workbench
from validation.experiments.parts import SIMULATOR, part_task
from validation.experiments.sublayers import PERCENT
from validation.experiments.task import Experiment, Outcome, Outcomes, Task, task_key

PARTS = ("gemm", "rs", "t3", "t3_mca")
ALONE = "t3_without_communication"


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

    def _seeded(self) -> dict[tuple[str, int], Case]:
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
            tasks += [*(part_task(case, part) for part in PARTS), _alone_task(case)]
        return tasks

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        """`<case>/seed<n>/...`: kernels' times, and slow-downs against the GEMM alone in percent."""
        answers: dict[str, float] = {}
        for (name, seed), case in self._seeded().items():
            found = {part: outcomes[part_task(case, part).key] for part in PARTS}
            found[ALONE] = outcomes[_alone_task(case).key]
            gemm_ps = found["gemm"]["time_ps"]
            at = f"{name}/seed{seed}"
            answers[f"{at}/gemm_us"] = gemm_ps / PS_PER_US
            answers[f"{at}/gemm_read_MB"] = found["gemm"]["dram_bytes"][0] / 1e6
            for part in (ALONE, "t3", "t3_mca"):
                answers[f"{at}/{part}/kernel_us"] = found[part]["kernel_ps"] / PS_PER_US
                answers[f"{at}/{part}/gemm_slowdown"] = PERCENT * (found[part]["kernel_ps"] / gemm_ps - 1)
            ideal_ps = max(gemm_ps, found["rs"]["time_ps"])
            for part in ("t3", "t3_mca"):
                answers[f"{at}/{part}/overlap_loss"] = PERCENT * (found[part]["time_ps"] / ideal_ps - 1)
        return answers


def _alone_task(case: Case) -> Task:
    gemm = part_task(case, "gemm")
    key = task_key(SIMULATOR, ALONE, case.part_key("t3"))
    return Task(key, f"{gemm.title}, updates without communication", gemm.cost, partial(_alone, case))


def _alone(case: Case) -> Outcome:
    """The fused kernel of one GPU whose whole output stays there."""
    machine = replace_unit(case.preset.machine, hbm={"arbiter": Arbiter.ROUND_ROBIN})
    source, chunks = case.source(), case.cut()
    regions = [Region(0, chunks.tiles, Map.FINAL, updates=1)]
    tiles = make_tiles(source.output_tiles())
    map_regions(tiles, regions, machine.link.topology, chunks.gpus)
    counts = Counts.none(len(tiles))
    plan = Plan(0, chunks, machine.link.topology, tiles, make_gates([], 0), counts, regions=regions)
    cluster = Cluster(machine, [plan], symmetric=True)
    cluster.run([[Launch(source, tags=np.arange(chunks.tiles))]])
    node = cluster.gpus[0].node
    kernel_ps = int(node.cus["last_exit_ps"].max())
    return {"kernel_ps": kernel_ps, "time_ps": max(kernel_ps, int(node.channels["bus_end_ps"].max()))}
