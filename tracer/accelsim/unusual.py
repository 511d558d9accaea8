"""Unusual things in a text. Compiled functions count them; `KernelReader` reports them."""

from enum import IntEnum

import numpy as np

from tracer.compile.jit import compiled


class Unusual(IntEnum):
    """What is counted."""

    EMPTY_WARP = 0
    NO_EXIT = 1
    EXTRA_COLUMNS = 2
    GAP_STRIDE = 3
    MANY_SOURCES = 4
    LOST_BASE = 5
    RETURN = 6
    HALF_COPY = 7
    NO_TRANSFERS = 8
    NO_WINDOW = 9


COUNTS = np.dtype(([("count", "i8"), ("line", "i8")], len(Unusual)))
"""How often, and the line of the first one, for each of Unusual."""


@compiled
def count_unusual(record, what, line):
    """Count one of Unusual in `record.unusual`, a COUNTS."""
    found = record.unusual[what]
    if found.count == 0:
        found.line = line
    found.count += 1
