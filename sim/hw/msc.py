"""Memory-side cache: one slice per memory channel, between L2 (and links and DMA engines) and the HBM channel.

It takes at most one request per `line_ps`. There are fifos before it (`sim.hw.lanes`) and one per stream behind it. The
order within a fifo stays. Among them, the head that has waited longest goes first. A stream that lacks room waits until
the credit comes, or data. It does not block the others.

Without storage (`msc.bytes = 0`) every request reaches the channel `latency_ps` after it was taken, and data of reads
bypass the unit. With storage it is a sectored set-associative cache of memory (`sim.hw.tags`). Requests to the channel
then leave at once, and every answer takes `latency_ps`:

* Read: sectors that are present are answered. Sectors in flight are waited for. The others are requested from the
  channel. Their data fill the line, and each waiting request that is now complete is answered.
* Write: allocates without a fetch. With `write_back` the sectors stay dirty until their line is evicted. Otherwise the
  write goes on to the channel, and a copy of its whole sectors stays.
* Uncached read or write (`traces.schema.Cache`): the same if its line is here, else it passes and leaves nothing. (RCCL
  on MI300X hits the cache with 0.03 % of its accesses: `validation/references/memory_counters_mi300x.csv`.)
* Near-memory update: waits for its sectors that are in flight, then goes on to the channel. Dirty sectors of the line
  are written back first, copies are dropped.

Bandwidth of fills is not limited, nor that of answers (D40).
"""

from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_pop, fifo_request, fifo_room_ps, fifo_take
from sim.hw.lanes import lane_head_ps
from sim.hw.msc_storage import line_set, msc_fill, msc_read, msc_send, msc_update, msc_write
from sim.hw.request import NEVER, SECTOR_BYTES, STREAMS, Op, Stream
from sim.hw.tags import expect, sectors_in
from tracer.compile.jit import compiled

AHEAD = 8
"""The sets of so many requests of a fifo are prefetched on the host."""


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
            expect(line_set(msc, sets, fifo_request(fifo, pool, number).line), msc.ways)


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
            msc_fill(msc, sets, waiters, fifos, pool, fifo_head(fills, pool), now_ps)
            fifo_pop(fills)
        wake_ps = fifo_head_ps(fills, pool)
    if now_ps < msc.next_ps:
        return min(wake_ps, msc.next_ps)
    msc.blocked = 0
    msc.room_ps = NEVER
    msc.tried_ps = now_ps
    able = 0  # streams whose head has room, as bits
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
        else:
            able |= 1 << stream
    while able != 0:
        stream = _oldest(msc, fifos, pool, able)
        if _take(msc, sets, waiters, fifos, pool, stream, now_ps):
            return min(wake_ps, msc.next_ps)
        _block(msc, stream, now_ps)
        able &= ~(1 << stream)
    return min(wake_ps, msc.room_ps)


@compiled(inline=True)
def _head(msc, fifos, pool, stream):
    """The head of a stream that has one."""
    return fifo_head(fifos[msc.lanes.head_fifo[stream]], pool)


@compiled(inline=True)
def _oldest(msc, fifos, pool, streams):
    """Of these streams, as bits, the one whose head has waited longest; of equals the first."""
    oldest, oldest_ps = -1, NEVER
    for stream in range(STREAMS):
        if (streams >> stream) & 1 and _head(msc, fifos, pool, stream).ready_ps < oldest_ps:
            oldest, oldest_ps = stream, _head(msc, fifos, pool, stream).ready_ps
    return oldest


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
    """Take the oldest request of a stream. Returns False if it waits for data of its line or set."""
    fifo = fifos[msc.lanes.head_fifo[stream]]
    request = _head(msc, fifos, pool, stream)
    if msc.sets == 0:
        msc_send(msc, fifos, pool, request, stream, now_ps)
    elif request.op == Op.READ:
        if not msc_read(msc, sets, waiters, fifos, pool, request, now_ps):
            return False
    elif request.op == Op.WRITE:
        if not msc_write(msc, sets, fifos, pool, request, now_ps):
            return False
    elif not msc_update(msc, sets, fifos, pool, request, now_ps):
        return False
    msc.requests[stream] += 1
    msc.bytes[stream] += sectors_in(request.sectors) * SECTOR_BYTES
    fifo_take(fifo, pool, now_ps)
    if msc.blocked_since_ps[stream] >= 0:
        msc.blocked_ps[stream] += now_ps - msc.blocked_since_ps[stream]
        msc.blocked_since_ps[stream] = -1
    msc.next_ps = now_ps + msc.line_ps
    return True
