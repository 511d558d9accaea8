"""When an L2 bank that waits for room towards its channel can continue, and which of two banks waits longer."""

import numpy as np

from sim.hw.fifo import fifo_head_ps, fifo_room_ps
from sim.hw.l2_far import copy_retry_ps
from sim.hw.request import NEVER, STREAMS, Stream
from tracer.compile.jit import compiled


@compiled(inline=True)
def l2_room_ps(bank, fifos, pool):
    """When there is room towards the channel for all that any request sends, as far as known.

    Reads: bank, fifos, pool.
    """
    room_ps = np.int64(0)
    for stream in range(STREAMS):
        fifo = fifos[bank.dram[stream]]
        room_ps = max(room_ps, fifo_room_ps(fifo, pool, fifo.tail + bank.sends - 1))
    return room_ps


@compiled(inline=True)
def l2_retry_ps(bank, fifos, pool):
    """When a bank that waits for room towards its channel can continue, as far as known; NEVER if it does not wait.

    Reads: bank, fifos, pool.
    """
    if bank.blocked == 0:
        return NEVER
    if bank.flush_set >= 0:
        writes = fifos[bank.dram[Stream.COMPUTE_WRITE]]
        return fifo_room_ps(writes, pool, writes.tail)
    room_ps = l2_room_ps(bank, fifos, pool)
    return room_ps if bank.peer < 0 else copy_retry_ps(bank, fifos, pool, room_ps)


@compiled(inline=True)
def waits_longer(bank, other):
    """Of two banks that act at once: has `bank` waited longer for room? Reads: bank, other."""
    return bank.blocked_since_ps >= 0 and (other.blocked_since_ps < 0 or bank.blocked_since_ps < other.blocked_since_ps)


@compiled(inline=True)
def waits_for_room(bank, fifos, pool, now_ps):
    """Would a step of the bank do nothing before there is room towards its channel? Reads: bank, fifos, pool.

    False if it is not known: a bank with far requests may look past the one that waits.
    """
    if bank.blocked == 0 or bank.flush_set >= 0 or bank.far >= 0:
        return False
    return fifo_head_ps(fifos[bank.fills], pool) > now_ps
