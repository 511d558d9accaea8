"""The dry run of a plan, without time, tile by tile: every possible action is done until none is left.

Every dispatch queue runs its workgroups one after the other, in order. A machine runs several of them at once. So a
plan that ends here also ends on the machine. A workgroup waits for its gate and, if its tile needs one, for an entry of
the Tracker. A tile is complete with its last contribution. Then it is sent and counts for its gate.
`sim.collective.check` makes the records and writes the messages. In sets, GPUs are numbered from 0 here.
"""

import numpy as np

from tracer.compile.jit import compiled

NODE = np.dtype(
    [
        # a tile on a GPU: fields from the plan
        ("gpu", "i8"),
        ("shares", "i8"),  # workgroups here that store it
        ("stay", "i8"),  # 1: their stores are executed here
        ("own", "i8"),  # 1: the sent data include this GPU's contribution; 0: only if nothing has arrived
        ("alone", "i8"),  # 1: what a collective's kernel sends from it is this GPU's contribution only
        ("expects", "i8"),  # contributions until it is complete, 0 = not tracked
        ("entry", "i8"),  # number of the Tracker's set, -1 = it needs no entry
        ("gate", "i8"),  # -1 = none
        ("chunk", "i8"),  # sent together with all tiles of its chunk, -1 = alone
        ("first_store", "i8"),  # first edge of its stores to other GPUs
        ("first_send", "i8"),  # first edge of its sends
        # state
        ("come", "i8"),  # number of contributions that have come
        ("begun", "i8"),
        ("done", "i8"),
        ("stored", "i8"),  # set of GPUs whose stores have come
        ("sent", "i8"),  # set of GPUs whose contributions DMA engines have brought
        ("doubled", "i8"),  # set of GPUs whose contributions came twice
    ]
)

WORK = np.dtype(
    [
        ("node", "i8"),  # node that the workgroup stores, -1 = none
        ("share", "i8"),
        ("to", "i8"),  # of a collective on CUs: node that gets the sum of its own node; -1 = any other kernel
        ("gate", "i8"),  # gate that it waits for, -1 = none
    ]
)

QUEUE = np.dtype([("next", "i8"), ("end", "i8")])
"""A dispatch queue: its WORK records."""


@compiled
def _give(nodes, ready, to, contributors, share, by_store):
    """Give a contribution to node `to`. Complete nodes wait in `ready`, whose first element is their number."""
    node = nodes[to]
    if share == 0:
        node.doubled |= contributors & (node.stored | node.sent)
    if by_store:
        node.stored |= contributors
    else:
        node.sent |= contributors
    node.come += 1
    if node.expects > 0 and node.come == node.expects:
        ready[0] += 1
        ready[ready[0]] = to


@compiled
def _held(node):
    """Set of GPUs whose contributions are in the sent data of a node."""
    if node.alone == 1:
        return np.int64(1) << node.gpu
    held = node.stored | node.sent
    if node.own == 1 or held == 0:
        held |= np.int64(1) << node.gpu
    return held


@compiled
def _send(nodes, ready, sends, k):
    """Send node k along its edges."""
    for edge in range(nodes[k].first_send, nodes[k + 1].first_send):
        _give(nodes, ready, sends[edge], _held(nodes[k]), 0, False)


@compiled
def _complete(nodes, ready, sends, gate_left, chunk_left, used, k):
    """Node k is complete: free its entry, send it, count it for its gate."""
    node = nodes[k]
    node.done = 1
    if node.begun == 1:
        used[node.entry] -= 1
    if node.gate >= 0:
        gate_left[node.gate] -= 1
    if node.chunk < 0:
        _send(nodes, ready, sends, k)
        return
    chunk_left[node.chunk] -= 1
    if chunk_left[node.chunk] == 0:
        for other in range(len(nodes) - 1):
            if nodes[other].chunk == node.chunk:
                _send(nodes, ready, sends, other)


@compiled
def _store(nodes, ready, stores, work):
    """A workgroup stores its tile, or sends it to another GPU."""
    node = nodes[work.node]
    if work.to >= 0:
        _give(nodes, ready, work.to, _held(node), 0, False)
        return
    own = np.int64(1) << node.gpu
    if node.stay == 1:
        _give(nodes, ready, work.node, own, work.share, True)
    for edge in range(node.first_store, nodes[work.node + 1].first_store):
        _give(nodes, ready, stores[edge], own, work.share, True)


@compiled
def _can_start(nodes, gate_left, used, ways, work):
    """Is the workgroup's gate open, and an entry free for its tile? If so, it takes the entry."""
    if work.gate >= 0 and gate_left[work.gate] > 0:
        return False
    if work.node < 0:
        return True
    node = nodes[work.node]
    if node.entry < 0 or node.begun == 1 or work.to >= 0:
        return True
    if used[node.entry] == ways:
        return False
    used[node.entry] += 1
    node.begun = 1
    return True


@compiled
def _drain(nodes, ready, sends, gate_left, chunk_left, used):
    """Complete all ready nodes, and nodes that become ready because of them."""
    while ready[0] > 0:
        k = ready[ready[0]]
        ready[0] -= 1
        _complete(nodes, ready, sends, gate_left, chunk_left, used, k)


@compiled
def play(nodes, stores, sends, work, queues, gate_left, chunk_left, used, ways, ready):
    """Run the plan until nothing can move.

    Args:
        nodes: NODE [GPUs x tiles + 1]; the last node marks the end of the edges. Their state is written.
        stores, sends: i8 [edges], nodes that stores and DMA engines reach.
        work: WORK; queues: QUEUE, whose `next` is the first workgroup that could not start.
        gate_left: i8 [gates], number of tiles that have not come; chunk_left: i8 [chunks], the same for chunks.
        used: i8 [sets], used entries of the Tracker; ways: entries of a set.
        ready: i8 [nodes + 1], scratch, zero.

    Reads: work. Writes: nodes, queues, gate_left, chunk_left, used, ready.
    """
    for k in range(len(nodes) - 1):
        if nodes[k].expects == 0:
            _send(nodes, ready, sends, k)
    _drain(nodes, ready, sends, gate_left, chunk_left, used)
    moved = True
    while moved:
        moved = False
        for q in range(len(queues)):
            queue = queues[q]
            while queue.next < queue.end and _can_start(nodes, gate_left, used, ways, work[queue.next]):
                if work[queue.next].node >= 0:
                    _store(nodes, ready, stores, work[queue.next])
                    _drain(nodes, ready, sends, gate_left, chunk_left, used)
                queue.next += 1
                moved = True
