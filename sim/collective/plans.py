"""Plans: what each GPU does in a collective, as plain data. No timing.

    fused            a GEMM whose stores become a reduce-scatter (T3): regions of its output
    reduce_scatter   on CUs; `update` = the receiver adds near memory (RS + NMC)
    all_gather       on CUs
    all_reduce       both, one after the other

A ring passes chunks from GPU to GPU; where any two GPUs have a link, each chunk goes straight to its owner.
Steps and chunks are those of `sim.collective.chunks`. `Counts` is what the ledger must find.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sim.collective.chunks import Chunks
from sim.collective.kernel import Step, segments
from sim.collective.own_plan import OwnPlan
from sim.collective.space import Region, make_gates, make_tiles, map_regions
from sim.collective.topology import AnyTopology, is_direct, port_to
from sim.hw.space import BUFFER_BITS, BUFFER_SKEW_BYTES, PEER_BITS, Map
from sim.spec import Granularity


@dataclass
class Counts:
    """How often each byte of each tag must have been counted; i8 [tags].

    Attributes:
        local: updates or final writes from this GPU.
        arrived: updates or writes from others.
        sent: packets that left.
        triggers: of the Tracker.
        final: 1 where this GPU owns the sum of all.
    """

    local: np.ndarray
    arrived: np.ndarray
    sent: np.ndarray
    triggers: np.ndarray
    final: np.ndarray

    @classmethod
    def none(cls, tags: int) -> "Counts":
        return cls(*(np.zeros(tags, np.int64) for _ in range(5)))


@dataclass
class Plan:
    """What one GPU does.

    Attributes:
        gpu, chunks, topology: who, in what.
        tiles: TILE [tags].
        gates: GATE.
        steps: of the collective kernel, empty for a fused one.
        regions: of the output, empty for a kernel on CUs.
        counts: what the ledger must find.
    """

    gpu: int
    chunks: Chunks
    topology: AnyTopology
    tiles: np.ndarray
    gates: np.ndarray
    counts: Counts
    steps: list[Step] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)


def fused_regions(
    chunks: Chunks, gpu: int, topology: AnyTopology, granularity: Granularity = Granularity.WORKGROUP
) -> list[Region]:
    """T3: the first chunk leaves with the stores, the others as DMA updates once complete; the last one stays.

    A user's plan says itself where each goes, and in what pieces.
    """
    if isinstance(topology, OwnPlan):
        return topology.fused_regions(chunks, gpu)
    last = chunks.gpus - 1
    regions = []
    for local in range(chunks.gpus):
        span = chunks.span(gpu, local)
        if is_direct(topology):  # straight to the owner
            kind = Map.FINAL if local == last else Map.REMOTE
            region = Region(span.start, span.stop, kind, chunks.owner_distance(local), chunks.gpus)
        elif local == 0:
            region = Region(span.start, span.stop, Map.REMOTE, 1)
        else:
            kind = Map.FINAL if local == last else Map.DMA
            region = Region(span.start, span.stop, kind, 1, 2, chunk=local, granularity=granularity)
        regions.append(region)
    return regions


def fused(
    output: np.ndarray,
    chunks: Chunks,
    gpu: int,
    topology: AnyTopology,
    granularity: Granularity = Granularity.WORKGROUP,
) -> Plan:
    """T3's plan of one GPU. output: OUTPUT_TILE in global order; granularity: of what DMA engines send on."""
    return mapped(output, chunks, gpu, topology, fused_regions(chunks, gpu, topology, granularity))


def mapped(output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, regions: list[Region]) -> Plan:
    """The plan of one GPU whose output is mapped by regions, and what a ledger must find where it stores all of it.

    Args:
        output: OUTPUT_TILE in global order.
    """
    tiles = make_tiles(output)
    map_regions(tiles, regions, topology, chunks.gpus)
    counts = Counts.none(len(tiles))
    for region in regions:
        span = slice(region.first, region.end)
        stays = region.map in (Map.DMA, Map.FINAL)
        counts.local[span] = stays
        counts.arrived[span] = region.updates - 1 if stays else 0
        counts.sent[span] = region.map != Map.FINAL
        counts.triggers[span] = stays
        counts.final[span] = region.map == Map.FINAL
    return Plan(gpu, chunks, topology, tiles, make_gates([], 0), counts, regions=regions)


