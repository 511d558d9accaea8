"""Bounded fifo of requests: the only connection between two hardware units.

All fifos of a machine share one pool of request slots. A fifo is a ring of `mask + 1` slots from `first` on. `limit`
is its depth in requests: a producer stops there (back-pressure). The limit is at most the size of the ring.
"""

import numpy as np

from sim.hw.prefetch import host_aligned
from sim.hw.request import NEVER, REQUEST
from tracer.compile.jit import compiled

FIFO = np.dtype(
    [
        # constants
        ("first", "i8"),  # slot in the pool (not `base`: every numpy scalar has an attribute of that name)
        ("mask", "i8"),  # ring size - 1, a power of two less one
        ("limit", "i8"),  # requests held at most
        # state
        ("head", "i8"),  # requests taken so far
        ("tail", "i8"),  # requests put so far
        (
            "origin",
            "i8",
        ),  # number of the request in the first slot; an empty fifo starts there again, in the host's cache
        # counters
        ("fill_max", "i8"),  # most requests held at once
        ("pad", "i8"),  # fills a cache line of the host
    ]
)


def make_fifos(depths):
    """Fifo records and their shared pool.

    Args:
        depths: requests each fifo holds at most, one int per fifo, each >= 1.

    Returns:
        (fifos, pool): arrays of FIFO (one per depth) and REQUEST.
    """
    fifos = host_aligned(len(depths), FIFO)
    if min(depths, default=1) < 1:
        raise ValueError(f"a fifo must hold at least one request, not {min(depths)}")
    rings = np.array([1 << (int(depth) - 1).bit_length() for depth in depths], np.int64)
    ends = np.cumsum(rings)
    fifos["first"], fifos["mask"], fifos["limit"] = ends - rings, rings - 1, depths
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
    """Remove the oldest request. The fifo must not be empty. Writes: fifo."""
    fifo.head += 1


@compiled(inline=True)
def fifo_push(fifo, pool):
    """Claim the next slot of the pool and return it; the caller fills it. The fifo must not be full. Writes: fifo."""
    if fifo.tail == fifo.head:
        fifo.origin = fifo.tail
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
    if fifo.tail == fifo.head:
        fifo.origin = fifo.tail
    index = fifo_slot(fifo, fifo.tail)
    pool[index] = request
    pool[index].ready_ps = ready_ps
    fifo.tail += 1
    fill = fifo.tail - fifo.head
    if fill > fifo.fill_max:
        fifo.fill_max = fill
