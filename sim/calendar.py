"""The calendar: when does which unit act next? A 16-ary tournament over the wake times of all units.

One int64 key per unit holds its wake time and its number, so that the smallest key names both, and units that
wake at the same time act in the order of their numbers: deterministic, whatever order the times were set in.

Layout of the array: [0] offset of the groups, [1] offset of the super-groups, [2] end, then from FIRST the keys of
the units, the minima of 16 units each, the minima of 256 units each. Setting a time costs two rows of 16.
"""

import numpy as np

from sim.hw.request import NEVER
from tracer.jit import kernel

UNIT_BITS = 14
MAX_UNITS = 1 << UNIT_BITS
FIRST = 16
IDLE_KEY = (1 << 63) - 1
LAST_PS = (1 << (62 - UNIT_BITS)) - 1
"""Latest time that a key can hold: 281 seconds of simulated time."""


def make_calendar(units):
    """An empty calendar (all units asleep) for `units` units; at most MAX_UNITS."""
    if not 1 <= units <= MAX_UNITS:
        raise ValueError(f"a calendar holds 1..{MAX_UNITS} units, not {units}")
    groups = -(-units // 256) * 16
    calendar = np.full(FIRST + groups * 16 + groups + groups // 16, IDLE_KEY, np.int64)
    calendar[0] = FIRST + groups * 16
    calendar[1] = calendar[0] + groups
    calendar[2] = len(calendar)
    return calendar


@kernel
def _smallest_of_16(keys, first):
    a = keys[first]
    b = keys[first + 1]
    c = keys[first + 2]
    d = keys[first + 3]
    for k in range(first + 4, first + 16, 4):  # four chains: the compiler keeps them in vector registers
        a = min(a, keys[k])
        b = min(b, keys[k + 1])
        c = min(c, keys[k + 2])
        d = min(d, keys[k + 3])
    return min(min(a, b), min(c, d))


@kernel
def calendar_set(calendar, unit, wake_ps):
    """Let `unit` act next at wake_ps (NEVER: when somebody wakes it)."""
    key = IDLE_KEY
    if wake_ps < NEVER:
        key = (wake_ps << UNIT_BITS) | unit
    calendar[FIRST + unit] = key
    group = unit >> 4
    calendar[calendar[0] + group] = _smallest_of_16(calendar, FIRST + (group << 4))
    above = group >> 4
    calendar[calendar[1] + above] = _smallest_of_16(calendar, calendar[0] + (above << 4))


@kernel
def calendar_lower(calendar, unit, wake_ps):
    """Let `unit` act at wake_ps or earlier."""
    key = (wake_ps << UNIT_BITS) | unit
    if key < calendar[FIRST + unit]:
        calendar[FIRST + unit] = key
        group = unit >> 4
        if key < calendar[calendar[0] + group]:
            calendar[calendar[0] + group] = key
            if key < calendar[calendar[1] + (group >> 4)]:
                calendar[calendar[1] + (group >> 4)] = key


@kernel
def calendar_next(calendar):
    """Smallest key: time in the high bits, unit in the low UNIT_BITS; IDLE_KEY when all sleep."""
    best = calendar[calendar[1]]
    for k in range(calendar[1] + 1, calendar[2]):
        best = min(best, calendar[k])
    return best
