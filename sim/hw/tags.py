"""Tag store of a sectored set-associative cache, used by L1, L2 and MSC: one record per set. L1 replaces by LRU.

A way holds one 128-byte line with four 32-byte sectors. A sector may be
    valid    all 32 bytes are present,
    partial  some bytes were written here, the rest is in memory (write-allocate without fetch),
    dirty    written here and not yet in memory,
    pending  requested and not yet present.

Look-ups take most of a simulation's time, so the layout of a set fits the host. An access to sixteen ways needs three
cache lines of the host, and a search compares all sixteen at once (`sim.hw.bits`). So a tag has two parts: the lower
part is searched, the upper part confirms the match.
"""

import numpy as np

from sim.hw.bits import (
    BLOCK,
    at_least_in_block,
    equal_in_block,
    greatest_in_block,
    least_in_block,
    trailing_zeros,
)
from sim.hw.prefetch import HOST_LINE_BYTES, host_aligned, host_record, prefetch
from sim.policies import Replacement
from tracer.compile.jit import compiled
from tracer.compile.ones import ones

MAX_WAYS = 32
LOW_BITS, HIGH_BITS = 32, 15
ADDRESS_BITS = 7 + LOW_BITS + HIGH_BITS
"""Bits of an address. The bits above are left out (D31)."""

SECTORS = np.dtype([("valid", "i1"), ("dirty", "i1"), ("partial", "i1"), ("pending", "i1")])
"""Sector masks of one way."""

WAY_BLOCK = np.dtype(
    [
        ("age", "i2", BLOCK),  # touch number of the last touch, 0 = empty, plus HELD while sectors are pending
        ("high", "i2", BLOCK),  # line number, upper bits
    ]
)
"""Sixteen ways."""

