"""Bounded fifo of requests: the only connection between two hardware units. It has one producer and one consumer.

All fifos of a machine share one pool of request slots. A fifo is a ring of slots from `first` on. `limit` is its depth
in requests: a producer stops there (back-pressure). Few fifos are ever full. So a ring begins with one slot and doubles
when more requests are held at once, and an empty fifo starts again in its first slot. The slots in use stay few, and
stay in the host's cache.

Room travels as credits. When the consumer takes a request, its producer sees the room `credit_ps` later, never earlier.
The engine's lookahead is at most `credit_ps`. So what a producer sees does not depend on how far its consumer has been
simulated. The pool keeps the times of the last credits of each fifo. A fifo without credits (`credit_ps` 0) has
reserved places or a driver that looks at its fill.

`head`, `tail`, `claimed`, `free` and `origin` are numbers of requests, counted from 0 over all puts, and never fall. So
is `port.reads` of DMA engines. `first` is a slot, `mask` and `room` are numbers of slots less one. Request `number` is
in slot `first + ((number - origin) & mask)`.

Example: a new fifo of limit 4, whose first slot is 0.

| | head | tail | origin | mask | slots 0 to 3 |
|---|---|---|---|---|---|
| put 0, 1, 2 | 0 | 3 | 0 | 3 | 0 1 2 - |
| take 0, 1 | 2 | 3 | 0 | 3 | 0 1 2 - |
| put 3, 4 | 2 | 5 | 0 | 3 | 4 1 2 3 |
| take 2, 3, 4 | 5 | 5 | 0 | 3 | 4 1 2 3 |
| put 5 | 5 | 6 | 5 | 3 | 5 1 2 3 |
"""

from typing import NamedTuple

import numpy as np

from sim.hw.prefetch import host_aligned, prefetch
from sim.hw.request import NEVER, REQUEST
from tracer.compile.jit import compiled
from tracer.compile.reference import by_reference

SPACING = 8
"""Unused slots between two rings. So the first slots of all rings use different places of the host's cache."""

AHEAD_BYTES = 2 * REQUEST.itemsize
"""The slot after the next one is prefetched on the host when a request is put."""

FIFO = np.dtype(
    [
        # constants
        ("first", "i4"),  # slot in the pool (not `base`: every numpy scalar has an attribute of that name)
        ("limit", "i4"),  # requests held at most
        ("credit_ps", "i4"),  # from the taking of a request until its producer sees the room, 0 = no credits
        ("room", "i4"),  # slots that it has - 1, a power of two less one; as many credits
        # state
        ("mask", "i4"),  # slots in its ring - 1, a power of two less one
        ("fill_max", "i4"),  # most requests held at once, a counter
        ("head", "i8"),  # requests taken so far
        ("tail", "i8"),  # requests put so far
        ("claimed", "i8"),  # places promised to requests that come, all requests put included (crossbar only)
        ("origin", "i8"),  # number of a request that is, or would be, in the first slot
        ("free", "i8"),  # places with smaller numbers are known to be free (`fifo_has_room`)
    ]
)
"""One cache line of the host."""


@by_reference
class Pool(NamedTuple):
    """Slots of all fifos of a machine."""

    requests: np.ndarray  # REQUEST [slots]
    credits_ps: np.ndarray  # i8 [slots]: when the producer of a fifo sees the room of a taken request (`_credit`)


def make_fifos(depths, credits_ps=0):
    """Fifo records and their shared pool.

    Args:
        depths: requests each fifo holds at most, one int per fifo, each >= 1.
        credits_ps: `credit_ps` of each fifo, or of all.

    Returns:
        (fifos, pool): array of FIFO (one per depth), Pool.
    """
    fifos = host_aligned(len(depths), FIFO)
    if min(depths, default=1) < 1:
        raise ValueError(f"a fifo must hold at least one request, not {min(depths)}")
    rings = np.array([1 << (int(depth) - 1).bit_length() for depth in depths], np.int64)
    ends = np.cumsum(rings + SPACING)
    fifos["first"], fifos["room"], fifos["limit"] = ends - SPACING - rings, rings - 1, depths
    fifos["credit_ps"], fifos["free"] = credits_ps, depths
    slots = int(ends[-1])
    return fifos, Pool(host_aligned(slots, REQUEST), np.zeros(slots, np.int64))


