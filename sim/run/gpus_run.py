"""Runs on several GPUs: a collective on CUs, a fused GEMM (T3), a GEMM beside a collective (software overlap)."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sim.collective.chunks import Chunks
from sim.collective.own_plan import OwnPlan
from sim.host.gpu import Progress
from sim.host.state import SavePoints
from sim.host.window import Launch
from sim.run.code import plan_key
from sim.run.inputs import gemm_input
from sim.run.many_gpus import (
    COLLECTIVES,
    collective_cus,
    collective_launch,
    collective_launches,
    collective_plans,
    fused_cluster,
    plan_cluster,
    run_cluster,
    run_plan,
)
from sim.run.result import RunResult
from sim.run.run import Run, gemm_cost
from sim.spec import Arbiter
from tracer.gemm.source import GemmSource
from traces.errors import UserError
from traces.schema import LINE_BYTES


@dataclass(frozen=True, kw_only=True)
class GpusRun(Run):
    """Base of the runs on several GPUs.

    Attributes:
        source: the GEMM of one GPU; a collective uses only its output.
        chunks: how the output is cut.
        explicit: simulate every GPU; else one GPU represents all where that is exact.
        own: a user's topology and plan, instead of the machine's.
    """

    source: GemmSource
    chunks: Chunks
    explicit: bool = False
    own: OwnPlan | None = None

    def simulated_gpus(self) -> int:
        return self.chunks.gpus if self.explicit else 1

    def deciding_input(self) -> dict[str, Any]:
        return self.input() | ({"plan": plan_key(self.own.path)} if self.own else {})

    def own_options(self) -> dict[str, Any]:
        return {"explicit": self.explicit}

    def _gpus_input(self) -> dict[str, Any]:
        cut: dict[str, Any] = {"gpus": self.chunks.gpus, "edges": list(self.chunks.edges)}
        return cut | ({"plan_sha256": self.own.digest} if self.own else {})


@dataclass(frozen=True, kw_only=True)
class CollectiveRun(GpusRun):
    """One collective on CUs.

    Attributes:
        kind: one of `sim.run.many_gpus.COLLECTIVES`.
        update: the receiver adds near memory (reduce-scatter only).
    """

    kind: str
    update: bool = False

    @property
    def title(self) -> str:
        near = " near memory" if self.update else ""
        megabytes = f"{self.source.problem.output_bytes / 1e6:,.1f} MB"
        return f"{self.kind}{near} of {megabytes} on {self.chunks.gpus} GPUs, {self.preset.name}"

    @property
    def cost(self) -> float:
        requests = COLLECTIVES[self.kind].requests / (2 if self.update else 1)
        return requests * self.source.problem.output_bytes / LINE_BYTES

    def input(self) -> dict[str, Any]:
        output = sha256(self.source.output_tiles().tobytes()).hexdigest()
        return {"collective": self.kind, "update": self.update, "output_sha256": output} | self._gpus_input()

    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        machine, kind = self.preset.machine, self.kind
        plans = collective_plans(machine, kind, self.source.output_tiles(), self.chunks, self.update, self.own)
        cus = collective_cus(machine, kind)
        return run_plan(
            *(machine, plans, lambda plan: collective_launches(machine, kind, plan, cus)),
            name=kind,
            explicit=self.explicit,
            interval_ps=self.interval_ps,
            progress=progress,
            save_points=save_points,
        )


@dataclass(frozen=True, kw_only=True)
class FusedRun(GpusRun):
    """A fused GEMM (T3): its stores become a reduce-scatter.

    Attributes:
        arbitration: arbiter of the DRAM queues, instead of the machine's.
    """

    arbitration: Arbiter

    @property
    def title(self) -> str:
        name = self.source.info.name
        return f"{name} fused, {self.arbitration.name.lower()}, on {self.chunks.gpus} GPUs, {self.preset.name}"

    @property
    def cost(self) -> float:
        return gemm_cost(self.source) + 2 * self.source.problem.output_bytes / LINE_BYTES

    def input(self) -> dict[str, Any]:
        return {"fused": True} | gemm_input(self.source) | self._gpus_input()

    def own_options(self) -> dict[str, Any]:
        return {"explicit": self.explicit, "arbiter": self.arbitration.name.lower()}

    def arbiter(self) -> Arbiter:
        return self.arbitration

    def reads(self, field: str) -> bool:
        return super().reads(field) and (field == "collective.cache" or not field.startswith("collective."))

    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        cluster, launches = fused_cluster(
            *(self.preset.machine, self.source, self.chunks, self.arbitration),
            explicit=self.explicit,
            own=self.own,
            interval_ps=self.interval_ps,
        )
        return run_cluster(cluster, launches, self.source.info.name, progress, save_points)


@dataclass(frozen=True, kw_only=True)
class SideBySideRun(GpusRun):
    """A GEMM and a collective of other data of the same shape at the same time, on disjoint sets of CUs.

    Attributes:
        kind: of the collective.
        collective_cus: number of CUs of the collective; the GEMM has the others.

    The figures `gemm_end_ps` and `collective_end_ps` are the ends of the last warps.
    """

    kind: str
    collective_cus: int

    @property
    def title(self) -> str:
        return f"{self.source.info.name} beside a {self.kind} on {self.collective_cus} CUs, {self.preset.name}"

    @property
    def cost(self) -> float:
        return gemm_cost(self.source) + COLLECTIVES[self.kind].requests * self.source.problem.output_bytes / LINE_BYTES

    def input(self) -> dict[str, Any]:
        return gemm_input(self.source) | {"collective": self.kind} | self._gpus_input()

    def own_options(self) -> dict[str, Any]:
        return {"collective_cus": self.collective_cus}

    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        machine, source, kind = self.preset.machine, self.source, self.kind
        count = machine.cu.count
        if not 1 <= self.collective_cus < count:
            raise UserError(f"collective CUs: found {self.collective_cus}, allowed are 1 to {count - 1}")
        output, split = source.output_tiles(), count - self.collective_cus
        output["address"] += 1 << 42  # another buffer of the same shape
        gemm = Launch(source, 0, (0, split), start_ps=machine.dispatch.launch_ps)
        cluster, launches = plan_cluster(
            *(machine, collective_plans(machine, kind, output, self.chunks)),
            lambda plan: [gemm, collective_launch(machine, kind, plan, 1, (split, count))],
            explicit=False,
            interval_ps=self.interval_ps,
        )
        name = f"{source.info.name} beside {kind}"
        result = run_cluster(cluster, launches, name, progress, save_points)
        ends_ps = cluster.gpus[0].node.cus["last_exit_ps"]
        result.figures |= {"gemm_end_ps": int(ends_ps[:split].max()), "collective_end_ps": int(ends_ps[split:].max())}
        return result
