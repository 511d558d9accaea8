"""A fixed piece of work, measured with every benchmark. Machines differ and are shared; ratios to it differ less.

The work is look-ups of random lines in a sectored, set-associative cache with LRU, with the simple code of a simulator:
one record per set (16 MB of tags in 8192 sets of 16 ways, twice as many lines in use). It is no part of the simulator.
Do not change it: old figures would lose their meaning.
"""

from time import process_time

import numpy as np

from tracer.compile.jit import compiled

WAYS = 16
SETS = 8192
LINES = 2 * SETS * WAYS
LOOKUPS = 3_000_000

CACHE_SET = np.dtype([("tag", "i8", WAYS), ("age", "i8", WAYS), ("valid", "i8", WAYS), ("touches", "i8")])


@compiled
def _look_up(sets, lookups):
    """Number of hits in `lookups` reads of one random sector each."""
    state = 88172645463325252
    hits = 0
    for _ in range(lookups):
        state ^= (state << 13) & 0x7FFFFFFFFFFFFFFF
        state ^= state >> 7
        state ^= (state << 17) & 0x7FFFFFFFFFFFFFFF
        line = state & (LINES - 1)
        cache_set = sets[line & (SETS - 1)]
        sector = 1 << ((state >> 40) & 3)
        found, oldest = -1, 0
        for way in range(WAYS):
            if cache_set.tag[way] == line:
                found = way
            if cache_set.age[way] < cache_set.age[oldest]:
                oldest = way
        if found < 0:
            found = oldest
            cache_set.tag[found] = line
            cache_set.valid[found] = 0
        cache_set.touches += 1
        cache_set.age[found] = cache_set.touches
        hits += 1 if cache_set.valid[found] & sector else 0
        cache_set.valid[found] |= sector
    return hits


def lookup_ns() -> float:
    """CPU time of one look-up in ns, measured now."""
    sets = np.zeros(SETS, CACHE_SET)
    sets["tag"] = -1
    _look_up(sets, 1)
    began_s = process_time()
    _look_up(sets, LOOKUPS)
    return (process_time() - began_s) / LOOKUPS * 1e9
