"""Data from DRAM in an L2 bank: sectors become valid, and reads that waited for them are answered."""

import numpy as np

from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_pop, fifo_push_copy
from sim.hw.l2_dram import is_copy
from sim.hw.request import Op, is_awaited
from sim.hw.tags import find_way, release
from tracer.compile.jit import compiled
from traces.schema import Cache


@compiled(inline=True)
def bank_set(bank, sets, request):
    """The set of a request. Reads: bank."""
    return sets[bank.first_set + request.cache_set]


@compiled(inline=True)
def answer(fifo, pool, request, ready_ps):
    """Send a request back to the CU that waits for it, if one does. Writes: fifo, pool."""
    if request.op == Op.READ or request.op == Op.ATOMIC or is_awaited(request):
        fifo_push_copy(fifo, pool, request, ready_ps)


@compiled(inline=True)
def _fill(bank, sets, waiters, fifos, pool, fill, now_ps):
    """Data came from DRAM: mark the sectors valid, and answer each waiting request that now has all its sectors."""
    bank.reads_out -= 1
    if is_copy(bank, fill):
        bank.copies_out -= 1
    if fill.cache == Cache.UNCACHED:
        answer(fifos[bank.late], pool, fill, now_ps)
        return
    cache_set = bank_set(bank, sets, fill)
    way = find_way(cache_set, bank.ways, fill.line)
    cache_set.way[way].pending &= ~fill.sectors & 15
    cache_set.way[way].valid |= fill.sectors
    cache_set.way[way].partial &= ~fill.sectors & 15
    first, left = np.int64(cache_set.waiter[way]), 0
    for w in range(first + cache_set.waits[way] - 1, first - 1, -1):  # the last one first
        waiter = waiters[w]
        waiter.need &= ~fill.sectors & 15
        if waiter.need == 0:
            if waiter.op != Op.READ:
                cache_set.way[way].dirty |= waiter.sectors
            answer(fifos[bank.late], pool, waiter, now_ps)
        else:
            left += 1
    if left > 0:
        _close_up(waiters, first, first + cache_set.waits[way])
    cache_set.waits[way] = left
    if cache_set.way[way].pending == 0:
        release(cache_set, way)
        bank.misses_used -= 1
        if is_copy(bank, fill):
            bank.copies_used -= 1
        waiters[first].next = bank.free_miss
        bank.free_miss = first


@compiled
def _close_up(waiters, first, end):
    """Of the waiting places from `first` up to `end`, move those still in use to the beginning, in order."""
    place = first
    for w in range(first, end):
        if waiters[w].need != 0:
            if place != w:
                waiters[place] = waiters[w]
            place += 1


@compiled
def take_fills(bank, sets, waiters, fifos, pool, number, now_ps):
    """Take the fills that are due from a fifo. Returns when the next one is.

    Writes: bank, sets, waiters, fifos, pool.
    """
    fills = fifos[number]
    while fifo_head_ps(fills, pool) <= now_ps:
        _fill(bank, sets, waiters, fifos, pool, fifo_head(fills, pool), now_ps)
        fifo_pop(fills)
    return fifo_head_ps(fills, pool)
