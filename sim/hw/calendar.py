"""Calendar of a time window: which sources act in which slot of time. One crossbar or collector serves the sources.

A slot is a clock of the unit. Slots lie on an absolute grid, and a time window ends between two of them. So the order
of service does not depend on the window.
"""

import numpy as np

from sim.hw.bits import divided, reciprocal
from tracer.compile.jit import compiled

MAX_SLOTS = 62
WORD_BITS = 5
WORD_SOURCES = 1 << WORD_BITS
MAX_SOURCES = 1600

CALENDAR = np.dtype(
    [
        ("period_ps", "i8"),  # of a slot
        ("slots_per_ps", "i8"),  # its reciprocal (`sim.hw.bits`)
        ("busy", "i8"),  # bit per slot: it has sources
        ("sources", "i8", (MAX_SLOTS, MAX_SOURCES // WORD_SOURCES)),  # bit per source, 32 in a word
    ]
)


def set_period(calendars, period_ps):
    """Set the length of a slot. A window is shorter than 2**20 ps."""
    calendars["period_ps"], calendars["slots_per_ps"] = period_ps, reciprocal(period_ps)


@compiled(inline=True)
def calendar_add(calendar, source, elapsed_ps):
    """Source acts in the slot that is `elapsed_ps` after the first slot of the window. Writes: calendar."""
    slot = divided(elapsed_ps, calendar.slots_per_ps)
    calendar.sources[slot, source >> WORD_BITS] |= 1 << (source & (WORD_SOURCES - 1))
    calendar.busy |= 1 << slot


@compiled(inline=True)
def slot_sources(calendar, slot, first, step, words):
    """Sources of one word of a slot, as bits; step 0 to `words` gives all sources of the slot, beginning with `first`.

    Returns:
        (number of the word, bits). The word is empty afterwards.

    Writes: calendar.
    """
    word = (first >> WORD_BITS) + step
    if word >= words:
        word -= words
    bits = calendar.sources[slot, word]
    below = (1 << (first & (WORD_SOURCES - 1))) - 1
    if step == 0:
        calendar.sources[slot, word] = bits & below
        return word, bits & ~below
    calendar.sources[slot, word] = 0
    return word, bits
