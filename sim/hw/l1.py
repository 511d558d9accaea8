"""L1 data cache of one CU: sectored, write-through, no write-allocate, lines allocated when their data arrives (D9).

A *miss entry* (MSHR) is one read request in flight. An access to sectors that are in flight joins the entry. An access
may wait for several entries; each answer ends one wait (the load table in `sim.hw.lsu` counts the waits). A way of the
set is claimed only when the answer comes. So a stream of loads never evicts lines that it has not read yet (the
"streaming" L1 of Volta; Accel-Sim's `S:` caches do the same).

Volta and later share one array between L1 and shared memory: `ways` is the part that the resident workgroups leave.
"""

import numpy as np

from sim.hw.address_map import set_of
from sim.hw.prefetch import host_record, prefetch
from sim.hw.request import LINE_BYTES
from sim.hw.tags import claim_way, expect, find_way, sectors_in, touch, victim_way
from tracer.compile.jit import compiled

MAX_ENTRIES = 1024
MAX_JOINERS = 2048
CHAINS = 256  # hash chains over the miss entries
BYPASS = -1

MISS_ENTRY = np.dtype(
    [
        ("line", "i8"),
        ("cache_set", "i4"),  # the set that the answer fills, BYPASS = none
        ("load", "i2"),  # load-table entry of the first load
        ("joiners", "i2"),  # first further load, -1 = none
        ("next", "i2"),  # next entry of the hash chain
        ("sectors", "i1"),  # asked for
        ("pad", "i1", 5),  # explicit: a copy of an array leaves hidden padding out
    ],
    align=True,
)

COUNTERS = {
    "read_sectors": "sectors read by loads",
    "read_hit_sectors": "sectors read by loads, present",
    "read_merged_sectors": "sectors read by loads, already in flight",
    "write_sectors": "sectors stored",
    "fills": "answers that filled a line",
    "entries_used_max": "largest number of miss entries (MSHRs) in use",
}
"""Counter fields of L1 and their meaning."""

L1 = host_record(
    [
        # constants
        ("first_set", "i8"),  # of this L1 in the array of sets
        ("sets", "i8"),
        ("hashed", "i8"),  # CacheIndex
        ("latency_ps", "i8"),
        ("entries", "i8"),  # miss entries (MSHRs)
        # state
        ("ways", "i8"),  # in use; 0 = the kernel's shared memory leaves no L1
        ("entries_used", "i8"),
        ("joiners_used", "i8"),
        ("free_joiner", "i8"),
        # counters
        ("read_sectors", "i8"),  # sectors read by loads
        ("read_hit_sectors", "i8"),
        ("read_merged_sectors", "i8"),  # already in flight
        ("write_sectors", "i8"),
        ("fills", "i8"),  # answers that filled a line
        ("entries_used_max", "i8"),
        # tables
        ("chain", "i2", CHAINS),
        ("free", "i2", MAX_ENTRIES),  # entries that are free: from place `entries_used` on
        ("entry", MISS_ENTRY, MAX_ENTRIES),
        ("joiner_load", "i2", MAX_JOINERS),
        ("joiner_next", "i2", MAX_JOINERS),
    ]
)

assert L1.fields is not None
CHAINS_BYTE = L1.fields["chain"][1]


def make_l1s(spec, period_ps, count):
    """L1 records and sets for `count` CUs.

    Args:
        spec: sim.spec.L1.
        period_ps: clock period of the CU.

    Returns:
        (l1s, sets): L1 records, and the number of sets that they need together.
    """
    l1s = np.zeros(count, L1)
    sets = spec.bytes // (spec.ways * LINE_BYTES)
    l1s["first_set"] = np.arange(count) * sets
    l1s["sets"], l1s["hashed"], l1s["ways"] = sets, int(spec.index), spec.ways
    l1s["latency_ps"] = spec.latency_clk * period_ps
    l1s["entries"] = min(spec.mshrs, MAX_ENTRIES)
    l1s["chain"] = -1
    l1s["free"] = np.arange(MAX_ENTRIES)
    l1s["joiner_next"] = np.append(np.arange(1, MAX_JOINERS), -1)
    return l1s, sets * count


@compiled(inline=True)
def _chain_of(line):
    # A product: lines at equal distances, as those of a tile, come into different chains (Knuth, TAOCP 3, 6.4).
    return ((line >> 7 & 0x7FFFFFFF) * 0x9E3779B1 >> 24) & (CHAINS - 1)


