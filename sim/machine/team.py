"""Threads that run one machine together: how they share its units, and how they meet.

All threads run the same compiled code. Between two meetings each unit is run by one thread, and no thread changes what
another one reads. So it does not matter which thread runs a unit, and results do not depend on the number of threads.

A meeting is a barrier. Threads wait in a loop, for a window lasts microseconds; after a while they let other programs
use the core. Each thread owns a block of the units, whose records stay in the cache of its core. A thread that has done
its block helps the others.
"""

import numpy as np

from sim.hw.prefetch import HOST_LINE_BYTES, host_aligned
from tracer.compile.atomics import add, give_way, load, pause, store
from tracer.compile.jit import compiled

LINE = HOST_LINE_BYTES // 8
"""Words of a cache line of the host. Each shared word has a line of its own."""
THREADS, TURN, HERE, ABANDONED, JOBS, DONE = (LINE * k for k in range(6))
"""Places of the shared words: number of threads; meetings so far; threads that have come to the next one; 1: a thread
has failed; jobs taken so far; from DONE on: units of the block of each thread that have been taken."""
SPINS = 4000
"""Looks at a word, some ten microseconds, before a thread lets another one use the core."""


def make_team(threads):
    """The shared words of a team, an i8 array."""
    words = host_aligned(DONE + threads * LINE, np.dtype(np.int64))
    words[THREADS] = threads
    return words


@compiled
def meet(team, turn):
    """Wait until all threads have come. The last one does not wait: it calls `part` when the others may go on.

    Args:
        turn: number of meetings before this one.

    Returns:
        1 for the last thread, 0 for the others, -1 if a thread has failed: then the caller must return.
    """
    if add(team, HERE, 1) == team[THREADS] - 1:
        return 1
    looks = 0
    while load(team, TURN) == turn:
        if load(team, ABANDONED) == 1:
            return -1
        looks += 1
        if looks < SPINS:
            pause()
        else:
            give_way()
    return 0


@compiled
def part(team, turn):
    """End meeting number `turn`: all threads go on. Only the last thread to come calls it."""
    store(team, HERE, 0)
    store(team, TURN, turn + 1)


@compiled
def first_of(units, team, owner):
    """The first unit of a thread's block of `units` units; the block ends where that of the next thread begins."""
    return owner * units // team[THREADS]


@compiled
def next_of(units, team, owner):
    """Take the next unit of a thread's block. Returns -1 if no unit is left."""
    unit = first_of(units, team, owner) + add(team, DONE + owner * LINE, 1)
    return unit if unit < first_of(units, team, owner + 1) else -1
