"""Tracker (T3): counts what comes for each wavefront's part of a tile, and marks DMA descriptors ready.

One per GPU, beside the memory controllers, fed by all channels with every update or tracked store that they take (or
have served, `CountAt`). An entry follows the tile of one workgroup; the set is picked by the tile's number. It has a
counter for each wavefront, which an update names. What is ready at a counter's threshold is the part of its wavefront,
or with the last of them the whole tile (`Granularity`). Here is who gets an entry; `sim.hw.tracker_count` counts and
triggers.

A tile gets its entry with its first local store. When its set is full the store waits in the CU; a place is kept for
every earlier workgroup that has not stored yet, so the oldest can always go on. Updates that arrive are never held:
where they come before the local stores, and no entry is free, their count is kept in memory and costs nothing (D21).
"""

import math

import numpy as np

from sim.hw.request import Op, Stream
from sim.spec import DmaPolicy
from tracer.compile.jit import compiled

MAX_SETS = 4096

COUNTERS = {
    "updates": "updates (and collective writes) counted",
    "triggers": "tiles all of whose updates have come",
    "wavefronts": "wavefronts' counters that reached their thresholds",
    "begun": "tiles that got an entry",
    "stalls": "stores that found no entry",
    "spilled": "tiles whose first update arrived while no entry was free",
    "live_max": "most tiles some of whose updates had come at once",
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
        ("used", "i4", MAX_SETS),  # entries of each set held by tiles whose local stores have begun
        ("first_ungranted", "i8"),  # tiles before it in the walk have begun
        ("first_tile", "i8"),  # of the walk (stagger)
        ("tiles", "i8"),
        ("live", "i8"),  # tiles some of whose updates have come
        ("released", "i8"),  # descriptors put into the ready list
        ("freed", "i8"),  # 1: an entry came free in this window
        ("waiting", "i8"),  # 1: a store waits for an entry
        ("given", "i8"),  # ledger: the last set of contributors that arrived, and its weight
        ("weight", "i8"),
        # counters
        ("updates", "i8"),
        ("triggers", "i8"),  # tiles all of whose updates have come
        ("wavefronts", "i8"),  # counters that reached their thresholds
        ("stalls", "i8"),  # stores that found no entry
        ("spilled", "i8"),  # tiles whose first update arrived while no entry was free
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


def tracker_bits(spec, workgroups=1 << 16):
    """Storage that the fields of a Tracker need, in bits.

    Per wavefront counter: start address, bytes, wavefront number; per entry the rest of the workgroup's number.
    """
    sets = max(1, spec.entries // spec.ways)
    wavefront_bits = max(1, math.ceil(math.log2(spec.wavefronts)))
    per_counter = spec.address_bits + spec.counter_bits + wavefront_bits + 1
    tag_bits = max(1, math.ceil(math.log2(workgroups)) - int(math.log2(sets)))
    return spec.entries * (spec.wavefronts * per_counter + tag_bits)


@compiled
def tracker_grant(tracker, tiles, tag):
    """May the workgroup of tile `tag` store? Gives it an entry with its first store. Returns False if it must wait."""
    tile = tiles[tag]
    if tile.entry == 0 or tile.begun == 1:
        return True
    if tracker.entries > 0 and not _has_place(tracker, tiles, tag):
        tracker.waiting = 1
        tracker.stalls += 1
        return False
    tile.begun = 1
    tracker.begun += 1
    tracker.used[tag % tracker.sets] += 1
    return True


@compiled
def _has_place(tracker, tiles, tag):
    """Is an entry free that no earlier workgroup will need?"""
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
    """Does a request that a channel takes concern the Tracker or the ledger?

    Updates, what arrives, and a kernel's stores into a tracked tile, which name their contributor.
    """
    if request.op == Op.READ or request.tag < 0:
        return False
    return request.op == Op.UPDATE or request.stream == Stream.COMM_WRITE or request.contributors != 0
