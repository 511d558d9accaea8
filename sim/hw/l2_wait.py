"""When an L2 bank that waits for room can continue, and which of two banks waits longer."""

import numpy as np

from sim.hw.fifo import fifo_head_ps, fifo_room_ps
from sim.hw.l2_far import copy_retry_ps
from sim.hw.l2_record import FOR_ANSWERS, FOR_CHANNEL
from sim.hw.request import NEVER, STREAMS, Stream
from tracer.compile.jit import compiled


@compiled(inline=True)
def answers_room_ps(bank, fifos, pool, now_ps):
    """When there is room for all answers that are due once the bank has taken any request, as far as known.

    Those that wait for data may all come at once: of each line in flight, and of each read of its own.

    Reads: fifos, pool. Writes: bank.
    """
    hits, late = fifos[bank.hits], fifos[bank.late]
    awaited = (bank.misses_used + 1) * bank.merges + bank.reads_out + 1
    room_ps = np.int64(0)
    if hits.tail >= bank.hits_free:
        bank.hits_free, room_ps = _free_up_to(hits, pool, hits.tail, now_ps)
    if late.tail + awaited > bank.late_free:
        bank.late_free, late_ps = _free_up_to(late, pool, late.tail + awaited - 1, now_ps)
        room_ps = max(room_ps, late_ps)
    return room_ps


@compiled
def _free_up_to(fifo, pool, number, now_ps):
    """(places with smaller numbers are free, when place `number` is free). It looks ahead, to be asked seldom."""
    further = number + fifo.limit // 4
    if fifo_room_ps(fifo, pool, further) <= now_ps:
        return further + 1, np.int64(0)
    room_ps = fifo_room_ps(fifo, pool, number)
    return number + (1 if room_ps <= now_ps else 0), room_ps


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
    """When a bank that waits for room can continue, as far as known; NEVER if it does not wait.

    Reads: fifos, pool. Writes: bank.
    """
    if bank.blocked == 0:
        return NEVER
    if bank.blocked == FOR_ANSWERS:
        return answers_room_ps(bank, fifos, pool, bank.tried_ps)
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
    if bank.blocked != FOR_CHANNEL or bank.flush_set >= 0 or bank.far >= 0:
        return False
    return fifo_head_ps(fifos[bank.fills], pool) > now_ps
