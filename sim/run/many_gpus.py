"""Plans on several GPUs, and the kernels for them: a collective on CUs, a fused GEMM, any plan.

All GPUs start at time 0 and are idle then. The result has time, traffic and the verdict of the ledger.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from sim.collective import nvls
from sim.collective.check import Limits, check_reduces, follow
from sim.collective.chunks import Chunks
from sim.collective.kernel import CollectiveKernel, joined
from sim.collective.on_cus import (
    all_gather,
    all_reduce,
    all_to_all,
    local_reduce,
    reduce_scatter,
    send,
    steps_queue,
)
from sim.collective.own_plan import OwnPlan
from sim.collective.plans import Plan, check_plans_fit, fused, tell_contributors
from sim.collective.space import check_tracker
from sim.collective.staged import kernels as parts_of
from sim.collective.tables import Queue
from sim.collective.topology import adding_switch, in_one_node, port_distances
from sim.host.cluster import Cluster, can_be_symmetric, walk_alike
from sim.host.gpu import Progress
from sim.host.state import SavePoints, cluster_state, flat_state
from sim.host.window import Launch
from sim.machine.build import QUEUES
from sim.machine.memory import check_plan_memory
from sim.run.cluster_result import cluster_result
from sim.run.launches import first_stage, scattering_launch
from sim.run.result import RunResult
from sim.spec import Arbiter, CollectiveCache, DmaPolicy, Machine
from tracer.gemm.check import check_whole_sectors
from tracer.gemm.source import GemmSource
from traces.errors import UserError
from traces.schema import Cache
from traces.units import period_ps

Kernels = Callable[[Plan], list[Launch]]
"""Function: plan -> kernels of its GPU. Each kernel has its own dispatch queue."""


class Collective(NamedTuple):
    """A collective on CUs.

    Attributes:
        plan: function (output, chunks, gpu, topology, slices, step_ps) -> plan of a GPU.
        requests: line requests per line of the output.
        in_switch: the switch adds, or copies to all.
    """

    plan: Callable[..., Plan]
    requests: float
    in_switch: bool = False


COLLECTIVES = {
    "reduce_scatter": Collective(reduce_scatter, 2.0),
    "all_gather": Collective(all_gather, 1.0),
    "all_reduce": Collective(all_reduce, 3.0),
    "all_to_all": Collective(all_to_all, 2.0),
    "send_recv": Collective(send, 2.0),
    "local_reduce": Collective(local_reduce, 1.0),
    nvls.REDUCE_SCATTER: Collective(nvls.reduce_scatter, 2.0, in_switch=True),
    nvls.ALL_GATHER: Collective(nvls.all_gather, 1.0, in_switch=True),
    nvls.ALL_REDUCE: Collective(nvls.all_reduce, 3.0, in_switch=True),
}


def run_plan(
    machine: Machine,
    plans: Sequence[Plan],
    kernels: Kernels,
    *,
    name: str = "plan",
    explicit: bool = True,
    interval_ps: int = 0,
    progress: Progress | None = None,
    save_points: SavePoints | None = None,
) -> RunResult:
    """Run kernels on many GPUs, with a plan for the buffers of each GPU.

    Args:
        plans: of every GPU, in order (`sim.collective.plans`, `sim.collective.patterns`).
        kernels: a function that gives the kernels of the GPU of a plan.
        name: name of the workload in the result.
        explicit: simulate every GPU; else one GPU represents all where that is exact.
        save_points: where the state can be saved.

    Raises:
        UserError: a contribution that is lost, counted twice or never arrives; a Tracker that is too small.
        DeadlockError: no unit can make progress and work is left.
    """
    cluster, launches = plan_cluster(machine, plans, kernels, explicit=explicit, interval_ps=interval_ps)
    return run_cluster(cluster, launches, name, progress, save_points)


def plan_cluster(
    machine: Machine,
    plans: Sequence[Plan],
    kernels: Kernels,
    *,
    explicit: bool = True,
    interval_ps: int = 0,
    stands_for_all: int = 0,
) -> tuple[Cluster, list[list[Launch]]]:
    """The GPUs of `run_plan` before the run, and the kernels of each.

    Args:
        stands_for_all: number of the GPU that is simulated, where one GPU represents all.
    """
    check_plans_fit(plans)
    for plan in plans:
        check_tracker(machine, plan.tiles)
    queues = [queue for plan in plans for queue in queues_of(plan, kernels)]
    flow = follow([plan.regions for plan in plans], plans[0].buffers, queues, limits_of(machine))
    tell_contributors(plans, flow)
    gpus = plans[0].chunks.gpus
    distances = port_distances(plans[0].topology, gpus)
    alike = not explicit and in_one_node(machine, gpus) and can_be_symmetric(plans[0], distances) and walk_alike(plans)
    simulated = [plans[stands_for_all]] if alike else plans
    cluster = Cluster(machine, simulated, symmetric=alike, interval_ps=interval_ps)
    return cluster, [_in_queues(kernels(plan)) for plan in cluster.plans]


def _in_queues(launches: list[Launch]) -> list[Launch]:
    """The kernels, after a check that each has its own dispatch queue."""
    numbers = [launch.queue for launch in launches]
    if len(set(numbers)) < len(numbers) or not set(numbers) <= set(range(QUEUES)):
        raise UserError(f"dispatch queues: found {numbers}, allowed are 0 to {QUEUES - 1}, each once")
    return launches


def limits_of(machine: Machine) -> Limits:
    """The limits of a machine that can make a plan wait."""
    tracker = machine.tracker
    ways = tracker.ways if tracker.entries else 0
    return Limits(max(1, tracker.entries // tracker.ways), ways, machine.dma.policy == DmaPolicy.CHUNK)


def queues_of(plan: Plan, kernels: Kernels) -> list[Queue]:
    """The dispatch queues of a GPU, for the check of its plan; for a collective on CUs, the queue of its steps."""
    if plan.steps:
        return [steps_queue(plan)]
    queues = []
    for launch in _in_queues(kernels(plan)):
        workgroups = launch.source.info.workgroups
        tags = np.arange(workgroups) if launch.tags is None else launch.tags
        gates = np.full(workgroups, -1) if launch.gates is None else launch.gates
        queues.append(Queue(plan.gpu, launch.queue, tags, gates, plan.chunks.start_tile(plan.gpu)))
    return queues


def collective_plans(
    machine: Machine, kind: str, output: np.ndarray, chunks: Chunks, update: bool = False, own: OwnPlan | None = None
) -> list[Plan]:
    """Plans of a collective for all GPUs. Narrow tiles are joined (`sim.collective.kernel.joined`).

    Raises:
        UserError: receivers shall load.
    """
    output, chunks = joined(output, chunks)
    check_plan_memory(chunks.tiles, chunks.gpus)
    spec = machine.collective
    if spec.pulls:
        raise UserError("collective.pulls: found true, allowed is false: kernels of the T3 paper store to the receiver")
    settings: dict = {"slices": spec.slices, "step_ps": spec.step_ps}
    if update:
        settings["update"] = True
    collective = COLLECTIVES[kind]
    topology = adding_switch(machine, chunks.gpus) if collective.in_switch else own or machine.link.topology
    return [collective.plan(output, chunks, gpu, topology, **settings) for gpu in range(chunks.gpus)]


def collective_launch(
    machine: Machine, kind: str, plan: Plan, queue: int, cus: tuple[int, int], slice_ps: int | None = None
) -> Launch:
    """The kernel of a collective on one GPU.

    slice_ps: None: a step begins `collective.step_ps` after its data. Else a workgroup is what a channel of a library
    does in a slice of a step: whole tiles, after this time of software. The workgroups of a CU, one after the other,
    stand for one that lasts as long as the collective.
    """
    spec = machine.collective
    kernel = CollectiveKernel(
        kind,
        plan.tiles[: plan.chunks.tiles],
        plan.steps,
        warps=spec.warps,
        unroll=spec.unroll,
        lanes=machine.cu.lanes_per_warp,
        cache=Cache.UNCACHED if spec.cache == CollectiveCache.UNCACHED else Cache.BYPASS_L1,
        shared_bytes=spec.shared_bytes,
        software_clk=None if slice_ps is None else round(slice_ps / period_ps(machine.cu.clock_MHz)),
    )
    start_ps = spec.launch_ps + (spec.step_ps if slice_ps is None else 0)
    return Launch(kernel, queue, cus, spec.workgroups, True, True, kernel.tags, kernel.gates, start_ps)


def collective_cus(machine: Machine, kind: str) -> tuple[int, int]:
    """First and end of the CUs of a collective.

    Raises:
        UserError: one CU for the two halves of an all-reduce in the switch.
    """
    cus = min(machine.collective.cus, machine.cu.count)
    if kind == nvls.ALL_REDUCE and cus < 2:
        raise UserError(f"collective.cus: found {cus}, allowed for NVLS are 2 and more: half of them copy sums")
    return 0, cus


def collective_launches(machine: Machine, kind: str, plan: Plan, cus: tuple[int, int]) -> list[Launch]:
    """The kernel of a collective. Of an all-reduce in the switch one half of the CUs sends, one copies the sums."""
    if kind != nvls.ALL_REDUCE:
        return [collective_launch(machine, kind, plan, 0, cus)]
    parts = [replace(plan, steps=steps) for steps in parts_of(plan.steps) if steps]
    halves = (cus[0], cus[1] // 2), (cus[1] // 2, cus[1])
    own = enumerate(zip(parts, halves, strict=True))
    return [collective_launch(machine, kind, part, queue, half) for queue, (part, half) in own]


def fused_cluster(
    machine: Machine,
    source: GemmSource,
    chunks: Chunks,
    arbiter: Arbiter,
    *,
    explicit: bool = False,
    own: OwnPlan | None = None,
    interval_ps: int = 0,
    stands_for_all: int = 0,
) -> tuple[Cluster, list[list[Launch]]]:
    """The GPUs of a fused GEMM (T3), whose stores become a reduce-scatter, and the kernels of each.

    Args:
        stands_for_all: number of the GPU that is simulated, where one GPU represents all.
    """
    machine = replace_unit(machine, hbm={"arbiter": arbiter})
    start_ps = machine.dispatch.launch_ps
    cluster, launches = plan_cluster(
        *(machine, fused_plans(machine, source, chunks, own)),
        lambda plan: [scattering_launch(source, plan, machine.dispatch)],
        explicit=explicit,
        interval_ps=interval_ps,
        stands_for_all=stands_for_all,
    )
    cluster.watch_first_stage([first_stage(plan, machine.dispatch) for plan in cluster.plans], start_ps)
    return cluster, launches


def run_cluster(
    cluster: Cluster,
    launches: list[list[Launch]],
    name: str,
    progress: Progress | None,
    save_points: SavePoints | None,
) -> RunResult:
    """Run the kernels of `plan_cluster`. name: of the workload in the result."""
    if save_points is None:
        cluster.run(launches, progress)
    else:
        state = cluster_state(save_points.state) if save_points.state else None
        cluster.run(launches, progress, lambda: save_points.act(lambda: flat_state(cluster.state())), state)
    return cluster_result(cluster, name, min((launch.start_ps for launch in launches[0]), default=0))


def fused_plans(machine: Machine, source: GemmSource, chunks: Chunks, own: OwnPlan | None) -> list[Plan]:
    """Checked plans of a fused GEMM for all GPUs.

    Raises:
        UserError: a kernel, Tracker or plan with which updates would be lost, counted twice or never forwarded.
    """
    check_kernel_is_tracked(source)
    check_plan_memory(chunks.tiles, chunks.gpus)
    output, granularity = source.output_tiles(), machine.tracker.granularity
    plans = [fused(output, chunks, gpu, own or machine.link.topology, granularity) for gpu in range(chunks.gpus)]
    check_tracker(machine, plans[0].tiles)
    check_reduces([plan.regions for plan in plans], plans[0].buffers[0])
    return plans


def check_kernel_is_tracked(source: GemmSource) -> None:
    """Refuse a kernel that the Tracker cannot track: it identifies tiles by workgroup and counts whole sectors.

    Raises:
        UserError: names the field, its value and what is allowed.
    """
    kernel = source.kernel
    for name, plain in (("split_k", 1), ("persistent", None), ("start_tile", 0)):
        if (value := getattr(kernel, name)) != plain:
            raise UserError(
                f"kernel {name} = {value}: T3 and the overlaps by software cannot follow it: the Tracker counts "
                f"one workgroup per tile (docs/t3.md); leave {name} out"
            )
    check_whole_sectors(source.problem, kernel)


def replace_unit(machine: Machine, **units: dict) -> Machine:
    """A copy of a machine with changed values: replace_unit(m, hbm={"arbiter": ...})."""
    changed = {name: msgspec.structs.replace(getattr(machine, name), **values) for name, values in units.items()}
    return msgspec.structs.replace(machine, **changed)
