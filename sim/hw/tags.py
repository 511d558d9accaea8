"""Tag store of a sectored set-associative cache, used by L1 and L2: one record per set, LRU replacement.

A way holds one 128-byte line with four 32-byte sectors, each of them
    valid    all 32 bytes are here,
    partial  some bytes were written here, the rest is in memory (write-allocate without fetch),
    dirty    written here and not yet in memory,
    pending  asked for and not yet here.

The look-ups are most of what a simulation does, so a set is laid out for the host: sixteen ways are one of its cache
lines per field, and a search compares all sixteen at once (`sim.hw.bits`). For that a tag is kept in two halves: the
lower one is searched, the upper one proves the find.
"""

import numpy as np

from sim.hw.bits import BLOCK, equal_in_block, least_in_block, trailing_zeros
from sim.hw.prefetch import HOST_LINE_BYTES, host_aligned, prefetch
from tracer.jit import kernel

MAX_WAYS = 32

SECTORS = np.dtype([("valid", "i1"), ("dirty", "i1"), ("partial", "i1"), ("pending", "i1")])
"""Sector masks of one way."""

CACHE_SET = np.dtype(
    [
        ("low", "i4", MAX_WAYS),  # line number, lower 32 bits
        ("age", "i4", MAX_WAYS),  # touch number of the last touch, 0 = empty, plus HELD while sectors are pending
        ("way", SECTORS, MAX_WAYS),
        ("waiter", "i4", MAX_WAYS),  # L2: first request that waits for pending sectors, -1 where none: nothing pending
        ("high", "i4", MAX_WAYS),  # line number, upper 32 bits; EMPTY where there is no line
        ("touches", "i4"),
        ("pad", "i4", 15),  # to whole cache lines of the host
    ],
    align=True,
)

assert CACHE_SET.fields is not None
LOWS_BYTE, AGES_BYTE, SECTORS_BYTE, WAITERS_BYTE, HIGHS_BYTE, TOUCHES_BYTE = (
    CACHE_SET.fields[name][1] for name in ("low", "age", "way", "waiter", "high", "touches")
)
assert CACHE_SET.itemsize % HOST_LINE_BYTES == 0

EMPTY = np.int32(-(1 << 31))
HELD = np.int32(1 << 30)
EVICT_FIRST = np.int32(1)
"""Age of a line that is to go before all others."""


def make_sets(count):
    """`count` empty sets."""
    sets = host_aligned(count, CACHE_SET)
    empty_sets(sets)
    return sets


def empty_sets(sets):
    """Forget all lines."""
    sets["low"], sets["high"], sets["age"], sets["way"], sets["waiter"] = 0, EMPTY, 0, 0, -1
    sets["touches"] = EVICT_FIRST


@kernel(inline=True)
def _expect_block(cache_set, byte):
    prefetch(cache_set, LOWS_BYTE + byte)
    prefetch(cache_set, AGES_BYTE + byte)
    prefetch(cache_set, SECTORS_BYTE + byte)
    prefetch(cache_set, WAITERS_BYTE + byte)
    prefetch(cache_set, HIGHS_BYTE + byte)


@kernel(inline=True)
def expect(cache_set, ways):
    """The set will be looked at soon: warm the host's cache with its tags, ages and sectors."""
    _expect_block(cache_set, 0)
    if ways > BLOCK:
        _expect_block(cache_set, HOST_LINE_BYTES)
    prefetch(cache_set, TOUCHES_BYTE)


@kernel(inline=True)
def _low(line):
    """Lower 32 bits of the line number, as a signed number."""
    return np.int32((((line >> 7) + (1 << 31)) & 0xFFFFFFFF) - (1 << 31))


@kernel(inline=True)
def find_way(cache_set, ways, line):
    """Way that holds `line`, -1 where none does."""
    low = _low(line)
    found = equal_in_block(cache_set.low, 0, low)
    if ways > BLOCK:
        found |= equal_in_block(cache_set.low, BLOCK, low) << BLOCK
    found &= (1 << ways) - 1
    while found != 0:
        way = trailing_zeros(found)
        if cache_set.high[way] == line >> 39:
            return way
        found &= found - 1
    return np.int64(-1)


@kernel(inline=True)
def line_of(cache_set, way):
    """Address of the line in `way`."""
    return (np.int64(cache_set.high[way]) << 39) | ((np.int64(cache_set.low[way]) & 0xFFFFFFFF) << 7)


@kernel(inline=True)
def touch(cache_set, way):
    """Make `way` the most recently used."""
    cache_set.touches += np.int32(1)
    if cache_set.touches >= HELD:
        _renumber(cache_set)
    cache_set.age[way] = (cache_set.age[way] & HELD) | cache_set.touches


@kernel
def _renumber(cache_set):
    """Touch numbers have run out: give the lines small ones in the same order."""
    ages = cache_set.age
    done = np.int32(EVICT_FIRST)
    for _ in range(MAX_WAYS):
        oldest = -1
        for way in range(MAX_WAYS):
            age = ages[way] & ~HELD
            if age > done and (oldest < 0 or age < ages[oldest] & ~HELD):
                oldest = way
        if oldest < 0:
            break
        done += np.int32(1)
        ages[oldest] = (ages[oldest] & HELD) | done
    cache_set.touches = done + np.int32(1)


@kernel(inline=True)
def hold(cache_set, way):
    """Sectors of `way` are on their way: it cannot be replaced."""
    cache_set.age[way] |= HELD


@kernel(inline=True)
def release(cache_set, way):
    """All sectors of `way` have arrived."""
    cache_set.age[way] &= ~HELD


@kernel(inline=True)
def victim_way(cache_set, ways):
    """Way to replace: an empty one, else the least recently used that is not held; -1 where all are held."""
    oldest = least_in_block(cache_set.age, 0, ways)
    if ways > BLOCK:
        oldest = min(oldest, least_in_block(cache_set.age, BLOCK, ways - BLOCK))
    if oldest >= HELD:
        return np.int64(-1)
    found = equal_in_block(cache_set.age, 0, oldest)
    if ways > BLOCK:
        found |= equal_in_block(cache_set.age, BLOCK, oldest) << BLOCK
    return trailing_zeros(found)


@kernel(inline=True)
def claim_way(cache_set, way, line):
    """Give `way` to `line`, all sectors empty, most recently used."""
    cache_set.low[way], cache_set.high[way] = _low(line), np.int32(line >> 39)
    cache_set.age[way] = 0
    sectors = cache_set.way[way]
    sectors.valid = sectors.dirty = sectors.partial = sectors.pending = 0
    touch(cache_set, way)


POPCOUNT4 = np.array([0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4], np.int64)


@kernel(inline=True)
def sectors_in(mask):
    """Number of sectors in a 4-bit mask."""
    return POPCOUNT4[mask & 15]
