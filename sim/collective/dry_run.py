"""A plan played through without time, tile by tile: what can happen does, until everything is done or nothing can.

Every dispatch queue works through its workgroups in order, one after the other, so what ends here ends on the machine,
which only has more of them under way. A workgroup waits for its gate and, where its tile needs one, for an entry of the
Tracker. A tile is complete with the last of its contributions; then it is sent on and counts for its gate.
`sim.collective.check` makes the records and says in words what went wrong. GPUs in sets are numbered from 0 here.
"""

import numpy as np

from tracer.compile.jit import compiled

NODE = np.dtype(
    [
        # a tile on a GPU: from the plan
        ("gpu", "i8"),
        ("shares", "i8"),  # workgroups here that store it
        ("stay", "i8"),  # 1: their stores are done here
        ("own", "i8"),  # 1: what is sent on holds this GPU's contribution, 0: only where nothing has arrived
        ("expects", "i8"),  # contributions until it is complete, 0 = it is not tracked
        ("entry", "i8"),  # number of the Tracker's set, -1 = it needs no entry
        ("gate", "i8"),  # -1 = none
        ("chunk", "i8"),  # sent on with all others of its chunk, -1 = by itself
        ("first_store", "i8"),  # of the edges along which stores leave
        ("first_send", "i8"),  # of the edges along which it is sent on
        # state
        ("come", "i8"),  # contributions
        ("begun", "i8"),
        ("done", "i8"),
        ("stored", "i8"),  # set of GPUs whose stores have come
        ("sent", "i8"),  # set of GPUs whose contributions DMA engines have brought
        ("doubled", "i8"),  # set of those that came again
    ]
)

WORK = np.dtype(
    [
        ("node", "i8"),  # that the workgroup stores, -1 = none
        ("share", "i8"),
        ("to", "i8"),  # of a collective on CUs: node that it sends to what its own holds, -1 = any other kernel
        ("gate", "i8"),  # that it waits for, -1 = none
    ]
)

QUEUE = np.dtype([("next", "i8"), ("end", "i8")])
"""A dispatch queue: its WORK records."""


@compiled
def _give(nodes, ready, to, contributors, share, by_store):
    """A contribution comes to node `to`. Nodes that are complete wait in `ready`, whose first element counts them."""
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
    """Whose contributions are in what is sent of a node."""
    held = node.stored | node.sent
    if node.own == 1 or held == 0:
        held |= np.int64(1) << node.gpu
    return held


@compiled
def _send(nodes, ready, sends, k):
    """Send node k on."""
    for edge in range(nodes[k].first_send, nodes[k + 1].first_send):
        _give(nodes, ready, sends[edge], _held(nodes[k]), 0, False)


@compiled
def _complete(nodes, ready, sends, gate_left, chunk_left, used, k):
    """All contributions to node k have come."""
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
    """Is the workgroup's gate open, and an entry there for its tile? Takes the entry."""
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
    """Complete what is ready, and what becomes so by it."""
    while ready[0] > 0:
        k = ready[ready[0]]
        ready[0] -= 1
        _complete(nodes, ready, sends, gate_left, chunk_left, used, k)


@compiled
def play(nodes, stores, sends, work, queues, gate_left, chunk_left, used, ways, ready):
    """Run the plan until nothing can move.

    Args:
        nodes: NODE [GPUs x tiles + 1]; the last one ends the edges. State is written.
        stores, sends: i8 [edges], nodes that stores and DMA engines reach.
        work: WORK; queues: QUEUE, whose `next` is the first workgroup that could not start.
        gate_left: i8 [gates], tiles that have not come; chunk_left: i8 [chunks] likewise.
        used: i8 [sets] of the Tracker's entries; ways: entries of a set.
        ready: i8 [nodes + 1], scratch, zero.
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
