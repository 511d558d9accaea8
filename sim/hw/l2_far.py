"""What an L2 bank does for other partitions (`sim.hw.partition`): its inputs, and its limits for copies."""

import numpy as np

from sim.hw.fifo import fifo_head_ps, fifo_room_ps
from sim.hw.request import NEVER
from sim.hw.tags import free_ways
from tracer.compile.jit import compiled


@compiled
def has_copy_room(bank, cache_set, way, fifos, pool, now_ps):
    """May the bank ask the home of a copy? It keeps what a read of its own lines needs, so that homes always serve.

    That is one miss entry with its waiting places, half of the reads under way, and one way of the set.
    """
    home = fifos[bank.other_peer]
    room_ps = fifo_room_ps(home, pool, home.tail)
    if room_ps > now_ps:
        bank.room_ps, bank.blocked = room_ps, 1
        return False
    if bank.copies_out * 2 >= fifos[bank.fills].limit:
        return False
    if way >= 0 and cache_set.way[way].pending != 0:
        return True
    return bank.copies_used + 1 < bank.misses and free_ways(cache_set, bank.ways) > 1


@compiled
def copy_retry_ps(bank, fifos, pool, room_ps):
    """`l2_retry_ps` of a bank that also waits for room at the home of its copies. room_ps: towards its channel."""
    home = fifos[bank.other_peer]
    home_ps = fifo_room_ps(home, pool, home.tail)
    return min(room_ps if room_ps > bank.tried_ps else NEVER, home_ps if home_ps > bank.tried_ps else NEVER)


INPUTS = 5
"""Fifos from which a bank takes requests, at most."""


@compiled(inline=True)
def _input(bank, k):
    """Input k of a bank, from 1 on, -1 = none."""
    if k <= 2:
        return bank.far if k == 1 else bank.peer
    return bank.arrivals if k == 3 else bank.dma_reads


@compiled(inline=True)
def next_input(bank, fifos, pool, tried):
    """(fifo with the oldest request, when it is visible, its bit in `tried`).

    Requests come from near CUs, far CUs, banks with copies, other GPUs, and DMA engines. tried: mask of fifos that are
    left out.
    """
    chosen, chosen_ps, place = bank.requests, fifo_head_ps(fifos[bank.requests], pool), np.int64(1)
    if tried & 1:
        chosen_ps = NEVER
    if bank.far >= 0 or bank.arrivals >= 0:
        for k in range(1, INPUTS):
            other = _input(bank, k)
            if other >= 0 and (tried >> k) & 1 == 0:
                head_ps = fifo_head_ps(fifos[other], pool)
                if head_ps < chosen_ps:
                    chosen, chosen_ps, place = other, head_ps, np.int64(1 << k)
    return chosen, chosen_ps, place


@compiled
def later_input_ps(bank, fifos, pool, now_ps):
    """When a far request becomes visible that a blocked bank may serve, NEVER if none is known."""
    wake_ps = NEVER
    if bank.far >= 0:
        for k in range(INPUTS):
            other = bank.requests if k == 0 else _input(bank, k)
            if other >= 0 and fifo_head_ps(fifos[other], pool) > now_ps:
                wake_ps = min(wake_ps, fifo_head_ps(fifos[other], pool))
    return wake_ps
