"""Tracker (T3): counts the updates of each wavefront's part of an output tile, and marks DMA descriptors ready.

One per GPU, beside the memory controllers, fed by all channels with every update that they take (or have served,
`CountAt`). An entry follows the tile of one workgroup; the set is picked by the workgroup's number. It has a counter
for each wavefront, which an update names. Where a DMA engine sent a whole tile, its packets may hold sectors of several
wavefronts: then the plan of the tile tells whose each sector is (D28). What is ready at a counter's threshold is the
part of its wavefront, or with the last of them the whole tile (`Granularity`).

A tile gets its entry with its first local store. When its set is full the store waits in the CU; a place is kept for
every earlier workgroup that has not stored yet, so the oldest can always go on. Updates that arrive are never held:
where they come before the local stores, and no entry is free, their count is kept in memory and costs nothing (D21).
The ledger counts along: which bytes of a tile came from whom, by sums of line fingerprints.
"""

import math

import numpy as np

from sim.hw.request import SECTOR_BYTES, SECTORS_PER_LINE, Op, Stream
from sim.hw.space import Map, fingerprint, wavefront_of
from sim.hw.tags import sectors_in
from sim.spec import DmaPolicy, Granularity
from tracer.jit import kernel

MAX_SETS = 4096

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


@kernel
def tracker_grant(tracker, tiles, tag):
    """May the workgroup of tile `tag` store? Gives it an entry with its first store. Returns False if it must wait."""
    tile = tiles[tag]
    if tile.threshold_bytes == 0 or tile.begun == 1:
        return True
    if tracker.entries > 0 and not _has_place(tracker, tiles, tag):
        tracker.waiting = 1
        tracker.stalls += 1
        return False
    tile.begun = 1
    tracker.begun += 1
    tracker.used[tag % tracker.sets] += 1
    return True


@kernel
def _has_place(tracker, tiles, tag):
    """Is an entry free that no earlier workgroup will need?"""
    chosen = tag % tracker.sets
    free = tracker.ways - tracker.used[chosen]
    if free <= 0:
        return False
    position = (tag - tracker.first_tile) % tracker.tiles
    while tracker.first_ungranted < tracker.tiles:
        first = tiles[(tracker.first_ungranted + tracker.first_tile) % tracker.tiles]
        if first.threshold_bytes > 0 and first.begun == 0:
            break
        tracker.first_ungranted += 1
    for earlier in range(tracker.first_ungranted, position):
        other = (earlier + tracker.first_tile) % tracker.tiles
        if other % tracker.sets == chosen and tiles[other].begun == 0 and tiles[other].threshold_bytes > 0:
            free -= 1
            if free <= 0:
                return False
    return True


@kernel
def _count_local(tile, request):
    tile.local_bytes += sectors_in(request.sectors) * SECTOR_BYTES
    tile.local_sum += fingerprint(tile, request.line, request.sectors)


@kernel
def _count_arrival(space, tile, request):
    """An update from another GPU: `request.link` is 1 + the port it came over, its set already seen from here."""
    port = np.int64(request.link) - 1
    volume = sectors_in(request.sectors) * SECTOR_BYTES
    before = tile.port_bytes[port]
    given = np.int64(request.contributors) & space.set_mask
    if before == 0:
        if tile.arrived & given != 0 or given & 1 != 0:
            tile.doubled += 1
        tile.arrived |= given
    elif tile.arrived & given != given:
        tile.doubled += 1
    tile.port_bytes[port] = before + volume
    tile.arrived_bytes += volume
    tile.arrived_sum += fingerprint(tile, request.line, request.sectors)


@kernel
def _open_gate(gates, tile, volume, now_ps):
    """Credit the gate of a tile. Returns True when it opens."""
    gate = gates[tile.gate]
    gate.arrived_bytes += volume
    if gate.arrived_bytes == gate.needed_bytes:
        gate.open_ps = now_ps
        return True
    return False


@kernel
def tracker_count(tracker, space, tiles, wavefronts, gates, released, chunk_left, request, now_ps):
    """Count one update (or collective write) that a channel has taken at now_ps.

    Args:
        released: i8[descriptors, 3], ring of (tag, wavefront or -1, ready_ps), in the order in which they became ready.
        chunk_left: i8[chunks], tiles of each chunk that have not triggered.

    Returns:
        True when a gate opened.
    """
    tile = tiles[request.tag]
    tracker.updates += 1
    opened = False
    if request.link > 0:
        _count_arrival(space, tile, request)
        if tile.gate >= 0:
            opened = _open_gate(gates, tile, sectors_in(request.sectors) * SECTOR_BYTES, now_ps)
    else:
        _count_local(tile, request)
    tile.done_ps = max(tile.done_ps, now_ps)
    if tile.threshold_bytes > 0:
        if tile.live == 0 and tile.triggers == 0:
            tile.live = 1
            tracker.live += 1
            tracker.live_max = max(tracker.live_max, tracker.live)
            if tile.begun == 0 and tracker.entries > 0 and tracker.live > tracker.entries:
                tracker.spilled += 1
        _count_wavefronts(tracker, space, tiles, wavefronts, released, chunk_left, request, now_ps)
    return opened


