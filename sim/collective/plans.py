"""Plans: the actions of each GPU in a collective, as plain data. There is no timing here.

    fused     a GEMM whose stores become a reduce-scatter (T3): regions of its output
    planned   any plan that regions describe (`sim.collective.patterns` has examples)

`sim.collective.on_cus` has the plans of collectives on CUs. `sim.collective.chunks` defines steps and chunks. `Counts`
are the values that the ledger expects.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sim.collective.check import Flow
from sim.collective.chunks import Chunks
from sim.collective.kernel import Step
from sim.collective.own_plan import OwnPlan
from sim.collective.space import (
    OUTPUT,
    Buffer,
    Region,
    Send,
    first_tags,
    make_gates,
    map_regions,
)
from sim.collective.topology import AnyTopology, is_direct
from sim.hw.request import Op
from sim.hw.space import PEER_BITS, SEND, contributor_weight, share_weight
from sim.spec import Granularity
from traces.errors import UserError


@dataclass
class Counts:
    """How often each byte of each tag must be counted, and from which GPUs; i8 [tags].

    Attributes:
        local: updates, tracked stores or final writes of this GPU.
        arrived: updates or writes of other GPUs.
        sent: times that it leaves for other GPUs.
        triggers: triggers of the Tracker.
        final: 1 if this GPU keeps the sum.
        local_weight: weight of the shares in all local data.
        arrived_weight: weight of the contributors in all arriving data.
        contributors: set of GPUs whose contributions arrive: bit k = the k-th before this one.
    """

    local: np.ndarray
    arrived: np.ndarray
    sent: np.ndarray
    triggers: np.ndarray
    final: np.ndarray
    local_weight: np.ndarray
    arrived_weight: np.ndarray
    contributors: np.ndarray

    @classmethod
    def none(cls, tags: int) -> "Counts":
        return cls(*(np.zeros(tags, np.int64) for _ in range(8)))


@dataclass
class Plan:
    """The actions of one GPU.

    Attributes:
        gpu, chunks, topology: number of the GPU, chunks of the output, links.
        tiles: TILE [tags].
        gates: GATE records.
        counts: values that the ledger expects.
        steps: steps of the collective kernel, empty for other kernels.
        regions: regions of the buffers.
        buffers: buffers; the tags are their tiles, one buffer after the other.
        sends: SEND records.
    """

    gpu: int
    chunks: Chunks
    topology: AnyTopology
    tiles: np.ndarray
    gates: np.ndarray
    counts: Counts
    steps: list[Step] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    buffers: tuple[Buffer, ...] = ()
    sends: np.ndarray = field(default_factory=lambda: np.zeros(0, SEND))

    @property
    def loads(self) -> bool:
        """Does its kernel load from other GPUs?"""
        return any(read >> PEER_BITS for step in self.steps for read in step.reads)

    @property
    def first_entry(self) -> int:
        """First tag of the walk for the Tracker: the first tile of the kernel of the tracked buffer."""
        start = self.chunks.start_tile(self.gpu)
        for buffer, first in zip(self.buffers, first_tags(self.buffers).values(), strict=True):
            if self.tiles["entry"][first : first + len(buffer.tiles)].any():
                return first + start % len(buffer.tiles)
        return start

    def place(self, tag: int) -> tuple[str, int]:
        """Buffer and tile of a tag."""
        for buffer, first in zip(reversed(self.buffers), reversed(first_tags(self.buffers).values()), strict=True):
            if tag >= first:
                return buffer.name, tag - first
        return OUTPUT, tag


def fused_regions(
    chunks: Chunks, gpu: int, topology: AnyTopology, granularity: Granularity = Granularity.WORKGROUP
) -> list[Region]:
    """T3: the first chunk leaves with the stores. The others leave as DMA updates when complete. The last chunk stays.

    A user's plan gives its own regions.
    """
    if isinstance(topology, OwnPlan):
        return topology.fused_regions(chunks, gpu)
    last = chunks.gpus - 1
    regions = []
    for local in range(chunks.gpus):
        span = chunks.span(gpu, local)
        if is_direct(topology) and local < last:  # directly to the owner
            region = Region(span.start, span.stop, to=(chunks.owner_distance(local),), op=Op.UPDATE)
        elif is_direct(topology):
            region = Region(span.start, span.stop, op=Op.UPDATE, expects=chunks.gpus)
        elif local == 0:
            region = Region(span.start, span.stop, to=(1,), op=Op.UPDATE)
        else:
            sends = (Send(1),) if local < last else ()
            region = Region(
                *(span.start, span.stop), op=Op.UPDATE, expects=2, sends=sends, chunk=local, granularity=granularity
            )
        regions.append(region)
    return regions


def fused(
    output: np.ndarray,
    chunks: Chunks,
    gpu: int,
    topology: AnyTopology,
    granularity: Granularity = Granularity.WORKGROUP,
) -> Plan:
    """T3's plan of one GPU. output: OUTPUT_TILE in global order; granularity: unit that DMA engines send."""
    return mapped(output, chunks, gpu, topology, fused_regions(chunks, gpu, topology, granularity))


