"""Storage of a slice of the memory-side cache: what reads, writes, updates and data from memory do to its sets."""

import numpy as np

from sim.hw.address_map import channel_local, set_of
from sim.hw.fifo import fifo_push_copy
from sim.hw.request import LINE_BYTES, Op, Stream
from sim.hw.tags import claim_way, find_way, hold, line_of, next_victim, release, sectors_in, touch
from tracer.compile.jit import compiled
from traces.schema import Cache


@compiled
def line_set(msc, sets, line):
    """The set of a line. Reads: msc."""
    number = channel_local(line, msc.interleave_bytes, msc.channels) // LINE_BYTES
    return sets[msc.first_set + set_of(number, msc.sets, msc.index)]


@compiled
def _answer(msc, fifos, pool, request, now_ps):
    """Send the data of a read to its L2 bank or its DMA engine. Writes: msc, fifos, pool."""
    number = msc.data if msc.data >= 0 and request.source < 0 else msc.answers
    msc.answered_ps = max(msc.answered_ps, now_ps + msc.answer_ps)
    fifo_push_copy(fifos[number], pool, request, msc.answered_ps)


@compiled
def msc_send(msc, fifos, pool, request, stream, now_ps):
    """Send a copy of a request to the channel. Returns the copy. Writes: msc, fifos, pool."""
    fifo = fifos[msc.out_fifo[stream]]
    sent = fifo_push_copy(fifo, pool, request, now_ps + msc.pass_ps)
    msc.sent_ps = min(msc.sent_ps, now_ps + msc.pass_ps)
    return sent


@compiled
def _write_back(msc, cache_set, way, mask, fifos, pool, request, now_ps):
    """Send the dirty sectors of `mask` to the channel and make them clean."""
    dirty = cache_set.way[way].dirty & mask
    if dirty == 0:
        return
    sent = msc_send(msc, fifos, pool, request, Stream.COMPUTE_WRITE, now_ps)
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
    way = next_victim(msc, cache_set)
    if way >= 0:
        _write_back(msc, cache_set, way, 15, fifos, pool, request, now_ps)
        claim_way(cache_set, msc.ways, way, request.line)
    return way


@compiled(inline=True)
def _passes(request, way):
    """Does an uncached request pass? It uses a line that is here, but puts none in."""
    return way < 0 and request.cache == Cache.UNCACHED


@compiled
def _miss(msc):
    """Count a line in flight."""
    msc.misses_used += 1
    msc.misses_used_max = max(msc.misses_used_max, msc.misses_used)


@compiled
def msc_read(msc, sets, waiters, fifos, pool, request, now_ps):
    """Answer a read that hits, else let it wait for its sectors. Returns False if the line has no way.

    Writes: msc, sets, waiters, fifos, pool.
    """
    cache_set = line_set(msc, sets, request.line)
    way = find_way(cache_set, msc.ways, request.line)
    if _passes(request, way):
        missed = sectors_in(request.sectors)
        msc.read_sectors += missed
        msc.read_miss_sectors += missed
        _miss(msc)
        msc_send(msc, fifos, pool, request, np.int64(request.stream), now_ps)
        return True
    way = _place(msc, cache_set, way, fifos, pool, request, now_ps)
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
            _miss(msc)
        sectors.pending |= missing
        sent = msc_send(msc, fifos, pool, request, np.int64(request.stream), now_ps)
        sent.sectors = sent.full = missing
        sent.cache = Cache.DEFAULT  # its data belong to the line: `msc_fill`
    w = msc.free_waiter
    msc.free_waiter = np.int64(waiters[w].next)
    waiters[w] = request
    waiters[w].need = wanted & ~hit & 15
    waiters[w].next = first
    cache_set.waiter[way] = w
    return True


@compiled
def msc_write(msc, sets, fifos, pool, request, now_ps):
    """Write into the cache, and to memory unless it writes back. Returns False if the line has no way.

    Writes: msc, sets, fifos, pool.
    """
    cache_set = line_set(msc, sets, request.line)
    way = find_way(cache_set, msc.ways, request.line)
    if _passes(request, way):
        msc_send(msc, fifos, pool, request, np.int64(request.stream), now_ps)
        return True
    way = _place(msc, cache_set, way, fifos, pool, request, now_ps)
    if way < 0:
        return False
    sectors = cache_set.way[way]
    sectors.valid |= request.full
    if msc.write_back == 1:
        msc.write_sectors += sectors_in(request.sectors)
        sectors.dirty |= request.sectors
    else:
        msc_send(msc, fifos, pool, request, np.int64(request.stream), now_ps)
    return True


@compiled
def msc_update(msc, sets, fifos, pool, request, now_ps):
    """Pass a near-memory update on. The line's sectors here are written back or dropped.

    Returns False if sectors of the update are in flight: their data would be older, and stay.

    Writes: msc, sets, fifos, pool.
    """
    cache_set = line_set(msc, sets, request.line)
    way = find_way(cache_set, msc.ways, request.line)
    if way >= 0:
        if cache_set.way[way].pending & request.sectors != 0:
            return False
        _write_back(msc, cache_set, way, request.sectors, fifos, pool, request, now_ps)
        cache_set.way[way].valid &= ~request.sectors & 15
    msc_send(msc, fifos, pool, request, np.int64(request.stream), now_ps)
    return True


@compiled
def msc_fill(msc, sets, waiters, fifos, pool, fill, now_ps):
    """Data came from memory: mark the sectors valid, and answer each waiting read that now has all its sectors.

    Data of a read that passed go on at once. Writes: msc, sets, waiters, fifos, pool.
    """
    if fill.cache == Cache.UNCACHED:
        msc.misses_used -= 1
        _answer(msc, fifos, pool, fill, now_ps)
        return
    cache_set = line_set(msc, sets, fill.line)
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
