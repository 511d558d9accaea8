"""Memory-side cache: one slice per memory channel, between L2 (and links and DMA engines) and the HBM channel.

It takes at most one request per `line_ps`. There are fifos before it (`sim.hw.lanes`) and one per stream behind it. The
order within a fifo stays. Among them, the head that has waited longest goes first. A stream that lacks room waits until
the credit comes, or data. It does not block the others.

Without storage (`msc.bytes = 0`) every request reaches the channel `latency_ps` after it was taken, and data of reads
bypass the unit. With storage it is a sectored set-associative cache of memory (`sim.hw.tags`), for all requests
whatever their cache policy in L2. Requests to the channel then leave at once, and every answer takes `latency_ps`:

* Read: sectors that are present are answered. Sectors in flight are waited for. The others are requested from the
  channel. Their data fill the line, and each waiting request that is now complete is answered.
* Write: allocates without a fetch. With `write_back` the sectors stay dirty until their line is evicted. Otherwise the
  write goes on to the channel, and a copy of its whole sectors stays.
* Near-memory update: goes on to the channel. Dirty sectors of the line are written back first, copies are dropped.

Bandwidth of fills is not limited, nor that of answers (D40).
"""

import numpy as np

from sim.hw.address_map import channel_local, set_of
from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_pop, fifo_push_copy, fifo_request, fifo_room_ps, fifo_take
from sim.hw.lanes import LANES, lane_head_ps, note_shared
from sim.hw.prefetch import host_aligned
from sim.hw.request import LINE_BYTES, NEVER, REQUEST, SECTOR_BYTES, STREAMS, Op, Stream
from sim.hw.tags import claim_way, expect, find_way, hold, line_of, random_way, release, sectors_in, touch, victim_way
from sim.spec import Replacement
from tracer.compile.jit import compiled
from traces.units import whole_period_ps

AHEAD = 8
"""The sets of so many requests of a fifo are prefetched on the host."""

COUNTERS = {
    "requests": "requests taken, per stream",
    "bytes": "bytes that the requests read or write, whole sectors, per stream",
    "blocked_ps": "time in which the oldest request waited for room, per stream",
    "read_sectors": "sectors that reads requested from a cache with storage",
    "read_hit_sectors": "sectors read, present",
    "read_merged_sectors": "sectors read, already in flight",
    "read_miss_sectors": "sectors read, requested from DRAM",
    "write_sectors": "sectors of writes that a cache with storage took",
    "writeback_sectors": "dirty sectors written back",
    "misses_used_max": "largest number of lines in flight",
}
"""Counter fields of MSC and their meaning."""

MSC = np.dtype(
    [
        # constants
        ("line_ps", "i8"),  # from request to request
        ("pass_ps", "i8"),  # request taken -> request at the channel
        ("answer_ps", "i8"),  # hit, or data from the channel -> data leave
        ("lanes", LANES),  # fifos from which requests come
        ("out_fifo", "i8", STREAMS),  # fifos of the channel
        ("fills", "i8"),  # fifo of data from the channel
        ("answers", "i8"),  # fifo of data for L2 banks
        ("data", "i8"),  # fifo of data for DMA engines, -1 = none
        ("interleave_bytes", "i8"),
        ("channels", "i8"),
        ("first_set", "i8"),
        ("sets", "i8"),  # 0 = no storage
        ("ways", "i8"),
        ("index", "i8"),  # CacheIndex of the sets
        ("replacement", "i8"),
        ("write_back", "i8"),
        ("misses", "i8"),  # lines in flight at most
        # state
        ("next_ps", "i8"),  # it takes no request before this time
        ("sent_ps", "i8"),  # when the channel sees the oldest request sent in this window; NEVER = none
        ("room_ps", "i8"),  # when there is room that a stream waits for, NEVER = not known yet
        ("tried_ps", "i8"),  # when that stream tried
        ("blocked", "i8"),  # 1: a stream waits for room
        ("blocked_since_ps", "i8", STREAMS),  # -1 = it does not wait
        ("misses_used", "i8"),
        ("free_waiter", "i8"),
        ("victims", "i8"),  # victims drawn so far (RANDOM)
        # counters
        ("requests", "i8", STREAMS),
        ("bytes", "i8", STREAMS),
        ("blocked_ps", "i8", STREAMS),
        *((name, "i8") for name in ("read_sectors", "read_hit_sectors", "read_merged_sectors", "read_miss_sectors")),
        *((name, "i8") for name in ("write_sectors", "writeback_sectors", "misses_used_max")),
    ],
    align=True,
)


