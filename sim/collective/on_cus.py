"""Plans of collectives on CUs, as plain data. There is no timing here.

    reduce_scatter   `update` = the receiver adds near memory (RS + NMC)
    all_gather
    all_reduce       both, one after the other
    all_to_all       each chunk goes to its owner, which keeps the chunks of all GPUs apart
    send             two GPUs swap a half of the buffer
    local_reduce     each GPU adds what its receive buffers hold of its chunk; nothing is sent

A ring passes chunks from GPU to GPU. If any two GPUs have a link, each chunk goes directly to its owner.
`sim.collective.staged` has the plans of libraries, `sim.collective.nvls` those that add and copy in the switch.
"""

import numpy as np

from sim.collective.builder import Builder, with_received
from sim.collective.chunks import Chunks
from sim.collective.kernel import Pieces, in_rounds
from sim.collective.plans import Plan
from sim.collective.space import slot_bytes
from sim.collective.tables import Queue
from sim.collective.topology import AnyTopology, is_direct, port_distances
from sim.hw.request import Op
from sim.hw.space import PEER_BITS
from sim.spec import Topology
from traces.errors import UserError


def steps_queue(plan: Plan) -> Queue:
    """The kernel of a collective on CUs, for the check of its plan: one workgroup for each tile at each receiver.

    A flag stands for the data that the receiver then loads, too.
    """
    gpus, first_flag = plan.chunks.gpus, len(plan.buffers[0].tiles)
    distances = (0, *port_distances(plan.topology, gpus))
    tags, gates, to = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for step in plan.steps:
        address, flag = step.flags or (0, 0)
        flags = [(address, flag - first_flag), (address, flag)] if step.flags else []
        for address, tag in [(step.write, 0), *([step.also] if step.also else []), *flags]:
            stored, far = np.array(step.tiles) + step.tag_offset + tag, distances[address >> PEER_BITS]
            copied = far == gpus and plan.tiles["op"][stored[0]] != Op.COMBINE
            for distance in distances[1:] if copied else (far,):
                tags.append(stored)
                gates.append(np.array(step.gates or [-1] * len(step.tiles)))
                to.append(np.full(len(step.tiles), distance))
    return Queue(plan.gpu, 0, np.concatenate(tags), np.concatenate(gates), to=np.concatenate(to))


def _use_all_links(build: Builder, steps: int) -> None:
    """Cut the last steps, each to another GPU, into tiles and put these in turn if each GPU has a link of its own.

    On a switch the link is shared, and one GPU after the other gets its whole rate.
    """
    if build.topology == Topology.FULLY_CONNECTED:
        sends = build.steps[-steps:]
        build.steps[-steps:] = in_rounds(sends, Pieces(max(len(step.tiles) for step in sends)))


def _add_reduce_scatter(build: Builder, update: bool) -> None:
    chunks, last = build.chunks, build.chunks.gpus - 1
    build.keep_sum()
    if is_direct(build.topology):
        build.arrivals(last, last, 0, True)
        for local in range(last):
            distance = chunks.owner_distance(local)
            to = 0 if update else slot_bytes(distance - 1)
            build.step(local, [0], build.peer(distance) + to, update=update, gated=False)
        _use_all_links(build, last)
        if not update:
            build.step(last, with_received(last), 0)
        return
    received = [] if update else [slot_bytes(0)]
    for local in range(1, chunks.gpus):
        build.arrivals(local, 1, 0, True)
    for local in range(last):
        reads = [0] if local == 0 else [0, *received]
        build.step(local, reads, build.peer(1) + (0 if update else slot_bytes(0)), update=update, gated=local > 0)
    if not update:
        build.step(last, [0, *received], 0)


def _add_all_gather(build: Builder, offset: int) -> None:
    chunks, last = build.chunks, build.chunks.gpus - 1
    for local in range(last):
        build.arrivals(local, 1, offset, False)
    if is_direct(build.topology):
        for distance in range(1, chunks.gpus):
            build.step(last, [0], build.peer(distance), offset=offset, gated=False)
        _use_all_links(build, last)
        return
    build.step(last, [0], build.peer(1), offset=offset, gated=False)
    for local in range(last - 1):
        build.step(local, [0], build.peer(1), offset=offset)


def all_to_all(
    output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices=1, step_ps=0, keeps=True
) -> Plan:
    """All-to-all on CUs, of one GPU. keeps: the chunk that a GPU keeps is copied too.

    Raises:
        UserError: there is no link between some of the GPUs.
    """
    build = Builder(output, chunks, gpu, topology, slices, 1)
    add_messages(build, keeps)
    return build.plan(step_ps)


def add_messages(build: Builder, keeps: bool) -> None:
    """The steps of an all-to-all. keeps: the chunk that a GPU keeps is copied too."""
    chunks, last = build.chunks, build.chunks.gpus - 1
    build.arrivals(last, last, 0, False)
    for local in range(last):
        distance = chunks.owner_distance(local)
        build.step(local, [0], build.to(slot_bytes(distance - 1), distance), gated=False)
        build.tell(distance=distance)
    if keeps:
        build.step(last, [0], slot_bytes(last), gated=False)


def send(output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices=1, step_ps=0) -> Plan:
    """Two GPUs swap one half of the buffer, as two stages of a pipeline do: point to point, both ways at once."""
    if chunks.gpus != 2:
        raise UserError(f"send: found {chunks.gpus} GPUs, allowed are 2")
    return all_to_all(output, chunks, gpu, topology, slices=slices, step_ps=step_ps, keeps=False)


def reduce_scatter(
    output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices=1, step_ps=0, update=False
) -> Plan:
    """Reduce-scatter on CUs, of one GPU. output: OUTPUT_TILE in global order; slices: parts of a chunk, a gate each."""
    build = Builder(output, chunks, gpu, topology, slices, 1)
    _add_reduce_scatter(build, update)
    return build.plan(step_ps)


def local_reduce(output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices=1, step_ps=0) -> Plan:
    """Each GPU adds its own sum and those in its receive buffers, for the chunk that it keeps."""
    build, last = Builder(output, chunks, gpu, topology, slices, 1), chunks.gpus - 1
    build.keep_sum()
    build.step(last, with_received(last), 0, gated=False)
    return build.plan(step_ps)


def all_gather(output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices=1, step_ps=0) -> Plan:
    """All-gather on CUs, of one GPU."""
    build = Builder(output, chunks, gpu, topology, slices, 1)
    _add_all_gather(build, 0)
    return build.plan(step_ps)


def all_reduce(output: np.ndarray, chunks: Chunks, gpu: int, topology: AnyTopology, *, slices=1, step_ps=0) -> Plan:
    """Reduce-scatter and all-gather in one kernel. The tags of the all-gather follow those of the reduce-scatter."""
    build = Builder(output, chunks, gpu, topology, slices, 2)
    _add_reduce_scatter(build, False)
    _add_all_gather(build, chunks.tiles)
    return build.plan(step_ps)
