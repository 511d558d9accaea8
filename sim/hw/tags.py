"""Tag store of a sectored set-associative cache, used by L1 and L2: one record per set, LRU replacement.

A way holds one 128-byte line with four 32-byte sectors, each of them
    valid    all 32 bytes are here,
    partial  some bytes were written here, the rest is in memory (write-allocate without fetch),
    dirty    written here and not yet in memory,
    pending  asked for and not yet here.
"""

import numpy as np

from tracer.jit import kernel

MAX_WAYS = 32
EMPTY = -1

CACHE_SET = np.dtype(
    [
        ("tag", "i8", MAX_WAYS),  # line address, EMPTY where none
        ("used", "i4", MAX_WAYS),  # value of `clock` at the last touch; 0 = evict first
        ("valid", "i1", MAX_WAYS),
        ("dirty", "i1", MAX_WAYS),
        ("partial", "i1", MAX_WAYS),
        ("pending", "i1", MAX_WAYS),
        ("waiter", "i4", MAX_WAYS),  # L2: first request that waits for pending sectors, -1 where none
        ("clock", "i4"),  # touches so far
        ("pad", "i4"),
    ],
    align=True,
)


def make_sets(count):
    """`count` empty sets."""
    sets = np.zeros(count, CACHE_SET)
    sets["tag"] = EMPTY
    sets["waiter"] = -1
    return sets


@kernel
def find_way(cache_set, ways, line):
    """Way that holds `line`, -1 where none does."""
    for way in range(ways):
        if cache_set.tag[way] == line:
            return way
    return -1


@kernel
def touch(cache_set, way):
    """Make `way` the most recently used."""
    cache_set.clock += 1
    cache_set.used[way] = cache_set.clock


@kernel
def victim_way(cache_set, ways):
    """Way to replace: an empty one, else the least recently used without pending sectors; -1 where all are pending."""
    best = -1
    for way in range(ways):
        if cache_set.tag[way] == EMPTY:
            return way
        if cache_set.pending[way] == 0 and (best < 0 or cache_set.used[way] < cache_set.used[best]):
            best = way
    return best


@kernel
def claim_way(cache_set, way, line):
    """Give `way` to `line`, all sectors empty, most recently used."""
    cache_set.tag[way] = line
    cache_set.valid[way] = 0
    cache_set.dirty[way] = 0
    cache_set.partial[way] = 0
    cache_set.pending[way] = 0
    cache_set.waiter[way] = -1
    touch(cache_set, way)


POPCOUNT4 = np.array([0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4], np.int64)


@kernel
def sectors_in(mask):
    """Number of sectors in a 4-bit mask."""
    return POPCOUNT4[mask & 15]