@compiled(inline=True)
def l1_expect_answer(l1, sets, line, e):
    """Hint to the host: the answer to miss entry `e`, of `line`, comes soon. Reads: l1."""
    prefetch(l1.entry[e], 0)
    prefetch(l1, CHAINS_BYTE + 2 * _chain_of(line))
    l1_expect(l1, sets, l1_set(l1, line))


@compiled(inline=True)
def l1_expect(l1, sets, number):
    """Hint to the host: a line of set `number` is looked up soon. Reads: l1."""
    if l1.ways > 0:
        expect(sets[number], l1.ways)


@compiled(inline=True)
def l1_set(l1, line):
    """Number of the set of a line. Reads: l1."""
    return l1.first_set + set_of(line >> 7, l1.sets, l1.hashed)


@compiled(inline=True)
def l1_hit_sectors(l1, sets, number, line, sectors):
    """Mask of those `sectors` that are in the cache. Makes the line the most recently used.

    number: of the line's set. Reads: l1. Writes: sets.
    """
    if l1.ways == 0:
        return 0
    cache_set = sets[number]
    way = find_way(cache_set, l1.ways, line)
    if way < 0:
        return 0
    touch(cache_set, l1.ways, way)
    return sectors & cache_set.way[way].valid


@compiled(inline=True)
def l1_join(l1, line, sectors, load):
    """`load` waits for those `sectors` that are in flight.

    Returns:
        (joined, waits): mask of the sectors in flight, and the number of entries that the load now waits for.

    Writes: l1.
    """
    joined = 0
    waits = 0
    e = np.int64(l1.chain[_chain_of(line)])
    while e >= 0:
        entry = l1.entry[e]
        overlap = sectors & entry.sectors & ~joined
        if entry.line == line and overlap != 0 and entry.cache_set != BYPASS:
            j = np.int64(l1.free_joiner)
            l1.free_joiner = l1.joiner_next[j]
            l1.joiners_used += 1
            l1.joiner_load[j] = load
            l1.joiner_next[j] = entry.joiners
            entry.joiners = j
            joined |= overlap
            waits += 1
        e = np.int64(entry.next)
    return joined, waits


@compiled(inline=True)
def l1_has_room(l1):
    """Is there room for any line access? (At most four entries hold sectors of one line.) Reads: l1."""
    return l1.entries_used < l1.entries and l1.joiners_used <= MAX_JOINERS - 4


@compiled(inline=True)
def l1_miss(l1, line, sectors, load, number):
    """Open a miss entry for `sectors`. Returns its number, which the request and its answer carry. Writes: l1.

    number: of the set that the answer fills, BYPASS if it does not fill the cache.
    """
    e = np.int64(l1.free[l1.entries_used])
    entry = l1.entry[e]
    l1.entries_used += 1
    l1.entries_used_max = max(l1.entries_used_max, l1.entries_used)
    entry.line = line
    entry.sectors = sectors
    entry.load = load
    entry.joiners = -1
    entry.cache_set = number
    chain = _chain_of(line)
    entry.next = l1.chain[chain]
    l1.chain[chain] = e
    return e


@compiled(inline=True)
def l1_fill(l1, sets, e):
    """Put the arrived data of entry `e` in the cache, unless bypassed. The entry stays open for its loads.

    Writes: l1, sets.
    """
    entry = l1.entry[e]
    if entry.cache_set == BYPASS or l1.ways == 0:
        return
    l1.fills += 1
    cache_set = sets[entry.cache_set]
    way = find_way(cache_set, l1.ways, entry.line)
    if way < 0:
        way = victim_way(cache_set, l1.ways)
        claim_way(cache_set, l1.ways, way, entry.line)
    cache_set.way[way].valid |= entry.sectors


@compiled(inline=True)
def l1_close(l1, e):
    """Free entry `e` and its joiners. Writes: l1."""
    entry = l1.entry[e]
    j = np.int64(entry.joiners)
    while j >= 0:
        following = np.int64(l1.joiner_next[j])
        l1.joiner_next[j] = l1.free_joiner
        l1.free_joiner = j
        l1.joiners_used -= 1
        j = following
    chain = _chain_of(entry.line)
    before = np.int64(l1.chain[chain])
    if before == e:
        l1.chain[chain] = entry.next
    else:
        while l1.entry[before].next != e:
            before = np.int64(l1.entry[before].next)
        l1.entry[before].next = entry.next
    l1.entries_used -= 1
    l1.free[l1.entries_used] = e


@compiled
def l1_write(l1, sectors):
    """Count a store, which passes through. It updates valid sectors in place, so no state changes. Writes: l1."""
    l1.write_sectors += sectors_in(sectors)