class _Builder:
    """Collects steps, gates and counts of a collective on CUs."""

    def __init__(self, output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, slices: int, phases: int):
        self.chunks, self.gpu, self.topology, self.slices = chunks, gpu, topology, slices
        self.tiles = np.tile(make_tiles(output), phases)
        self.counts = Counts.none(len(self.tiles))
        self.needed: list[int] = []
        self.steps: list[Step] = []

    def peer(self, distance: int) -> int:
        """Window to the memory of the GPU that far ahead."""
        return (1 + port_to(self.topology, self.chunks.gpus, distance)) << PEER_BITS

    def arrivals(self, local: int, times: int, offset: int) -> None:
        """Tiles of a chunk arrive `times` times; what waits for them waits for a whole slice."""
        span = self.chunks.span(self.gpu, local)
        self.counts.arrived[offset + span.start : offset + span.stop] = times
        together = segments(self.tiles[: self.chunks.tiles], span)
        for share in np.array_split(np.arange(len(together)), min(self.slices, len(together))):
            first, count = together[share[-1]]
            part = slice(offset + together[share[0]][0], offset + first + count)
            self.tiles["gate"][part] = len(self.needed)
            self.needed.append(int(self.tiles["bytes"][part].sum()) * times)

    def step(self, local: int, reads: Sequence[int], write: int, *, update=False, offset=0, gated=True) -> None:
        span = self.chunks.span(self.gpu, local)
        gates = tuple(self.tiles["gate"][offset + span.start : offset + span.stop].tolist()) if gated else ()
        self.steps.append(Step(span, tuple(reads), write, update, offset, gates))
        counted = slice(offset + span.start, offset + span.stop)
        if write >> PEER_BITS:
            self.counts.sent[counted] += 1
        else:
            self.counts.local[counted] += 1

    def plan(self, step_ps: int) -> Plan:
        gates = make_gates(self.needed, step_ps)
        return Plan(self.gpu, self.chunks, self.topology, self.tiles, gates, self.counts, self.steps)


def _receive(number: int) -> int:
    """Address offset of a receive buffer."""
    return (1 + number) * ((1 << BUFFER_BITS) + BUFFER_SKEW_BYTES)


def _add_reduce_scatter(build: _Builder, update: bool) -> None:
    chunks, last = build.chunks, build.chunks.gpus - 1
    build.tiles["map"][: chunks.tiles] = Map.SUM
    own = chunks.span(build.gpu, last)
    build.counts.final[own.start : own.stop] = 1
    if is_direct(build.topology):
        build.arrivals(last, last, 0)
        for local in range(last):
            distance = chunks.owner_distance(local)
            to = 0 if update else _receive(distance - 1)
            build.step(local, [0], build.peer(distance) + to, update=update, gated=False)
        if not update:
            build.step(last, [0, *(_receive(number) for number in range(last))], 0)
        return
    received = [] if update else [_receive(0)]
    for local in range(1, chunks.gpus):
        build.arrivals(local, 1, 0)
    for local in range(last):
        reads = [0] if local == 0 else [0, *received]
        build.step(local, reads, build.peer(1) + (0 if update else _receive(0)), update=update, gated=local > 0)
    if not update:
        build.step(last, [0, *received], 0)


def _add_all_gather(build: _Builder, offset: int, after_reduction: bool) -> None:
    chunks, last = build.chunks, build.chunks.gpus - 1
    build.tiles["map"][offset : offset + chunks.tiles] = Map.COPY
    for local in range(last):
        build.arrivals(local, 1, offset)
    if is_direct(build.topology):
        for distance in range(1, chunks.gpus):
            build.step(last, [0], build.peer(distance), offset=offset, gated=False)
        return
    build.step(last, [0], build.peer(1), offset=offset, gated=False)
    for local in range(last - 1):
        build.step(local, [0], build.peer(1), offset=offset)
    assert after_reduction or offset == 0


def reduce_scatter(
    output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices=1, step_ps=0, update=False
) -> Plan:
    """Reduce-scatter on CUs, of one GPU. output: OUTPUT_TILE in global order; slices: of a chunk, gated each."""
    build = _Builder(output, chunks, gpu, topology, slices, 1)
    _add_reduce_scatter(build, update)
    return build.plan(step_ps)


def all_gather(output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices=1, step_ps=0) -> Plan:
    """All-gather on CUs, of one GPU."""
    build = _Builder(output, chunks, gpu, topology, slices, 1)
    _add_all_gather(build, 0, False)
    return build.plan(step_ps)


def all_reduce(output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices=1, step_ps=0) -> Plan:
    """Reduce-scatter and all-gather in one kernel: tags of the second begin behind those of the first."""
    build = _Builder(output, chunks, gpu, topology, slices, 2)
    _add_reduce_scatter(build, False)
    _add_all_gather(build, chunks.tiles, True)
    return build.plan(step_ps)
