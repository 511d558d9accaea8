"""Counting in the Tracker: an update (or tracked store) credits the counter of a wavefront, which triggers at its
threshold.

An update names the wavefront that stored it. Packets of a DMA engine that sent a whole tile may hold sectors of several
wavefronts. Then the plan of the tile gives the wavefront of each sector (D28). When the last counter of a tile reaches
its threshold, its entry is free. The ledger counts too: it records which bytes of a tile came from which GPU, as
weighted sums of line fingerprints.
"""

import numpy as np

from sim.hw.dma import COMMAND
from sim.hw.request import SECTOR_BYTES, SECTORS_PER_LINE
from sim.hw.space import contributor_weight, fingerprint, share_weight, wavefront_of
from sim.hw.tags import sectors_in
from sim.spec import Granularity
from tracer.compile.jit import compiled


@compiled
def _count_local(tile, request):
    tile.local_bytes += sectors_in(request.sectors) * SECTOR_BYTES
    tile.local_sum += fingerprint(tile, request.line, request.sectors) * share_weight(np.int64(request.share))


@compiled
def _count_arrival(tracker, space, tile, request):
    """Count data of another GPU. Its set of contributors is already in this GPU's numbering."""
    given = request.contributors & space.set_mask
    if given != tracker.given:
        tracker.given, tracker.weight = given, contributor_weight(given)
    tile.arrived |= given
    tile.arrived_bytes += sectors_in(request.sectors) * SECTOR_BYTES
    weight = np.int64(tracker.weight) * share_weight(np.int64(request.share))
    tile.arrived_sum += fingerprint(tile, request.line, request.sectors) * weight


@compiled
def _open_gate(gates, tile, volume, now_ps):
    """Credit the gate of a tile. Returns True when it opens."""
    gate = gates[tile.gate]
    gate.arrived_bytes += volume
    if gate.arrived_bytes == gate.needed_bytes:
        gate.open_ps = now_ps
        return True
    return False


@compiled
def tracker_count(tracker, space, tiles, wavefronts, gates, released, chunk_left, request, now_ps):
    """Count one update, tracked store or collective write that a channel has taken at now_ps.

    Args:
        released: i8[descriptors, 5], ring of (tag, wavefront or -1, ready_ps, number of the tile's send, descriptors of
            the command that begins with it: COMMAND), in the order in which they became ready.
        chunk_left: i8[chunks], tiles of each chunk that have not triggered.

    Returns:
        True when a gate opened.

    Reads: space, request. Writes: tracker, tiles, wavefronts, gates, released, chunk_left.
    """
    tile = tiles[request.tag]
    tracker.updates += 1
    opened = False
    if request.link > 0:
        _count_arrival(tracker, space, tile, request)
        if tile.gate >= 0 and tile.threshold_bytes == 0:
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
        triggers = tile.triggers
        _count_wavefronts(tracker, space, tiles, wavefronts, released, chunk_left, request, now_ps)
        if tile.gate >= 0 and tile.triggers > triggers:
            opened = _open_gate(gates, tile, tile.bytes, tile.done_ps + tracker.latency_ps)
    return opened


@compiled
def _count_wavefronts(tracker, space, tiles, wavefronts, released, chunk_left, request, now_ps):
    """Credit the counter of the wavefront that stored the data, or of each wavefront with sectors in the packet."""
    tag = np.int64(request.tag)
    given, came = request.contributors & space.set_mask, request.link > 0
    if request.wavefront >= 0:
        number, volume = np.int64(request.wavefront), sectors_in(request.sectors) * SECTOR_BYTES
        _credit(tracker, tiles, wavefronts[tag, number], tag, number, volume, came, given, released, chunk_left, now_ps)
        return
    for sector in range(SECTORS_PER_LINE):
        if (request.sectors >> sector) & 1:
            number = wavefront_of(tiles[tag], request.line + sector * SECTOR_BYTES)
            _credit(
                *(tracker, tiles, wavefronts[tag, number], tag, number, SECTOR_BYTES),
                *(came, given, released, chunk_left, now_ps),
            )


@compiled
def _credit(tracker, tiles, wavefront, tag, number, volume, came, given, released, chunk_left, now_ps):
    """Count `volume` bytes of a wavefront. came: from another GPU, with the sums of the GPUs of the set `given`."""
    wavefront.counted_bytes += volume
    wavefront.done_ps = max(wavefront.done_ps, now_ps)
    if came:
        wavefront.arrived_bytes += volume
        wavefront.arrived |= given
    if wavefront.triggers == 1 or wavefront.counted_bytes < wavefront.threshold_bytes:
        return
    wavefront.triggers = 1
    tracker.wavefronts += 1
    tile = tiles[tag]
    if tile.granularity == Granularity.WAVEFRONT:
        _release(tracker, released, tile, tag, number, wavefront.done_ps + tracker.latency_ps)
    tile.counting -= 1
    if tile.counting == 0:
        _trigger(tracker, tiles, tile, tag, released, chunk_left)


@compiled
def _trigger(tracker, tiles, tile, tag, released, chunk_left):
    """All updates of a tile have come: free its entry, make its descriptor ready."""
    tile.triggers += 1
    tile.live = 0
    tracker.live -= 1
    tracker.triggers += 1
    if tile.begun == 1:
        tracker.used[tag % tracker.sets] -= 1
        tracker.freed = 1 + tag % tracker.sets
    ready_ps = tile.done_ps + tracker.latency_ps
    tracker.last_ps = max(tracker.last_ps, ready_ps)
    if tracker.by_chunk == 0:
        if tile.granularity == Granularity.WORKGROUP:
            _release(tracker, released, tile, tag, -1, ready_ps)
        return
    if tile.sends == 0:
        return
    chunk_left[tile.chunk] -= 1
    if chunk_left[tile.chunk] == 0:
        _release_chunk(tracker, tiles, tile.chunk, released)


@compiled
def _release_chunk(tracker, tiles, chunk, released):
    """All tiles of a chunk are complete: a command for each GPU they go to, ready at the time of the last tile."""
    ready_ps, sends = np.int64(0), np.int64(0)
    for k in range(tracker.tiles):
        if tiles[k].chunk == chunk and tiles[k].sends > 0 and tiles[k].threshold_bytes > 0:
            ready_ps = max(ready_ps, tiles[k].done_ps + tracker.latency_ps)
            sends = max(sends, tiles[k].sends)
    for number in range(sends):
        first = tracker.released
        for k in range(tracker.tiles):
            other = (k + tracker.first_tile) % tracker.tiles
            if tiles[other].chunk == chunk and tiles[other].threshold_bytes > 0 and number < tiles[other].sends:
                _append(tracker, released, other, -1, ready_ps, number)
        released[first % len(released), COMMAND] = tracker.released - first


@compiled
def _release(tracker, released, tile, tag, wavefront, ready_ps):
    """Append a descriptor to the ready list, for each GPU that the tile goes to."""
    for number in range(tile.sends):
        _append(tracker, released, tag, wavefront, ready_ps, number)


@compiled
def _append(tracker, released, tag, wavefront, ready_ps, number):
    """Append a descriptor to the ready list, as a command of its own."""
    entry = released[tracker.released % len(released)]
    entry[0] = tag
    entry[1] = wavefront
    entry[2] = ready_ps
    entry[3] = number
    entry[COMMAND] = 1
    tracker.released += 1
