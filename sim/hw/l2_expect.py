"""What an L2 bank serves soon, as a hint to the host; and lines that are there before the first request."""

from sim.hw.fifo import fifo_request
from sim.hw.l2_fill import bank_set
from sim.hw.prefetch import prefetch
from sim.hw.tags import WAITERS_BYTE, claim_way, expect, find_way, next_victim
from tracer.compile.jit import compiled

AHEAD = 8
"""The set of a request is prefetched on the host this many requests early."""


@compiled(inline=True)
def l2_expect_data(bank, sets, waiters, data):
    """Hint to the host: data come soon. Reads: bank, data."""
    cache_set = bank_set(bank, sets, data)
    expect(cache_set, bank.ways)
    prefetch(cache_set, WAITERS_BYTE)
    prefetch(waiters[data.next], 0)


@compiled(inline=True)
def l2_expect_queue(bank, sets, waiters, fifos, pool):
    """Hint to the host: the first requests in the queue, and those for and from copies, are served soon.

    Reads: bank, fifos, pool.
    """
    _expect_first(bank, sets, fifos[bank.requests], pool)
    if bank.peer >= 0:
        _expect_first(bank, sets, fifos[bank.peer], pool)
    if bank.copy_fills >= 0:
        _expect_first(bank, sets, fifos[bank.copy_fills], pool)
    prefetch(waiters[max(bank.free_miss, 0)], 0)


@compiled(inline=True)
def _expect_first(bank, sets, fifo, pool):
    """Hint to the host: the first requests of a fifo are served soon."""
    for number in range(fifo.head, min(fifo.tail, fifo.head + AHEAD)):
        expect(bank_set(bank, sets, fifo_request(fifo, pool, number)), bank.ways)


@compiled
def l2_prefill(bank, sets, number, line):
    """Put a clean line into set `number` of the bank, without traffic (a copy from the host through L2).

    Writes: bank, sets.
    """
    cache_set = sets[bank.first_set + number]
    way = find_way(cache_set, bank.ways, line)
    if way < 0:
        way = next_victim(bank, cache_set)
        claim_way(cache_set, bank.ways, way, line)
    cache_set.way[way].valid = 15