@kernel
def _count_wavefronts(tracker, space, tiles, wavefronts, released, chunk_left, request, now_ps):
    """Credit the counter of the wavefront that stored the data, or of each that has sectors among them."""
    tag = np.int64(request.tag)
    given = np.int64(request.contributors) & space.set_mask if request.link > 0 else np.int64(-1)
    if request.wavefront >= 0:
        number, volume = np.int64(request.wavefront), sectors_in(request.sectors) * SECTOR_BYTES
        _credit(tracker, tiles, wavefronts[tag, number], tag, number, volume, given, released, chunk_left, now_ps)
        return
    for sector in range(SECTORS_PER_LINE):
        if (request.sectors >> sector) & 1:
            number = wavefront_of(tiles[tag], request.line + sector * SECTOR_BYTES)
            _credit(
                *(tracker, tiles, wavefronts[tag, number], tag, number, SECTOR_BYTES),
                *(given, released, chunk_left, now_ps),
            )


@kernel
def _credit(tracker, tiles, wavefront, tag, number, volume, given, released, chunk_left, now_ps):
    """Count `volume` bytes of a wavefront; `given`: the set of GPUs whose sums arrived in them, -1 = own stores."""
    wavefront.counted_bytes += volume
    wavefront.done_ps = max(wavefront.done_ps, now_ps)
    if given >= 0:
        wavefront.arrived_bytes += volume
        wavefront.arrived |= given
    if wavefront.triggers == 1 or wavefront.counted_bytes < wavefront.threshold_bytes:
        return
    wavefront.triggers = 1
    tracker.wavefronts += 1
    tile = tiles[tag]
    if tile.map == Map.DMA and tile.granularity == Granularity.WAVEFRONT:
        _release(tracker, released, tag, number, wavefront.done_ps + tracker.latency_ps)
    tile.counting -= 1
    if tile.counting == 0:
        _trigger(tracker, tiles, tile, tag, released, chunk_left)


@kernel
def _trigger(tracker, tiles, tile, tag, released, chunk_left):
    """All updates of a tile have come: its entry is free, its descriptor ready."""
    tile.triggers += 1
    tile.live = 0
    tracker.live -= 1
    tracker.triggers += 1
    if tile.begun == 1:
        tracker.used[tag % tracker.sets] -= 1
        tracker.freed = 1
    ready_ps = tile.done_ps + tracker.latency_ps
    tracker.last_ps = max(tracker.last_ps, ready_ps)
    if tile.map != Map.DMA:
        return
    if tracker.by_chunk == 0:
        if tile.granularity == Granularity.WORKGROUP:
            _release(tracker, released, tag, -1, ready_ps)
        return
    chunk_left[tile.chunk] -= 1
    if chunk_left[tile.chunk] == 0:
        _release_chunk(tracker, tiles, tile.chunk, released)


@kernel
def _release_chunk(tracker, tiles, chunk, released):
    """All tiles of a chunk have come: they are ready with the last of them, in walk order."""
    ready_ps = np.int64(0)
    for k in range(tracker.tiles):
        if tiles[k].chunk == chunk and tiles[k].map == Map.DMA:
            ready_ps = max(ready_ps, tiles[k].done_ps + tracker.latency_ps)
    for k in range(tracker.tiles):
        other = (k + tracker.first_tile) % tracker.tiles
        if tiles[other].chunk == chunk and tiles[other].map == Map.DMA:
            _release(tracker, released, other, -1, ready_ps)


@kernel
def _release(tracker, released, tag, wavefront, ready_ps):
    entry = released[tracker.released % len(released)]
    entry[0] = tag
    entry[1] = wavefront
    entry[2] = ready_ps
    tracker.released += 1


@kernel
def counts(request):
    """Does a request that a channel takes concern the Tracker or the ledger?"""
    return request.tag >= 0 and (
        request.op == Op.UPDATE or (request.stream == Stream.COMM_WRITE and request.op != Op.READ)
    )
