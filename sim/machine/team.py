"""Threads that run one machine together: how they share its units, and how they meet.

All threads run the same compiled code. Between two meetings each unit is run by one thread, and no thread changes what
another one reads. So it does not matter which thread runs a unit, and results do not depend on the number of threads.

A meeting is a barrier. Threads wait in a loop, for a window lasts microseconds; after a while they let other programs
use the core. Each thread owns a block of the units, whose records stay in the cache of its core. A thread that has done
its block helps the others.
"""

import numpy as np

from sim.hw.prefetch import HOST_LINE_BYTES, host_aligned
from tracer.compile.atomics import add, give_way, load, nap, pause, store
from tracer.compile.jit import compiled

LINE = HOST_LINE_BYTES // 8
"""Words of a cache line of the host. Words that different threads write are in different lines."""
THREADS, HERE, TURN, ABANDONED, ENDED, JOBS, DONE, SENT, ANSWERED, WINDOW, CUS = (LINE * k for k in range(11))
CHANNELS = CUS + 1
"""Places of the shared words.

THREADS: number of threads. HERE: threads that have come to the next meeting. TURN: meetings so far. ABANDONED: 1 = a
thread has failed. ENDED: 1 = a workgroup has ended. JOBS, DONE: jobs taken and channels run in the window. SENT,
ANSWERED: meetings so far when requests, when answers crossed the NoC last. WINDOW: status, begin and end of the window.
CUS, CHANNELS: units of the first thread's block that were taken in the window; those of the next thread are a line
further.
"""
SPINS, YIELDS = 2000, 200
"""Looks at a word, some ten microseconds each kind: first without a break, then letting other programs use the core.
A thread that waits longer sleeps between its looks, for then there are more threads than cores."""
SHARES = 8
"""A thread takes its block in this many parts; less work is left when the others have nothing to do."""


def make_team(threads):
    """The shared words of a team, an i8 array."""
    words = host_aligned(CUS + threads * LINE, np.dtype(np.int64))
    words[THREADS] = threads
    words[SENT] = words[ANSWERED] = -1
    return words


@compiled
def wait_until(team, place, value):
    """Wait until a word has a value. Returns False if a thread has failed: then the caller must return."""
    looks = 0
    while load(team, place) != value:
        if load(team, ABANDONED) == 1:
            return False
        looks += 1
        if looks < SPINS:
            pause()
        elif looks < SPINS + YIELDS:
            give_way()
        else:
            nap()
    return True


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
    return 0 if wait_until(team, TURN, turn + 1) else -1


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
def next_part(units, team, kind, owner):
    """Take the next part of a thread's block of units.

    Args:
        kind: CUS or CHANNELS.

    Returns:
        (first, last): the units from `first` to `last` - 1; first >= last if no unit is left.
    """
    size = max(1, units // (team[THREADS] * SHARES))
    first = first_of(units, team, owner) + add(team, kind + owner * LINE, size)
    return first, min(first + size, first_of(units, team, owner + 1))


@compiled
def take_again(team, kind, me):
    """No unit of this thread's block is taken any more. In a half of the window that takes no units of this kind."""
    store(team, kind + me * LINE, 0)
