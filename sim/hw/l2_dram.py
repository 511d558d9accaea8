"""Requests of an L2 bank to its HBM channel: reads, write-backs, stores that write through, and the flush."""

import numpy as np

from sim.hw.fifo import fifo_push_copy, fifo_room_ps
from sim.hw.l2_record import FOR_CHANNEL
from sim.hw.prefetch import prefetch
from sim.hw.request import NEVER, Op, Stream
from sim.hw.tags import hold, line_of, sectors_in
from sim.spec import WriteMiss
from tracer.compile.jit import compiled
from traces.schema import Cache


@compiled(inline=True)
def to_dram(bank, fifos, pool, request, op, stream, line, sectors, now_ps):
    """Append a request for `sectors` of `line` to the channel's fifo of `stream`. Returns the request.

    Reads: request. Writes: bank, fifos, pool.
    """
    if op == Op.READ:
        bank.reads_out += 1
        if is_copy(bank, request):
            return _to_home(bank, fifos, pool, request, line, sectors, now_ps)
    fifo = fifos[bank.dram[stream]]
    sent = fifo_push_copy(fifo, pool, request, now_ps + bank.path_ps)
    sent.op, sent.stream, sent.line, sent.sectors, sent.full = op, stream, line, sectors, sectors
    bank.sent_ps = min(bank.sent_ps, sent.ready_ps)
    return sent


@compiled(inline=True)
def is_copy(bank, request):
    """Is the home of a request's line another bank? Reads: bank, request."""
    return bank.other_peer >= 0 and request.bank != bank.number


@compiled
def _to_home(bank, fifos, pool, request, line, sectors, now_ps):
    """Ask the home of a line, in another partition, for its sectors. Returns the request."""
    fifo = fifos[bank.other_peer]
    sent = fifo_push_copy(fifo, pool, request, now_ps + bank.far_ps)
    sent.line, sent.sectors, sent.full = line, sectors, sectors
    sent.source = bank.cus + bank.number
    bank.copies_out += 1
    bank.copy_requests += 1
    bank.asked_ps = min(bank.asked_ps, sent.ready_ps)
    return sent


@compiled(inline=True)
def fetch(bank, cache_set, way, waiters, fifos, pool, request, missing, now_ps):
    """Read missing sectors of a line: they are pending then. Returns the request to the channel.

    A line in flight has a miss entry: places for requests that wait, which lie side by side.

    Reads: request. Writes: bank, cache_set, waiters, fifos, pool.
    """
    if cache_set.way[way].pending == 0:
        hold(cache_set, way)
        cache_set.waiter[way], cache_set.waits[way] = bank.free_miss, 0
        bank.free_miss = np.int64(waiters[bank.free_miss].next)
        prefetch(waiters[max(bank.free_miss, 0)], 0)
        bank.misses_used += 1
        bank.misses_used_max = max(bank.misses_used_max, bank.misses_used)
        if is_copy(bank, request):
            bank.copies_used += 1
    cache_set.way[way].pending |= missing
    stream = Stream.COMM_READ if request.stream >= Stream.COMM_READ else Stream.COMPUTE_READ
    sent = to_dram(bank, fifos, pool, request, Op.READ, stream, request.line, missing, now_ps)
    sent.cache = Cache.DEFAULT  # an uncached atomic is done here too: its data fill the cache
    sent.next = cache_set.waiter[way]  # a hint for its data, of `l2_expect_data`
    return sent


@compiled
def fetch_for_write(bank, cache_set, way, waiters, fifos, pool, request, now_ps):
    """Read the absent sectors of a store that `spec.WriteMiss` names.

    Reads: request. Writes: bank, cache_set, waiters, fifos, pool.
    """
    written = request.sectors if bank.write_miss == WriteMiss.ALL else request.sectors & ~request.full
    missing = written & ~(cache_set.way[way].valid | cache_set.way[way].pending) & 15
    if missing != 0:
        bank.read_sectors += sectors_in(missing)
        bank.read_miss_sectors += sectors_in(missing)
        sent = fetch(bank, cache_set, way, waiters, fifos, pool, request, missing, now_ps)
        sent.source = 0  # of a store from another GPU it is a DMA engine there, not one of this GPU


@compiled
def write_through(bank, cache_set, way, fifos, pool, request, now_ps):
    """Send a store to the channel. Dirty sectors of an atomic that it overwrites are clean then.

    Reads: request. Writes: bank, cache_set, fifos, pool.
    """
    cache_set.way[way].dirty &= ~request.full & 15
    sent = to_dram(bank, fifos, pool, request, Op.WRITE, request.stream, request.line, request.sectors, now_ps)
    sent.full = request.full
    sent.tag = -1


@compiled(inline=True)
def write_back(bank, cache_set, way, mask, fifos, pool, request, now_ps):
    """Send the dirty sectors of `mask` to DRAM and make them clean. Returns their number.

    They are data of the cache, whatever the policy of the request that drives them out.

    Reads: request. Writes: bank, cache_set, fifos, pool.
    """
    dirty = cache_set.way[way].dirty & mask
    if dirty == 0:
        return 0
    stream = Stream.COMPUTE_WRITE
    sent = to_dram(bank, fifos, pool, request, Op.WRITE, stream, line_of(cache_set, way), dirty, now_ps)
    sent.tag = -1
    sent.cache = Cache.DEFAULT
    cache_set.way[way].dirty &= ~dirty & 15
    return sectors_in(dirty)


@compiled
def flush_step(bank, sets, fifos, pool, now_ps):
    """Write dirty lines back, one per clock, while there is room. Lines stay valid. Writes: bank, sets, fifos, pool."""
    if now_ps < bank.next_ps:
        return bank.next_ps
    nobody = pool.requests[fifos[bank.requests].first]
    writes = fifos[bank.dram[Stream.COMPUTE_WRITE]]
    while bank.flush_set >= 0:
        cache_set = sets[bank.first_set + bank.flush_set]
        for way in range(bank.ways):
            if cache_set.way[way].dirty != 0:
                bank.room_ps = fifo_room_ps(writes, pool, writes.tail)
                if bank.room_ps > now_ps:
                    bank.blocked = FOR_CHANNEL
                    return bank.room_ps
                bank.flush_sectors += write_back(bank, cache_set, way, 15, fifos, pool, nobody, now_ps)
                bank.next_ps = now_ps + bank.period_ps
                return bank.next_ps
        bank.flush_set += 1
        if bank.flush_set == bank.sets:
            bank.flush_set = -1
    return NEVER