def make_mscs(machine, wiring):
    """The slices of one GPU; no record if the machine has no such unit.

    Args:
        machine: sim.spec.Machine.
        wiring: dict of fifo numbers, each an array over channels: in_fifo, fabric_fifo and out_fifo (channels,
            STREAMS), fills, answers, data.

    Returns:
        (mscs, waiters, sets): arrays of MSC and of REQUEST (places where reads wait), and the number of cache sets.
    """
    spec, hbm = machine.msc, machine.hbm
    count = hbm.channels if spec.present else 0
    mscs = np.zeros(count, MSC)
    sets = spec.bytes // (hbm.channels * spec.ways * LINE_BYTES)
    period_ps = whole_period_ps(spec.clock_MHz)
    mscs["line_ps"] = max(1, round(period_ps / spec.lines_per_clk))
    mscs["answer_ps" if sets else "pass_ps"] = spec.latency_clk * period_ps
    for name, fifos in wiring.items():
        (mscs["lanes"] if name in LANES.names else mscs)[name] = fifos[:count]
    note_shared(mscs["lanes"])
    mscs["interleave_bytes"], mscs["channels"] = hbm.interleave_bytes, hbm.channels
    mscs["first_set"], mscs["sets"], mscs["ways"] = np.arange(count) * sets, sets, spec.ways
    mscs["index"], mscs["replacement"] = spec.index, spec.replacement
    mscs["write_back"] = spec.write_back and sets > 0
    mscs["misses"] = spec.mshrs
    mscs["sent_ps"], mscs["blocked_since_ps"] = NEVER, -1
    places = spec.mshrs * spec.mshr_merges if sets else 0
    waiters = host_aligned(count * places, REQUEST)
    if places:
        waiters["next"] = np.arange(1, count * places + 1)
        waiters["next"][places - 1 :: places] = -1
    mscs["free_waiter"] = np.arange(count) * places
    return mscs, waiters, sets * count


@compiled
def _set_of(msc, sets, line):
    number = channel_local(line, msc.interleave_bytes, msc.channels) // LINE_BYTES
    return sets[msc.first_set + set_of(number, msc.sets, msc.index)]


@compiled(inline=True)
def _room_ps(msc, fifos, pool, stream):
    """When there is room towards the channel for the head of a stream: for itself and what is written back for it."""
    out = fifos[msc.out_fifo[stream]]
    room_ps = fifo_room_ps(out, pool, out.tail + msc.write_back)
    if msc.write_back == 1:
        writes = fifos[msc.out_fifo[Stream.COMPUTE_WRITE]]
        room_ps = max(room_ps, fifo_room_ps(writes, pool, writes.tail + 1))
    return room_ps


@compiled
def msc_expect(msc, sets, fifos, pool):
    """Prefetch the sets of a slice with storage that is simulated soon. Reads: msc, sets, fifos, pool."""
    for place in range(STREAMS + 1):
        fifo = fifos[msc.lanes.in_fifo[place] if place < STREAMS else msc.fills]
        for number in range(fifo.head, min(fifo.tail, fifo.head + AHEAD)):
            expect(_set_of(msc, sets, fifo_request(fifo, pool, number).line), msc.ways)


@compiled
def msc_step(msc, sets, waiters, fifos, pool, now_ps):
    """Take the data from memory that are due, then at most one request.

    Reads and writes a record of MSC, its sets, waiters and fifos, and their pool.

    Returns:
        When it can act next, as far as known. NEVER if it is empty or waits for data or credits of unknown time.
    """
    wake_ps = NEVER
    if msc.sets > 0:
        fills = fifos[msc.fills]
        while fifo_head_ps(fills, pool) <= now_ps:
            _fill(msc, sets, waiters, fifos, pool, fifo_head(fills, pool), now_ps)
            fifo_pop(fills)
        wake_ps = fifo_head_ps(fills, pool)
    if now_ps < msc.next_ps:
        return min(wake_ps, msc.next_ps)
    msc.blocked = 0
    msc.room_ps = NEVER
    msc.tried_ps = now_ps
    chosen = -1
    chosen_ps = NEVER
    for stream in range(STREAMS):
        head_ps = lane_head_ps(msc.lanes, stream, fifos, pool)
        if head_ps > now_ps:
            wake_ps = min(wake_ps, head_ps)
            continue
        room_ps = _room_ps(msc, fifos, pool, stream)
        if room_ps > now_ps:
            msc.blocked = 1
            msc.room_ps = min(msc.room_ps, room_ps)
            _block(msc, stream, now_ps)
        elif msc.sets > 0 and _head(msc, fifos, pool, stream).op == Op.READ and not _has_places(msc):
            _block(msc, stream, now_ps)
        elif head_ps < chosen_ps:
            chosen, chosen_ps = stream, head_ps
    if chosen < 0:
        return min(wake_ps, msc.room_ps)
    if not _take(msc, sets, waiters, fifos, pool, chosen, now_ps):
        _block(msc, chosen, now_ps)
        return min(wake_ps, msc.room_ps)
    return min(wake_ps, msc.next_ps)


