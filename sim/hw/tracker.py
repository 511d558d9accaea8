"""Tracker (T3): counts the bytes that come for each wavefront's part of a tile, and marks DMA descriptors ready.

There is one Tracker per GPU, beside the memory controllers. All channels report every update or tracked store that they
accept (or serve, `CountAt`). An entry follows the tile of one workgroup; the tile's number selects the set. An entry
has a counter for each wavefront. An update names its wavefront. When a counter reaches its threshold, the wavefront's
part is ready, or with the last counter the whole tile (`Granularity`). This file gives entries to tiles;
`sim.hw.tracker_count` counts and triggers.

The first local store of a tile asks for its entry. The grant reaches the CU a lookahead of the engine later. If the set
is full, the store waits in the CU. One entry is reserved for every earlier workgroup that has not stored yet, so the
oldest workgroup can always continue. Updates that arrive are never held. If they come before the local stores, they
take no entry: memory keeps their count at no cost (D21).
"""

import math

import numpy as np

from sim.hw.request import Op, Stream
from sim.spec import DmaPolicy
from tracer.compile.jit import compiled

MAX_SETS = 4096

COUNTERS = {
    "updates": "updates (and collective writes) counted",
    "triggers": "tiles that have all their updates",
    "wavefronts": "wavefront counters that reached their thresholds",
    "begun": "tiles that got an entry",
    "stalls": "workgroups that waited because no entry was free",
    "spilled": "tiles whose first update made more tiles live (some, not all, updates) than there are entries",
    "live_max": "largest number of tiles with some, not all, of their updates",
}
"""Counter fields of TRACKER and their meaning."""

TRACKER = np.dtype(
    [
        # constants
        ("entries", "i8"),  # 0 = no limit
        ("sets", "i8"),
        ("ways", "i8"),
        ("latency_ps", "i8"),
        ("by_chunk", "i8"),  # 1: descriptors are released a chunk at a time
        # state
        ("used", "i4", MAX_SETS),  # per set: entries held by tiles whose local stores have begun
        ("first_ungranted", "i8"),  # all tiles before it in the walk have begun
        ("first_tile", "i8"),  # of the walk (stagger)
        ("tiles", "i8"),
        ("live", "i8"),  # tiles that have some of their updates, not all
        ("released", "i8"),  # descriptors put into the ready list
        ("freed", "i8"),  # 1 + the set in which an entry was freed just now, 0 = none
        ("waiting", "i8"),  # workgroups that wait for an entry
        ("given", "i8"),  # ledger: the last set of contributors that arrived; the next field is its weight
        ("weight", "i8"),
        # counters
        ("updates", "i8"),
        ("triggers", "i8"),  # tiles that have all their updates
        ("wavefronts", "i8"),  # counters that reached their thresholds
        ("stalls", "i8"),  # workgroups that waited because no entry was free
        ("spilled", "i8"),  # tiles whose first update arrived while `live` had reached `entries`
        ("live_max", "i8"),
        ("last_ps", "i8"),  # of the last trigger
        ("begun", "i8"),
    ],
    align=True,
)


def make_tracker(spec, dma_policy):
    """The Tracker of one GPU (an array of one). spec: sim.spec.Tracker."""
    tracker = np.zeros(1, TRACKER)
    tracker["entries"], tracker["ways"] = spec.entries, spec.ways
    tracker["sets"] = max(1, spec.entries // spec.ways)
    tracker["latency_ps"] = spec.latency_ps
    tracker["by_chunk"] = dma_policy == DmaPolicy.CHUNK
    return tracker


def tracker_bits(spec):
    """Storage of the fields of a Tracker, in bits.

    Per wavefront counter: start address, bytes, wavefront number, valid. Per entry: the tag of one of 2^16
    workgroups, without the bits that its set knows.
    """
    sets = max(1, spec.entries // spec.ways)
    wavefront_bits = max(1, math.ceil(math.log2(spec.wavefronts)))
    per_counter = spec.address_bits + spec.counter_bits + wavefront_bits + 1
    tag_bits = max(1, 16 - int(math.log2(sets)))
    return spec.entries * (spec.wavefronts * per_counter + tag_bits)


@compiled
def tracker_grant(tracker, tiles, tag, granted_ps):
    """Give tile `tag` an entry if one is free: its workgroup may store from granted_ps on. Returns False if none is.

    Writes: tracker, tiles.
    """
    tile = tiles[tag]
    if tile.entry == 0 or tile.begun == 1:
        return True
    if tracker.entries > 0 and not _has_place(tracker, tiles, tag):
        return False
    tile.begun = 1
    tile.granted_ps = granted_ps
    tracker.begun += 1
    tracker.used[tag % tracker.sets] += 1
    return True


@compiled
def _has_place(tracker, tiles, tag):
    """Is an entry free that is not reserved for an earlier workgroup?"""
    chosen = tag % tracker.sets
    free = tracker.ways - tracker.used[chosen]
    if free <= 0:
        return False
    position = (tag - tracker.first_tile) % tracker.tiles
    while tracker.first_ungranted < tracker.tiles:
        first = tiles[(tracker.first_ungranted + tracker.first_tile) % tracker.tiles]
        if first.entry == 1 and first.begun == 0:
            break
        tracker.first_ungranted += 1
    for earlier in range(tracker.first_ungranted, position):
        other = (earlier + tracker.first_tile) % tracker.tiles
        if other % tracker.sets == chosen and tiles[other].begun == 0 and tiles[other].entry == 1:
            free -= 1
            if free <= 0:
                return False
    return True


@compiled
def counts(request):
    """Must the Tracker or the ledger count a request that a channel takes?

    They count updates, arrivals, and a kernel's stores into a tracked tile, which name their contributor.

    Reads: request.
    """
    if request.op == Op.READ or request.tag < 0:
        return False
    return request.op == Op.UPDATE or request.stream == Stream.COMM_WRITE or request.contributors != 0
