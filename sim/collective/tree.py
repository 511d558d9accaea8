"""Plans over a chain of GPUs or a tree of nodes, out of place, through staging buffers. There is no timing here.

    all_reduce   sums go up the tree to GPU 0; the whole sum comes back down
    broadcast    GPU 0 sends its buffer along the ring; each GPU passes it on and keeps a copy

The tree: the GPUs of a node are a chain, whose first GPU is the head; the heads are a binary tree. NCCL has two such
trees, each for half of the data, so that no GPU is in the middle of both; here is one (D51). Traffic of an all-reduce
of S bytes for a GPU with c children: S up (not GPU 0) and c S down. A GPU with more than one child reads what it sends
once for each.
"""

import numpy as np

from sim.collective.builder import Builder, with_received
from sim.collective.chunks import Chunks
from sim.collective.kernel import Pieces, Step, in_rounds
from sim.collective.plans import Plan
from sim.collective.space import slot_bytes
from sim.collective.topology import AnyTopology

MOST_CHILDREN = 3
"""A head: the next GPU of its chain, and two heads."""
DOWN, RESULT = slot_bytes(MOST_CHILDREN), slot_bytes(MOST_CHILDREN + 1)


def parent_of(gpu: int, per_node: int) -> int | None:
    """The GPU to which a GPU sends its sum; None for GPU 0."""
    if gpu % per_node:
        return gpu - 1
    node = gpu // per_node
    return (node - 1) // 2 * per_node if node else None


def children_of(gpu: int, per_node: int, gpus: int) -> list[int]:
    return [other for other in range(1, gpus) if parent_of(other, per_node) == gpu]


def _peer(build: Builder, gpu: int) -> int:
    return build.peer((gpu - build.gpu) % build.chunks.gpus)


def all_reduce(
    output: np.ndarray,
    buffer: Chunks,
    gpu: int,
    topology: AnyTopology,
    *,
    per_node: int,
    pieces: Pieces,
) -> Plan:
    """An all-reduce of one GPU. The tags of the way down follow those of the way up; each is a kernel (`both_ways`).

    buffer: a `WholeBuffer`.
    """
    build = Builder(output, buffer, gpu, topology, pieces.count, 2)
    children, parent, down = children_of(gpu, per_node, buffer.gpus), parent_of(gpu, per_node), buffer.tiles
    _go_up(build, children, parent, per_node)
    if parent is not None:
        build.arrivals(gpu, 1, down, False)
        reads, waits = [DOWN], down
    else:
        build.counts.final[:down] = 1
        reads, waits = with_received(len(children)), 0
    for child in children:
        build.step(gpu, reads, _peer(build, child) + DOWN, offset=down, waits=waits)
    build.step(gpu, reads, RESULT, offset=down, waits=waits)
    build.steps = in_rounds(build.steps, pieces)
    return build.plan()


def _go_up(build: Builder, children: list[int], parent: int | None, per_node: int) -> None:
    """What a GPU does on the way up: add what its children send, send the sum to its parent."""
    if children:
        build.arrivals(build.gpu, len(children), 0, True)
    if parent is None:
        return
    place = children_of(parent, per_node, build.chunks.gpus).index(build.gpu)
    reads = with_received(len(children))
    build.step(build.gpu, reads, _peer(build, parent) + slot_bytes(place), gated=bool(children))


def both_ways(plan: Plan) -> list[list[Step]]:
    """The steps of an all-reduce on the way up and on the way down."""
    up = [step for step in plan.steps if step.tag_offset == 0]
    return [up, [step for step in plan.steps if step.tag_offset]]


def broadcast(output: np.ndarray, buffer: Chunks, gpu: int, topology: AnyTopology, *, pieces: Pieces) -> Plan:
    """A broadcast of one GPU, from GPU 0 along the ring. buffer: a `WholeBuffer`."""
    build = Builder(output, buffer, gpu, topology, pieces.count, 1)
    if gpu:
        build.arrivals(gpu, 1, 0, False)
    read, gated = (DOWN if gpu else 0), gpu > 0
    if gpu == buffer.gpus - 1:
        build.step(gpu, [read], RESULT, gated=gated)
    else:
        build.step(gpu, [read], build.peer(1) + DOWN, gated=gated, also=(RESULT, 0))
    build.steps = in_rounds(build.steps, pieces)
    return build.plan()