@compiled(inline=True)
def _head(msc, fifos, pool, stream):
    """The head of a stream that has one."""
    return fifo_head(fifos[msc.lanes.head_fifo[stream]], pool)


@compiled(inline=True)
def _has_places(msc):
    """Are a miss entry and a waiting place free?"""
    return msc.misses_used < msc.misses and msc.free_waiter >= 0


@compiled
def msc_retry_ps(msc, fifos, pool):
    """When a slice that waits for room can continue, as far as known. Reads: msc, fifos, pool."""
    retry_ps = NEVER
    for stream in range(STREAMS):
        if msc.blocked_since_ps[stream] >= 0:
            room_ps = _room_ps(msc, fifos, pool, stream)
            if room_ps > msc.tried_ps:
                retry_ps = min(retry_ps, room_ps)
    return retry_ps


@compiled
def _block(msc, stream, now_ps):
    """The head of a stream waits for room, for data or for a place."""
    if msc.blocked_since_ps[stream] < 0:
        msc.blocked_since_ps[stream] = now_ps


@compiled
def _take(msc, sets, waiters, fifos, pool, stream, now_ps):
    """Take the oldest request of a stream. Returns False if all ways of its set wait for data."""
    fifo = fifos[msc.lanes.head_fifo[stream]]
    request = _head(msc, fifos, pool, stream)
    if msc.sets == 0:
        _send(msc, fifos, pool, request, stream, now_ps)
    elif request.op == Op.READ:
        if not _read(msc, sets, waiters, fifos, pool, request, now_ps):
            return False
    elif request.op == Op.WRITE:
        if not _write(msc, sets, fifos, pool, request, now_ps):
            return False
    else:
        _update(msc, sets, fifos, pool, request, now_ps)
    msc.requests[stream] += 1
    msc.bytes[stream] += sectors_in(request.sectors) * SECTOR_BYTES
    fifo_take(fifo, pool, now_ps)
    if msc.blocked_since_ps[stream] >= 0:
        msc.blocked_ps[stream] += now_ps - msc.blocked_since_ps[stream]
        msc.blocked_since_ps[stream] = -1
    msc.next_ps = now_ps + msc.line_ps
    return True


@compiled
def _answer(msc, fifos, pool, request, now_ps):
    """Send the data of a read to its L2 bank or its DMA engine."""
    number = msc.data if msc.data >= 0 and request.source < 0 else msc.answers
    fifo_push_copy(fifos[number], pool, request, now_ps + msc.answer_ps)


@compiled
def _send(msc, fifos, pool, request, stream, now_ps):
    """Send a copy of a request to the channel. Returns the copy."""
    fifo = fifos[msc.out_fifo[stream]]
    fifo_push_copy(fifo, pool, request, now_ps + msc.pass_ps)
    msc.sent_ps = min(msc.sent_ps, now_ps + msc.pass_ps)
    return fifo_request(fifo, pool, fifo.tail - 1)


@compiled
def _write_back(msc, cache_set, way, mask, fifos, pool, request, now_ps):
    """Send the dirty sectors of `mask` to the channel and make them clean."""
    dirty = cache_set.way[way].dirty & mask
    if dirty == 0:
        return
    sent = _send(msc, fifos, pool, request, Stream.COMPUTE_WRITE, now_ps)
    sent.op, sent.stream, sent.line, sent.tag = Op.WRITE, Stream.COMPUTE_WRITE, line_of(cache_set, way), -1
    sent.sectors = sent.full = dirty
    cache_set.way[way].dirty &= ~dirty & 15
    msc.writeback_sectors += sectors_in(dirty)


