"""Calendar of a time window: which sources act in which slot of time. One crossbar or collector serves the sources.

A slot is a clock of the unit. Slots lie on an absolute grid, and a time window ends between two of them. So the order
of service does not depend on the window.
"""

import numpy as np

from tracer.compile.jit import compiled

MAX_SLOTS = 62
WORD_BITS = 5
WORD_SOURCES = 1 << WORD_BITS
MAX_SOURCES = 1600
SCALE_BITS = 40

CALENDAR = np.dtype(
    [
        ("period_ps", "i8"),  # of a slot
        ("slots_per_ps", "i8"),  # times 1 << SCALE_BITS, rounded up
        ("busy", "i8"),  # bit per slot: it has sources
        ("sources", "i8", (MAX_SLOTS, MAX_SOURCES // WORD_SOURCES)),  # bit per source, 32 in a word
    ]
)


def set_period(calendars, period_ps):
    """Set the length of a slot. A time of fewer than 2**20 ps is then divided exactly by a multiplication."""
    calendars["period_ps"], calendars["slots_per_ps"] = period_ps, (1 << SCALE_BITS) // period_ps + 1


@compiled(inline=True)
def calendar_add(calendar, source, elapsed_ps):
    """Source acts in the slot that is `elapsed_ps` after the first slot of the window. Writes: calendar."""
    slot = elapsed_ps * calendar.slots_per_ps >> SCALE_BITS
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
