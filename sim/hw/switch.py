"""Switch between the GPUs of a node, as one GPU sees it: it adds what all GPUs send to a line (NVLink SHARP).

Every GPU sends its part of a line to the GPU that keeps the sum; that GPU sends its own part too. The switch keeps the
parts of a line until the last one has come. Then the sum crosses the link to the GPU once, and arrives as a plain
store. Parts of a line have the same sectors. The switch has room for PLACES lines for each GPU; a part of a further
line waits on its link.

The switch also copies: a store to all GPUs leaves its GPU once (`sim.hw.link`).
"""

import numpy as np

from tracer.compile.jit import compiled

PLACES_BITS = 16
PLACES = 1 << PLACES_BITS
"""Places of the table. A quarter stays free, so that searches are short."""
MOST = PLACES * 3 // 4
HASH = np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(64 - PLACES_BITS)

SWITCH = np.dtype(
    [
        ("gpus", "i8"),  # parts of a sum
        ("used", "i8"),  # lines that wait for parts
        ("used_max", "i8"),
    ]
)
SUM = np.dtype(
    [
        ("key", "i8"),  # line and sectors
        ("parts", "i8"),  # that have come, 0 = the place is free
        ("contributors", "i8"),  # GPUs that sent them: bit k = the k-th before this one
    ]
)


def make_switch(gpus, adds):
    """The switch of one GPU: (SWITCH [1], SUM [PLACES]). adds: False: there is none, and the table is empty."""
    switch = np.zeros(1, SWITCH)
    switch["gpus"] = gpus
    return switch, np.zeros(PLACES if adds else 0, SUM)


@compiled
def part_key(line, sectors):
    """Name of a sum: a line is a multiple of 128 bytes, so its lower bits have room for the sectors."""
    return np.int64(line) | np.int64(sectors)


@compiled
def _home(key):
    return np.int64((np.uint64(key) * HASH) >> SHIFT)


@compiled
def _place(sums, key):
    """Place of a sum, or the free place for it."""
    place = _home(key)
    while sums[place].parts > 0 and sums[place].key != key:
        place = (place + 1) % PLACES
    return place


@compiled
def is_last_part(switch, sums, key):
    """Have all other parts of the sum come? Reads: switch, sums."""
    return sums[_place(sums, key)].parts == switch.gpus - 1


@compiled
def has_room(switch, sums, key):
    """Is there a place for a part of this sum? Reads: switch, sums."""
    return switch.used < MOST or sums[_place(sums, key)].parts > 0


@compiled
def add_part(switch, sums, key, contributors):
    """Keep a part. It is not the last one, and there is room for it. Writes: switch, sums."""
    one = sums[_place(sums, key)]
    if one.parts == 0:
        one.key, one.contributors = key, 0
        switch.used += 1
        switch.used_max = max(switch.used_max, switch.used)
    one.parts += 1
    one.contributors |= contributors


@compiled
def take_sum(switch, sums, key):
    """The last part has come: free the place of the sum. Returns the contributors of the other parts.

    Writes: switch, sums.
    """
    place = _place(sums, key)
    contributors = np.int64(sums[place].contributors)
    switch.used -= 1
    free = place
    while True:  # move later sums of the same search back, so that no search ends at the free place
        place = (place + 1) % PLACES
        if sums[place].parts == 0:
            break
        if (place - _home(sums[place].key)) % PLACES >= (place - free) % PLACES:
            kept, moved = sums[free], sums[place]
            kept.key, kept.parts, kept.contributors = moved.key, moved.parts, moved.contributors
            free = place
    sums[free].parts = 0
    return contributors
