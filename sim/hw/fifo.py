"""Bounded fifo of requests: the only connection between two hardware units. It has one producer and one consumer.

All fifos of a machine share one pool of request slots. A fifo is a ring of `mask + 1` slots from `first` on. `limit`
is its depth in requests: a producer stops there (back-pressure). The limit is at most the size of the ring.

Room travels as credits. When the consumer takes a request, its producer sees the room `credit_ps` later, never earlier.
The engine's lookahead is at most `credit_ps`. So what a producer sees does not depend on how far its consumer has been
simulated. The time of the credit is kept in the slot of the request that was taken. A fifo without credits
(`credit_ps` 0) has reserved places or a driver that looks at its fill.
"""

import numpy as np

from sim.hw.prefetch import host_aligned
from sim.hw.request import NEVER, REQUEST
from tracer.compile.jit import compiled

FIFO = np.dtype(
    [
        # constants
        ("first", "i8"),  # slot in the pool (not `base`: every numpy scalar has an attribute of that name)
        ("mask", "i4"),  # ring size - 1, a power of two less one
        ("limit", "i4"),  # requests held at most
        ("credit_ps", "i8"),  # from the taking of a request until its producer sees the room, 0 = no credits
        # state
        ("head", "i8"),  # requests taken so far
        ("tail", "i8"),  # requests put so far
        ("claimed", "i8"),  # places promised to requests that come, all requests put included (crossbar only)
        ("origin", "i8"),  # request in the first slot; without credits an empty fifo starts there again (host's cache)
        # counters
        ("fill_max", "i8"),  # most requests held at once
    ]
)


def make_fifos(depths, credits_ps=0):
    """Fifo records and their shared pool.

    Args:
        depths: requests each fifo holds at most, one int per fifo, each >= 1.
        credits_ps: `credit_ps` of each fifo, or of all.

    Returns:
        (fifos, pool): arrays of FIFO (one per depth) and REQUEST.
    """
    fifos = host_aligned(len(depths), FIFO)
    if min(depths, default=1) < 1:
        raise ValueError(f"a fifo must hold at least one request, not {min(depths)}")
    rings = np.array([1 << (int(depth) - 1).bit_length() for depth in depths], np.int64)
    ends = np.cumsum(rings)
    fifos["first"], fifos["mask"], fifos["limit"] = ends - rings, rings - 1, depths
    fifos["credit_ps"] = credits_ps
    return fifos, host_aligned(int(rings.sum()), REQUEST)


@compiled(inline=True)
def fifo_slot(fifo, number):
    """Slot of the pool that holds request `number`, counted over all pushes; numbers from `head` to `tail`.

    Reads: fifo.
    """
    return fifo.first + ((number - fifo.origin) & fifo.mask)


@compiled(inline=True)
def fifo_fill(fifo):
    """Number of requests held, visible or not yet visible. Reads: fifo."""
    return fifo.tail - fifo.head


@compiled(inline=True)
def fifo_full(fifo):
    """Does the fifo hold as many requests as it may? Reads: fifo."""
    return fifo.tail - fifo.head >= fifo.limit


@compiled(inline=True)
def fifo_head_ps(fifo, pool):
    """Time at which the oldest request becomes visible, NEVER if the fifo is empty. Reads: fifo, pool."""
    if fifo.tail == fifo.head:
        return NEVER
    return pool[fifo_slot(fifo, fifo.head)].ready_ps


@compiled(inline=True)
def fifo_head(fifo, pool):
    """The oldest request (a view: use it before the next push). The fifo must not be empty. Reads: fifo."""
    return pool[fifo_slot(fifo, fifo.head)]


@compiled(inline=True)
def fifo_pop(fifo):
    """Remove the oldest request of a fifo without credits. The fifo must not be empty. Writes: fifo."""
    fifo.head += 1


@compiled(inline=True)
def fifo_take(fifo, pool, now_ps):
    """Remove the oldest request at now_ps and send the credit. The fifo must not be empty. Writes: fifo, pool."""
    pool[fifo_slot(fifo, fifo.head)].ready_ps = now_ps + fifo.credit_ps
    fifo.head += 1


@compiled(inline=True)
def fifo_room_ps(fifo, pool, number):
    """When its producer may put request `number`, counted over all pushes.

    Returns:
        The time at which the credit arrives; 0 if no credit is needed; NEVER if the consumer has not been simulated so
        far that the time is known. The credit then arrives after the time window.

    Reads: fifo, pool.
    """
    before = number - fifo.limit
    if before < 0:
        return 0
    if before >= fifo.head:
        return NEVER
    return pool[fifo_slot(fifo, before)].ready_ps


@compiled(inline=True)
def _start_again(fifo):
    """An empty fifo without credits continues in its first slot, which is in the host's cache."""
    if fifo.tail == fifo.head and fifo.credit_ps == 0:
        fifo.origin = fifo.tail


@compiled(inline=True)
def fifo_push(fifo, pool):
    """Claim the next slot of the pool and return it; the caller fills it. The fifo must not be full. Writes: fifo."""
    _start_again(fifo)
    slot = pool[fifo_slot(fifo, fifo.tail)]
    fifo.tail += 1
    fill = fifo.tail - fifo.head
    if fill > fifo.fill_max:
        fifo.fill_max = fill
    return slot


@compiled(inline=True)
def fifo_push_copy(fifo, pool, request, ready_ps):
    """Append a copy of `request` that becomes visible at `ready_ps`. The fifo must not be full.

    Reads: request. Writes: fifo, pool.
    """
    _start_again(fifo)
    index = fifo_slot(fifo, fifo.tail)
    pool[index] = request
    pool[index].ready_ps = ready_ps
    fifo.tail += 1
    fill = fifo.tail - fifo.head
    if fill > fifo.fill_max:
        fifo.fill_max = fill


@compiled
def fifo_insert_copy(fifo, pool, request, ready_ps):
    """Put a copy of `request` that becomes visible at `ready_ps` behind all requests that are visible by then.

    The fifo must not be full, and its consumer must not have reached `ready_ps`.

    Reads: request. Writes: fifo, pool.
    """
    fifo_push_copy(fifo, pool, request, ready_ps)
    number = fifo.tail - 1
    while number > fifo.head and pool[fifo_slot(fifo, number - 1)].ready_ps > ready_ps:
        pool[fifo_slot(fifo, number)] = pool[fifo_slot(fifo, number - 1)]
        number -= 1
    index = fifo_slot(fifo, number)
    pool[index] = request
    pool[index].ready_ps = ready_ps
