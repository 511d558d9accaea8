"""The fused GEMM (T3) with some of its traffic left out, by plans alone: no unit of the machine knows of it.

T3 adds three kinds of traffic to the reads of a GEMM: its own updates, updates that arrive, and reads of the DMA
engines. What one GPU gets of them follows from where it and the GPU behind it in the ring map their tiles. So a ring
of N GPUs, every one simulated, in which GPUs do different things, shows the combinations. In each the stores of the
first chunk leave over the link, as in T3, where the GEMM stores as in T3 at all.

    own               nothing arrives; no tile is sent on
    own_dma           nothing arrives; a tile is sent on when its own updates have been counted
    own_arriving      the GPU behind is an `own_dma`, so what arrives comes as T3 sends it; no tile is sent on
    every             T3, behind an `own_dma` too: unlike in `t3` its neighbour is not in step with it
    arriving_dma      the GPU behind is an `every`; what arrives is sent on as soon as it is complete; the GEMM stores
                      into another buffer, plain, through L2, as it does alone

GPUs of the ring that are none of them run nothing and take in what comes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sim.collective.chunks import Chunks
from sim.collective.plans import Plan, mapped
from sim.collective.space import Region, Send
from sim.counters import take, totals
from sim.host.cluster import Cluster
from sim.host.gpu import Gpu
from sim.host.window import Launch
from sim.hw.request import Op, Stream
from sim.run.cluster_result import moved_bytes
from sim.run.many_gpus import replace_unit, staggered_launch
from sim.scenario.scenario import Scenario
from sim.spec import Arbiter, Topology
from tracer.gemm.source import GemmSource
from traces.errors import UserError
from validation.experiments.experiment import FiguresRun

OTHER_BUFFER = 1 << 42
"""Far from the output, as `sim.run.many_gpus.run_side_by_side` has it."""


@dataclass(frozen=True)
class Variant:
    """Which traffic of T3 a GPU has besides the reads of its GEMM.

    Attributes:
        own: near-memory updates by its GEMM.
        arriving: updates from the GPU behind.
        dma: reads of tiles that are sent on.
    """

    own: bool
    arriving: bool
    dma: bool


OWN, OWN_DMA = Variant(own=True, arriving=False, dma=False), Variant(own=True, arriving=False, dma=True)
OWN_ARRIVING = Variant(own=True, arriving=True, dma=False)
ARRIVING_DMA, EVERY = Variant(own=False, arriving=True, dma=True), Variant(own=True, arriving=True, dma=True)
VARIANTS = {
    "own": OWN,
    "own_dma": OWN_DMA,
    "own_arriving": OWN_ARRIVING,
    "arriving_dma": ARRIVING_DMA,
    "every": EVERY,
}
RINGS: tuple[tuple[Variant | None, ...], ...] = ((OWN_DMA, OWN_ARRIVING, None, OWN), (OWN_DMA, EVERY, ARRIVING_DMA))
"""What GPUs 0, 1, ... do, None = nothing, as those behind them."""
LEAST_GPUS = 5
"""With fewer, what leaves one of them would come round to another."""


@dataclass(frozen=True, kw_only=True)
class RingRun(FiguresRun):
    """One of RINGS for a sub-layer.

    Attributes:
        scenario: the sub-layer.
        ring: number of the ring.
    """

    scenario: Scenario
    ring: int

    def input(self) -> dict[str, Any]:
        return {"ring": self.ring, "t3": self.scenario.run("t3").key}

    def modules(self) -> tuple[str, ...]:
        return (__name__,)

    def figures(self) -> dict[str, float]:
        """`<variant>/...` for each variant in the ring."""
        found = simulate_ring(self.scenario, RINGS[self.ring])
        return {f"{name}/{key}": value for name, figures in found.items() for key, value in figures.items()}


def ring_runs(scenario: Scenario) -> list[RingRun]:
    """A simulation per ring."""
    gemm = scenario.run("gemm")
    return [
        RingRun(
            preset=scenario.preset,
            name=f"{gemm.title}, fused with traffic left out",
            requests=gemm.cost * (len(ring) - ring.count(None)),
            scenario=scenario,
            ring=number,
        )
        for number, ring in enumerate(RINGS)
    ]


def simulate_ring(scenario: Scenario, ring: Sequence[Variant | None]) -> dict[str, dict[str, int]]:
    """Name of each variant in the ring -> what its GPU found: times, bytes per stream, bytes on its links.

    Raises:
        UserError: too few GPUs, another topology than a ring.
    """
    machine = replace_unit(scenario.preset.machine, hbm={"arbiter": Arbiter.ROUND_ROBIN})
    if scenario.gpus < LEAST_GPUS or machine.link.topology != Topology.RING:
        raise UserError(f"ablation: found {scenario.gpus} GPUs, allowed are {LEAST_GPUS} and more in a ring")
    chunks, start_ps = scenario.cut(), machine.dispatch.launch_ps
    roles = [*ring, *[None] * (scenario.gpus - len(ring))]
    output = scenario.source().output_tiles()
    plans = [
        mapped(output, chunks, gpu, machine.link.topology, variant_regions(role, chunks, gpu))
        for gpu, role in enumerate(roles)
    ]
    cluster = Cluster(machine, plans)
    cluster.watch_first_stage(chunks.tiles // chunks.gpus, start_ps)
    cluster.run([_launches(scenario, plan, role, start_ps) for plan, role in zip(plans, roles, strict=True)])
    names = {variant: name for name, variant in VARIANTS.items()}
    return {names[role]: _found(gpu) for role, gpu in zip(roles, cluster.gpus, strict=True) if role}


def variant_regions(variant: Variant | None, chunks: Chunks, gpu: int) -> list[Region]:
    """Where the tiles of a GPU are mapped."""
    if variant is None:
        return [Region(0, chunks.tiles)]
    last = chunks.gpus - 1
    updates = variant.own + variant.arriving
    regions = []
    for local in range(chunks.gpus):
        span = chunks.span(gpu, local)
        if local == 0:  # nobody adds to it here
            away = Region(span.start, span.stop, to=(1,), op=Op.UPDATE)
            regions.append(away if variant.own else Region(span.start, span.stop))
        else:
            sends = (Send(1),) if variant.dma and local < last else ()
            regions.append(Region(span.start, span.stop, op=Op.UPDATE, expects=updates, sends=sends, chunk=local))
    return regions


def _launches(scenario: Scenario, plan: Plan, variant: Variant | None, start_ps: int) -> list[Launch]:
    """The GEMM, if there is one; it stores elsewhere if its updates are left out."""
    if variant is None:
        return []
    source = scenario.source()
    if not variant.own:
        elsewhere = replace(source.problem, c_address=source.problem.c.address + OTHER_BUFFER)
        source = GemmSource(elsewhere, source.kernel)
    return [staggered_launch(source, plan, start_ps)]


def _found(gpu: Gpu) -> dict[str, int]:
    """Of one GPU at rest."""
    node = gpu.node
    counted = totals({unit: take(unit, records) for unit, records in gpu.counters().items()})
    kernel_ps = int(node.cus["last_exit_ps"].max())
    return {
        "kernel_ps": kernel_ps,
        "time_ps": max(kernel_ps, int(node.channels["bus_end_ps"].max())),
        **{
            f"dram_bytes/{stream.name.lower()}": int(moved)
            for stream, moved in zip(Stream, moved_bytes(gpu), strict=True)
        },
        "link_bytes": counted["link.bytes"],
        "arrived_bytes": counted["link.arrived_bytes"],
    }