@compiled
def _place(msc, cache_set, way, fifos, pool, request, now_ps):
    """Way of the request's line: `way` if present, else a claimed way (victim evicted); -1 if all are held."""
    if way >= 0:
        touch(cache_set, msc.ways, way)
        return way
    way = victim_way(cache_set, msc.ways)
    if way >= 0 and msc.replacement == Replacement.RANDOM:
        way = random_way(cache_set, msc.ways, way, msc.victims)
        msc.victims += 1
    if way >= 0:
        _write_back(msc, cache_set, way, 15, fifos, pool, request, now_ps)
        claim_way(cache_set, msc.ways, way, request.line)
    return way


@compiled
def _read(msc, sets, waiters, fifos, pool, request, now_ps):
    """Answer a read that hits, else let it wait for its sectors. Returns False if the line has no way."""
    cache_set = _set_of(msc, sets, request.line)
    way = _place(msc, cache_set, find_way(cache_set, msc.ways, request.line), fifos, pool, request, now_ps)
    if way < 0:
        return False
    sectors = cache_set.way[way]
    wanted = request.sectors
    hit = wanted & sectors.valid
    merged = wanted & sectors.pending & ~hit & 15
    missing = wanted & ~(hit | merged) & 15
    msc.read_sectors += sectors_in(wanted)
    msc.read_hit_sectors += sectors_in(hit)
    msc.read_merged_sectors += sectors_in(merged)
    msc.read_miss_sectors += sectors_in(missing)
    if hit == wanted:
        _answer(msc, fifos, pool, request, now_ps)
        return True
    first = np.int64(cache_set.waiter[way]) if sectors.pending != 0 else -1
    if missing != 0:
        if sectors.pending == 0:
            hold(cache_set, way)
            msc.misses_used += 1
            msc.misses_used_max = max(msc.misses_used_max, msc.misses_used)
        sectors.pending |= missing
        sent = _send(msc, fifos, pool, request, np.int64(request.stream), now_ps)
        sent.sectors = sent.full = missing
    w = msc.free_waiter
    msc.free_waiter = np.int64(waiters[w].next)
    waiters[w] = request
    waiters[w].need = wanted & ~hit & 15
    waiters[w].next = first
    cache_set.waiter[way] = w
    return True


@compiled
def _write(msc, sets, fifos, pool, request, now_ps):
    """Write into the cache, and to memory unless it writes back. Returns False if the line has no way."""
    cache_set = _set_of(msc, sets, request.line)
    way = _place(msc, cache_set, find_way(cache_set, msc.ways, request.line), fifos, pool, request, now_ps)
    if way < 0:
        return False
    sectors = cache_set.way[way]
    sectors.valid |= request.full
    msc.write_sectors += sectors_in(request.sectors)
    if msc.write_back == 1:
        sectors.dirty |= request.sectors
    else:
        _send(msc, fifos, pool, request, np.int64(request.stream), now_ps)
    return True


@compiled
def _update(msc, sets, fifos, pool, request, now_ps):
    """Pass a near-memory update on. The line's sectors here are written back or dropped."""
    cache_set = _set_of(msc, sets, request.line)
    way = find_way(cache_set, msc.ways, request.line)
    if way >= 0:
        _write_back(msc, cache_set, way, request.sectors, fifos, pool, request, now_ps)
        cache_set.way[way].valid &= ~request.sectors & 15
    _send(msc, fifos, pool, request, np.int64(request.stream), now_ps)


@compiled
def _fill(msc, sets, waiters, fifos, pool, fill, now_ps):
    """Data came from memory: mark the sectors valid, and answer each waiting read that now has all its sectors."""
    cache_set = _set_of(msc, sets, fill.line)
    way = find_way(cache_set, msc.ways, fill.line)
    sectors = cache_set.way[way]
    sectors.pending &= ~fill.sectors & 15
    sectors.valid |= fill.sectors
    if sectors.pending == 0:
        release(cache_set, way)
        msc.misses_used -= 1
    before = np.int64(-1)
    w = np.int64(cache_set.waiter[way])
    while w >= 0:
        waiter = waiters[w]
        following = np.int64(waiter.next)
        waiter.need &= ~fill.sectors & 15
        if waiter.need == 0:
            waiter.next = 0  # a place of L2 again (`l2_expect_data`)
            _answer(msc, fifos, pool, waiter, now_ps)
            if before < 0:
                cache_set.waiter[way] = following
            else:
                waiters[before].next = following
            waiter.next = msc.free_waiter
            msc.free_waiter = w
        else:
            before = w
        w = following