def mapped(output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, regions: list[Region]) -> Plan:
    """The plan of one GPU with one buffer, the output of its kernel. output: OUTPUT_TILE in global order."""
    return planned([Buffer(OUTPUT, output)], chunks, gpu, topology, regions)


def planned(
    buffers: Sequence[Buffer],
    chunks: Chunks,
    gpu: int,
    topology: AnyTopology,
    regions: Sequence[Region],
    gate_delay_ps: int = 0,
) -> Plan:
    """The plan of one GPU that regions describe, and the values that the ledger expects for it.

    Args:
        buffers: buffers of the plan; `chunks` cuts the first of them.
        gate_delay_ps: time from the opening of a gate to the start of the workgroups that wait for it.

    Raises:
        UserError: see `sim.collective.space.map_regions`.
    """
    tiles, sends = map_regions(buffers, regions, topology, chunks.gpus)
    counts, first = Counts.none(len(tiles)), first_tags(buffers)
    gates = [0] * (1 + max((region.gate for region in regions if region.gate is not None), default=-1))
    for region in regions:
        span = slice(first[region.buffer] + region.first, first[region.buffer] + region.end)
        shares = next(buffer.shares for buffer in buffers if buffer.name == region.buffer)
        local = shares if region.stays and not region.plain else 0
        counts.local[span] = local
        counts.local_weight[span] = sum(share_weight(share) for share in range(local))
        counts.arrived[span] = max(0, region.comes - local)
        counts.sent[span] = len(region.leaves) * shares + len(region.sends)
        counts.triggers[span] = region.expects > 0 and not region.polled
        counts.final[span] = region.expects > 0 and not region.sends
        if region.gate is not None:
            gates[region.gate] += int(tiles["bytes"][span].sum()) * (region.comes if region.polled else 1)
    plan = Plan(gpu, chunks, topology, tiles, make_gates(gates, gate_delay_ps), counts)
    plan.regions, plan.buffers, plan.sends = list(regions), tuple(buffers), sends
    return plan


def check_plans_fit(plans: Sequence[Plan]) -> None:
    """Refuse plans that are not the plans of all GPUs of one run.

    Raises:
        UserError: a plan is missing, or GPUs have different buffers.
    """
    gpus = plans[0].chunks.gpus
    if [plan.gpu for plan in plans] != list(range(gpus)):
        raise UserError(f"plans: found those of GPUs {[plan.gpu for plan in plans]}, allowed is one for each of {gpus}")
    for plan in plans:
        alike = len(plan.buffers) == len(plans[0].buffers) and all(
            (one.name, one.shares, one.queue) == (other.name, other.shares, other.queue)
            and np.array_equal(one.tiles, other.tiles)
            for one, other in zip(plan.buffers, plans[0].buffers, strict=True)
        )
        if not alike:
            raise UserError(f"plans: GPU {plan.gpu} has other buffers than GPU 0; allowed are the same on all GPUs")


def tell_contributors(plans: Sequence[Plan], flow: Flow) -> None:
    """Write the GPUs whose contributions must arrive at each tile into the counts of all plans."""
    for plan, stored, sent, shares in zip(plans, flow.stored, flow.sent, flow.shares, strict=True):
        executed = np.where(plan.tiles["op"] == Op.COMBINE, 0, np.int64(1) << plan.gpu)  # here, so they do not arrive
        kinds, kind = np.unique([stored & ~executed, sent, shares], axis=1, return_inverse=True)
        sets, weights = np.zeros((2, kinds.shape[1]), np.int64)
        for k, (by_store, by_send, several) in enumerate(kinds.T.tolist()):
            from_stores, from_sends = (_before(one, plan.gpu, len(plans)) for one in (by_store, by_send))
            sets[k] = from_stores | from_sends
            weights[k] = contributor_weight(from_sends)
            with np.errstate(over="ignore"):
                for share in range(several):
                    weights[k] += contributor_weight(from_stores) * np.int64(share_weight(share))
        plan.counts.contributors, plan.counts.arrived_weight = sets[kind], weights[kind]


def _before(gpus: int, gpu: int, count: int) -> np.int64:
    """Convert a set of GPUs (bit k = GPU k) to the view of one GPU (bit k = the k-th before it)."""
    places = sum(1 << (gpu - other) % count for other in range(count) if gpus >> other & 1)
    return np.uint64(places).view(np.int64)