@compiled(inline=True)
def fifo_slot(fifo, number):
    """Slot of the pool that holds request `number`, counted over all pushes; numbers from `head` to `tail`.

    Reads: fifo.
    """
    return fifo.first + ((number - fifo.origin) & fifo.mask)


@compiled(inline=True)
def fifo_request(fifo, pool, number):
    """Request `number`, counted over all pushes; a view, like `fifo_head`. Reads: fifo."""
    return pool.requests[fifo_slot(fifo, number)]


@compiled(inline=True)
def _credit(fifo, number):
    """Place of the credit for request `number` in `pool.credits_ps`. It lasts until the ring of credits comes round."""
    return fifo.first + (number & fifo.room)


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
    return fifo_request(fifo, pool, fifo.head).ready_ps


@compiled(inline=True)
def fifo_head(fifo, pool):
    """The oldest request (a view: use it before the next push). The fifo must not be empty. Reads: fifo."""
    return fifo_request(fifo, pool, fifo.head)


@compiled(inline=True)
def fifo_pop(fifo):
    """Remove the oldest request of a fifo without credits. The fifo must not be empty. Writes: fifo."""
    fifo.head += 1


@compiled(inline=True)
def fifo_take(fifo, pool, now_ps):
    """Remove the oldest request at now_ps and send the credit. The fifo must not be empty. Writes: fifo, pool."""
    pool.credits_ps[_credit(fifo, fifo.head)] = now_ps + fifo.credit_ps
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
    return pool.credits_ps[_credit(fifo, before)]


@compiled(inline=True)
def fifo_has_room(fifo, pool, number, now_ps):
    """May its producer put request `number` at now_ps? It never asks for an earlier time again. Writes: fifo."""
    return number < fifo.free or _finds_room(fifo, pool, number, now_ps)


@compiled
def _finds_room(fifo, pool, number, now_ps):
    """Look for free places, also further ahead, so that this is asked seldom."""
    for last in (number + fifo.limit // 4, number):
        if fifo_room_ps(fifo, pool, last) <= now_ps:
            fifo.free = last + 1
            return True
    return False


@compiled(inline=True)
def _next_slot(fifo, pool):
    """The slot of the pool for one more request."""
    fill = fifo.tail - fifo.head
    if fill == 0:
        fifo.origin = fifo.tail
    elif fill > fifo.mask:
        _double(fifo, pool)
    index = fifo_slot(fifo, fifo.tail)
    fifo.tail += 1
    if fill >= fifo.fill_max:
        fifo.fill_max = fill + 1
    return index


@compiled
def _double(fifo, pool):
    """Double the ring, which is full. The requests that came round to its first slots move behind its old end."""
    wrapped = (fifo.head - fifo.origin) & fifo.mask
    for k in range(wrapped):
        pool.requests[fifo.first + fifo.mask + 1 + k] = pool.requests[fifo.first + k]
    fifo.origin = fifo.head - wrapped
    fifo.mask = 2 * fifo.mask + 1


@compiled(inline=True)
def fifo_push(fifo, pool):
    """Claim the next slot of the pool and return it; the caller fills it. The fifo must not be full. Writes: fifo."""
    slot = pool.requests[_next_slot(fifo, pool)]
    prefetch(slot, AHEAD_BYTES)
    return slot


@compiled(inline=True)
def fifo_push_copy(fifo, pool, request, ready_ps):
    """Append a copy of `request` that becomes visible at `ready_ps`, and return it. The fifo must not be full.

    Reads: request. Writes: fifo, pool.
    """
    index = _next_slot(fifo, pool)
    pool.requests[index] = request
    copy = pool.requests[index]
    copy.ready_ps = ready_ps
    prefetch(copy, AHEAD_BYTES)
    return copy


@compiled
def fifo_insert_copy(fifo, pool, request, ready_ps):
    """Put a copy of `request` that becomes visible at `ready_ps` behind all requests that are visible by then.

    The fifo must not be full, and its consumer must not have reached `ready_ps`.

    Reads: request. Writes: fifo, pool.
    """
    fifo_push_copy(fifo, pool, request, ready_ps)
    number = fifo.tail - 1
    while number > fifo.head and fifo_request(fifo, pool, number - 1).ready_ps > ready_ps:
        pool.requests[fifo_slot(fifo, number)] = fifo_request(fifo, pool, number - 1)
        number -= 1
    index = fifo_slot(fifo, number)
    pool.requests[index] = request
    pool.requests[index].ready_ps = ready_ps