CACHE_SET = host_record(
    [
        ("low", "i4", MAX_WAYS),  # line number, lower bits
        ("block", WAY_BLOCK, MAX_WAYS // BLOCK),
        ("way", SECTORS, MAX_WAYS),
        ("waiter", "i4", MAX_WAYS),  # first request that waits for pending sectors (its place)
        ("waits", "i2", MAX_WAYS),  # L2: and the number of such requests
    ]
)

assert CACHE_SET.fields is not None
LOWS_BYTE, BLOCKS_BYTE, SECTORS_BYTE, WAITERS_BYTE = (
    CACHE_SET.fields[name][1] for name in ("low", "block", "way", "waiter")
)

EMPTY = np.int16(-(1 << HIGH_BITS))
"""Upper tag bits of an empty way: no line has them."""
HELD = 1 << 14
EVICT_FIRST = 1
"""Age of a line that is evicted before all others."""


def make_sets(count):
    """`count` empty sets."""
    sets = host_aligned(count, CACHE_SET)
    empty_sets(sets)
    return sets


def empty_sets(sets):
    """Forget all lines."""
    one = np.zeros(1, CACHE_SET)
    one["waiter"], one["block"]["high"] = -1, EMPTY
    sets.view(np.uint64).reshape(len(sets), CACHE_SET.itemsize // 8)[...] = one.view(
        np.uint64
    )  # copied as a whole, not field by field


@compiled(inline=True)
def _expect_block(cache_set, byte):
    prefetch(cache_set, LOWS_BYTE + byte)
    prefetch(cache_set, BLOCKS_BYTE + byte)
    prefetch(cache_set, SECTORS_BYTE + byte)


@compiled(inline=True)
def expect(cache_set, ways):
    """Load the set's tags, ages and sectors into the host's cache: it is used soon."""
    _expect_block(cache_set, 0)
    if ways > BLOCK:
        _expect_block(cache_set, HOST_LINE_BYTES)


@compiled(inline=True)
def _low(line):
    """Lower part of the line number, signed."""
    return np.int32((((line >> 7) + (1 << 31)) & 0xFFFFFFFF) - (1 << 31))


@compiled(inline=True)
def canonical(line):
    """The address of a line in the machine's form: ADDRESS_BITS wide, never negative (a DRAM row of -1 is none)."""
    return line & (1 << ADDRESS_BITS) - 1


@compiled(inline=True)
def find_way(cache_set, ways, line):
    """Way that holds `line`, a canonical address; -1 if no way does. Reads: cache_set."""
    low = _low(line)
    found = equal_in_block(cache_set.low, 0, low)
    if ways > BLOCK:
        found |= equal_in_block(cache_set.low, BLOCK, low) << BLOCK
    found &= (1 << ways) - 1
    while found != 0:
        way = trailing_zeros(found)
        if cache_set.block[way >> 4].high[way & 15] == line >> 7 + LOW_BITS:
            return way
        found &= found - 1
    return np.int64(-1)


@compiled(inline=True)
def line_of(cache_set, way):
    """Address of the line in `way`. Reads: cache_set."""
    upper = np.int64(cache_set.block[way >> 4].high[way & 15]) << LOW_BITS
    return (upper | (np.int64(cache_set.low[way]) & 0xFFFFFFFF)) << 7


@compiled(inline=True)
def touch(cache_set, ways, way):
    """Make `way` the most recently used of the `ways`. Writes: cache_set."""
    newest = greatest_in_block(cache_set.block[0].age, 0, HELD - 1)
    if ways > BLOCK:
        newest = max(newest, greatest_in_block(cache_set.block[1].age, 0, HELD - 1))
    if newest == HELD - 1:
        newest = _renumber(cache_set)
    ages = cache_set.block[way >> 4].age
    ages[way & 15] = (ages[way & 15] & HELD) | max(newest + 1, EVICT_FIRST + 1)


@compiled
def _renumber(cache_set):
    """All touch numbers are used: give the lines small numbers in the same order. Returns the largest."""
    done = EVICT_FIRST
    for _ in range(MAX_WAYS):
        oldest = -1
        least = HELD
        for way in range(MAX_WAYS):
            age = np.int64(cache_set.block[way >> 4].age[way & 15]) & ~HELD
            if done < age < least:
                oldest, least = way, age
        if oldest < 0:
            break
        done += 1
        ages = cache_set.block[oldest >> 4].age
        ages[oldest & 15] = (ages[oldest & 15] & HELD) | done
    return done


@compiled(inline=True)
def hold(cache_set, way):
    """Sectors of `way` are pending: it cannot be replaced. Writes: cache_set."""
    cache_set.block[way >> 4].age[way & 15] |= HELD


@compiled(inline=True)
def release(cache_set, way):
    """All sectors of `way` have arrived. Writes: cache_set."""
    cache_set.block[way >> 4].age[way & 15] &= ~HELD


@compiled(inline=True)
def evict_first(cache_set, way):
    """Make `way` the next victim. Writes: cache_set."""
    cache_set.block[way >> 4].age[way & 15] = EVICT_FIRST


@compiled(inline=True)
def goes_first(cache_set, way):
    """Is `way` empty, or a line that is evicted before all others? Reads: cache_set."""
    return cache_set.block[way >> 4].age[way & 15] & ~HELD <= EVICT_FIRST


@compiled(inline=True)
def victim_way(cache_set, ways):
    """Way to replace: an empty way, else the least recently used way that is not held; -1 if all are held.

    Reads: cache_set.
    """
    oldest = least_in_block(cache_set.block[0].age, 0, ways)
    if ways > BLOCK:
        oldest = min(oldest, least_in_block(cache_set.block[1].age, 0, ways - BLOCK))
    if oldest >= HELD:
        return np.int64(-1)
    found = equal_in_block(cache_set.block[0].age, 0, oldest)
    if ways > BLOCK:
        found |= equal_in_block(cache_set.block[1].age, 0, oldest) << BLOCK
    return trailing_zeros(found)


@compiled
def two_are_free(cache_set, ways):
    """Are two ways or more not held? Reads: cache_set."""
    held = at_least_in_block(cache_set.block[0].age, 0, HELD)
    if ways > BLOCK:
        held |= at_least_in_block(cache_set.block[1].age, 0, HELD) << BLOCK
    free = ~held & ((1 << ways) - 1)
    return free & (free - 1) != 0


@compiled
def _random_way(cache_set, ways, way, number):
    """Way to replace, if `way` is the choice of `victim_way`.

    An empty way and a line that goes first stay the choice, else it is any way not held.

    number: of the victim, counted over all victims; it selects the way. Reads: cache_set.
    """
    if cache_set.block[way >> 4].age[way & 15] <= EVICT_FIRST:
        return way
    first = (((number + 1) * 0x9E3779B1) >> 15) % ways
    for k in range(ways):
        chosen = (first + k) % ways
        if cache_set.block[chosen >> 4].age[chosen & 15] < HELD:
            return chosen
    return way


@compiled(inline=True)
def next_victim(cache, cache_set):
    """Way to replace by the policy of the cache (an L2 bank or a slice of the MSC); -1 if all are held.

    Reads: cache_set. Writes: cache.victims.
    """
    way = victim_way(cache_set, cache.ways)
    if way >= 0 and cache.replacement == Replacement.RANDOM:
        way = _random_way(cache_set, cache.ways, way, cache.victims)
        cache.victims += 1
    return way


@compiled(inline=True)
def claim_way(cache_set, ways, way, line):
    """Assign `way` to `line`, a canonical address. All sectors are empty; the way is the most recently used.

    Writes: cache_set.
    """
    block = cache_set.block[way >> 4]
    cache_set.low[way], block.high[way & 15] = _low(line), np.int16(line >> 7 + LOW_BITS)
    sectors = cache_set.way[way]
    sectors.valid = sectors.dirty = sectors.partial = sectors.pending = 0
    touch(cache_set, ways, way)


@compiled(inline=True)
def sectors_in(mask):
    """Number of sectors in a 4-bit mask."""
    return ones(mask & 15)
