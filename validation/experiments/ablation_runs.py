"""The fused GEMM (T3) without some of its traffic. Only the plans differ; the units of the machine are the same.

T3 adds three kinds of traffic to the reads of a GEMM: its own updates, arriving updates, and reads of the DMA engines.
The maps of a GPU and of the GPU behind it in the ring decide which kinds that GPU has. So one ring of N simulated GPUs
with different maps shows several variants. The GEMM sends its stores of the first chunk over the link, as in T3, in all
variants but `arriving_dma`.

    own               no updates arrive; no tile is forwarded
    own_dma           no updates arrive; a tile is forwarded when its own updates are complete
    own_arriving      the GPU behind is an `own_dma`, so updates arrive as in T3; no tile is forwarded
    every             T3, behind an `own_dma`. In `t3` the neighbour runs in step; here it does not
    arriving_dma      the GPU behind is an `every`; arriving tiles are forwarded when they are complete. The GEMM stores
                      into another buffer with plain stores through L2, as it does alone

The other GPUs of the ring run no kernel. They receive the traffic that arrives.
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
from sim.run.launches import first_stage, staggered_launch
from sim.run.many_gpus import replace_unit
from sim.scenario.scenario import Scenario
from sim.spec import Arbiter, Topology
from tracer.gemm.source import GemmSource
from traces.errors import UserError
from validation.experiments.experiment import FiguresRun

OTHER_BUFFER = 1 << 42
"""Offset in bytes, far from the output; `sim.run.gpus_run.SideBySideRun` uses the same."""


@dataclass(frozen=True)
class Variant:
    """The kinds of T3 traffic that a GPU has besides the reads of its GEMM.

    Attributes:
        own: near-memory updates of its GEMM.
        arriving: updates from the GPU behind.
        dma: reads of the DMA engines, for tiles that are forwarded.
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
"""Variants of GPUs 0, 1, ...; None = no kernel. The remaining GPUs run no kernel either."""
LEAST_GPUS = 5
"""In a smaller ring, traffic of the last variant would reach the first one."""


@dataclass(frozen=True, kw_only=True)
class RingRun(FiguresRun):
    """The run of one of RINGS for a sub-layer.

    Attributes:
        scenario: the sub-layer.
        ring: index in RINGS.
    """

    scenario: Scenario
    ring: int

    def input(self) -> dict[str, Any]:
        return {"ring": self.ring, "t3": self.scenario.run("t3").key}

    def figures(self) -> dict[str, float]:
        """`<variant>/...` for each variant in the ring."""
        simulated = simulate_ring(self.scenario, RINGS[self.ring])
        return {f"{name}/{key}": value for name, figures in simulated.items() for key, value in figures.items()}


def ring_runs(scenario: Scenario) -> list[RingRun]:
    """One run for each of RINGS."""
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
    """Name of each variant in the ring -> figures of its GPU: times in ps, bytes per stream, bytes on its links.

    Raises:
        UserError: too few GPUs, or a topology that is not a ring.
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
    cluster.watch_first_stage([first_stage(plan, machine.dispatch) for plan in plans], start_ps)
    cluster.run([_launches(scenario, plan, role, start_ps) for plan, role in zip(plans, roles, strict=True)])
    names = {variant: name for name, variant in VARIANTS.items()}
    return {names[role]: _figures(gpu) for role, gpu in zip(roles, cluster.gpus, strict=True) if role}


def variant_regions(variant: Variant | None, chunks: Chunks, gpu: int) -> list[Region]:
    """The map of the tiles of a GPU."""
    if variant is None:
        return [Region(0, chunks.tiles)]
    last = chunks.gpus - 1
    updates = variant.own + variant.arriving
    regions = []
    for local in range(chunks.gpus):
        span = chunks.span(gpu, local)
        if local == 0:  # no other GPU updates this chunk here
            away = Region(span.start, span.stop, to=(1,), op=Op.UPDATE)
            regions.append(away if variant.own else Region(span.start, span.stop))
        else:
            sends = (Send(1),) if variant.dma and local < last else ()
            regions.append(Region(span.start, span.stop, op=Op.UPDATE, expects=updates, sends=sends, chunk=local))
    return regions


def _launches(scenario: Scenario, plan: Plan, variant: Variant | None, start_ps: int) -> list[Launch]:
    """The GEMM, none without a variant. Without own updates it stores into another buffer."""
    if variant is None:
        return []
    source = scenario.source()
    if not variant.own:
        elsewhere = replace(source.problem, c_address=source.problem.c.address + OTHER_BUFFER)
        source = GemmSource(elsewhere, source.kernel)
    return [staggered_launch(source, plan, start_ps)]


def _figures(gpu: Gpu) -> dict[str, int]:
    """Figures of one GPU that is idle again."""
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
