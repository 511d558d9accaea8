"""Tag store of a sectored set-associative cache, used by L1 and L2: one record per set, LRU replacement.

A way holds one 128-byte line with four 32-byte sectors, each of them
    valid    all 32 bytes are here,
    partial  some bytes were written here, the rest is in memory (write-allocate without fetch),
    dirty    written here and not yet in memory,
    pending  asked for and not yet here.
"""

import numpy as np

from sim.hw.prefetch import HOST_LINE_BYTES, prefetch
from tracer.jit import kernel

MAX_WAYS = 32
EMPTY = -1

SECTORS = np.dtype([("valid", "i1"), ("dirty", "i1"), ("partial", "i1"), ("pending", "i1")])
"""Sector masks of one way."""

CACHE_SET = np.dtype(
    [
        ("tag", "i8", MAX_WAYS),  # line address, EMPTY where none
        ("age", "i8", MAX_WAYS),  # touch number of the last touch, 0 = empty, plus HELD while sectors are pending
        ("way", SECTORS, MAX_WAYS),
        ("waiter", "i4", MAX_WAYS),  # L2: first request that waits for pending sectors, -1 where none: nothing pending
        ("touches", "i8"),
        ("pad", "i8", 7),  # to whole cache lines of the host
    ],
    align=True,
)

assert CACHE_SET.fields is not None
TAGS_BYTE, AGES_BYTE, SECTORS_BYTE, WAITERS_BYTE, TOUCHES_BYTE = (
    CACHE_SET.fields[name][1] for name in ("tag", "age", "way", "waiter", "touches")
)
assert CACHE_SET.itemsize % HOST_LINE_BYTES == 0

HELD = 1 << 48
EVICT_FIRST = 1
"""Age of a line that is to go before all others."""


def make_sets(count):
    """`count` empty sets."""
    sets = np.zeros(count, CACHE_SET)
    empty_sets(sets)
    return sets


def empty_sets(sets):
    """Forget all lines."""
    sets["tag"], sets["age"], sets["way"], sets["waiter"], sets["touches"] = EMPTY, 0, 0, -1, EVICT_FIRST


@kernel(inline=True)
def expect(cache_set, ways):
    """The set will be looked at soon: warm the host's cache with its tags, ages and sectors."""
    for byte in range(0, 8 * ways, HOST_LINE_BYTES):
        prefetch(cache_set, TAGS_BYTE + byte)
        prefetch(cache_set, AGES_BYTE + byte)
    for byte in range(0, 4 * ways, HOST_LINE_BYTES):
        prefetch(cache_set, SECTORS_BYTE + byte)
        prefetch(cache_set, WAITERS_BYTE + byte)
    prefetch(cache_set, TOUCHES_BYTE)


@kernel(inline=True)
def find_way(cache_set, ways, line):
    """Way that holds `line`, -1 where none does. Looks at all ways, without a branch: the compiler makes it vectors."""
    found = np.int64(-1)
    for way in range(ways):
        found = max(found, way if cache_set.tag[way] == line else np.int64(-1))
    return found


@kernel(inline=True)
def touch(cache_set, way):
    """Make `way` the most recently used."""
    cache_set.touches += 1
    cache_set.age[way] = (cache_set.age[way] & HELD) | cache_set.touches


@kernel
def hold(cache_set, way):
    """Sectors of `way` are on their way: it cannot be replaced."""
    cache_set.age[way] |= HELD


@kernel
def release(cache_set, way):
    """All sectors of `way` have arrived."""
    cache_set.age[way] &= ~HELD


@kernel(inline=True)
def victim_way(cache_set, ways):
    """Way to replace: an empty one, else the least recently used that is not held; -1 where all are held."""
    best = np.int64(HELD) * MAX_WAYS
    for way in range(ways):
        best = min(best, cache_set.age[way] * MAX_WAYS + way)
    return best % MAX_WAYS if best < np.int64(HELD) * MAX_WAYS else np.int64(-1)


@kernel(inline=True)
def claim_way(cache_set, way, line):
    """Give `way` to `line`, all sectors empty, most recently used."""
    cache_set.tag[way] = line
    cache_set.age[way] = 0
    sectors = cache_set.way[way]
    sectors.valid = sectors.dirty = sectors.partial = sectors.pending = 0
    touch(cache_set, way)


POPCOUNT4 = np.array([0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4], np.int64)


@kernel(inline=True)
def sectors_in(mask):
    """Number of sectors in a 4-bit mask."""
    return POPCOUNT4[mask & 15]
