"""What an L2 bank does for other partitions (`sim.hw.partition`): its inputs, and its limits for copies."""

import numpy as np

from sim.hw.fifo import fifo_head_ps, fifo_room_ps
from sim.hw.l2_record import FOR_CHANNEL
from sim.hw.request import NEVER
from sim.hw.tags import two_are_free
from tracer.compile.jit import compiled


@compiled
def has_copy_room(bank, cache_set, way, fifos, pool, now_ps):
    """May the bank ask the home of a copy? It keeps what a read of its own lines needs, so that homes always serve.

    That is one miss entry with its waiting places, half of the reads under way, and one way of the set.
    """
    home = fifos[bank.other_peer]
    room_ps = fifo_room_ps(home, pool, home.tail)
    if room_ps > now_ps:
        bank.room_ps, bank.blocked = room_ps, FOR_CHANNEL
        return False
    if bank.copies_out * 2 >= fifos[bank.fills].limit:
        return False
    if way >= 0 and cache_set.way[way].pending != 0:
        return True
    return bank.copies_used + 1 < bank.misses and two_are_free(cache_set, bank.ways)


@compiled
def copy_retry_ps(bank, fifos, pool, room_ps):
    """`l2_retry_ps` of a bank that also waits for room at the home of its copies. room_ps: towards its channel."""
    home = fifos[bank.other_peer]
    home_ps = fifo_room_ps(home, pool, home.tail)
    return min(room_ps if room_ps > bank.tried_ps else NEVER, home_ps if home_ps > bank.tried_ps else NEVER)


@compiled(inline=True)
def next_input(bank, fifos, pool, tried):
    """(fifo with the oldest request, when it is visible, its bit in `tried`).

    Of equal ones the first of the bank's inputs. tried: mask of inputs that are left out.
    """
    chosen, chosen_ps, place = bank.requests, fifo_head_ps(fifos[bank.requests], pool), np.int64(1)
    if tried & 1:
        chosen_ps = NEVER
    for k in range(1, bank.inputs):
        if (tried >> k) & 1 == 0:
            head_ps = fifo_head_ps(fifos[bank.input[k]], pool)
            if head_ps < chosen_ps:
                chosen, chosen_ps, place = np.int64(bank.input[k]), head_ps, np.int64(1 << k)
    return chosen, chosen_ps, place


@compiled
def later_input_ps(bank, fifos, pool, now_ps):
    """When a far request becomes visible that a blocked bank may serve, NEVER if none is known."""
    wake_ps = NEVER
    if bank.far >= 0:
        for k in range(bank.inputs):
            head_ps = fifo_head_ps(fifos[bank.input[k]], pool)
            if head_ps > now_ps:
                wake_ps = min(wake_ps, head_ps)
    return wake_ps
