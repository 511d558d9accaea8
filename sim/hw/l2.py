"""One bank of the L2: sectored, write-allocate, one request per clock.

A read looks up its sectors. Present sectors are hits. Sectors in flight merge with their miss. The others are requested
from the bank's HBM channel. The answer leaves when all sectors are present. A write makes its whole sectors valid and
dirty, until the line is evicted. With write-through (`spec.L2Write`) they go to the channel at once and stay clean. A
sector written in part is fetched only when it is read; `spec.WriteMiss` can fetch it, or all absent sectors of a store,
at once. Such a fetch counts as a read miss, and nobody waits for it. Atomics are done here on fetched sectors, at the
rate of other requests (D12); their sectors are dirty in any case. Uncached requests pass through to the channel. Before
that, copies in the bank are written back or dropped. Packets of links and reads of DMA engines are uncached requests if
they come here at all (`spec.FabricPath`).

The bank takes a request only if all resources that it could need are free (miss entry, waiting place, room towards the
channel and for answers). Otherwise the bank blocks, in order, until a fill comes or the credit of the channel or of the
crossbar. Every read towards DRAM has a reserved place in the fill fifo. The bank's latency delays hits only. The
latency of a miss is calibrated as a whole (D11).
"""

import numpy as np

from sim.hw.fifo import (
    fifo_fill,
    fifo_head,
    fifo_head_ps,
    fifo_push_copy,
    fifo_request,
    fifo_take,
)
from sim.hw.l2_dram import fetch, fetch_for_write, flush_step, is_copy, to_dram, write_back, write_through
from sim.hw.l2_expect import AHEAD
from sim.hw.l2_far import has_copy_room, later_input_ps, next_input
from sim.hw.l2_fill import answer, bank_set, take_fills
from sim.hw.l2_record import FOR_ANSWERS, FOR_CHANNEL
from sim.hw.l2_wait import answers_room_ps, l2_room_ps, room_for_answers, room_for_channel
from sim.hw.request import NEVER, Op, is_awaited
from sim.hw.tags import (
    claim_way,
    evict_first,
    expect,
    find_way,
    goes_first,
    next_victim,
    sectors_in,
    touch,
)
from sim.spec import WriteMiss
from tracer.compile.jit import compiled
from traces.schema import Cache


@compiled(inline=True)
def _has_places(bank, fifos):
    """Are all resources of the bank free that any request could need?"""
    return bank.misses_used < bank.misses and bank.reads_out < fifos[bank.fills].limit


@compiled(inline=True)
def _place(bank, cache_set, way, fifos, pool, request, now_ps):
    """Way of the request's line: `way` if present, else a claimed way (victim evicted); -1 if all are held.

    The line becomes the most recently used one. If all its requests so far were streamed, it stays the next victim.
    """
    if way >= 0:
        if request.cache != Cache.STREAM or not goes_first(cache_set, way):
            touch(cache_set, bank.ways, way)
        return way
    way = next_victim(bank, cache_set)
    if way >= 0:
        if cache_set.way[way].dirty != 0:
            bank.writeback_sectors += write_back(bank, cache_set, way, 15, fifos, pool, request, now_ps)
        claim_way(cache_set, bank.ways, way, request.line)
        if request.cache == Cache.STREAM:
            evict_first(cache_set, way)
    return way


@compiled(inline=True)
def _read(bank, sets, waiters, fifos, pool, request, now_ps):
    """Read, atomic or reduction. Returns False if the bank must block."""
    cache_set = bank_set(bank, sets, request)
    way = find_way(cache_set, bank.ways, request.line)
    if way >= 0 and cache_set.way[way].pending != 0 and cache_set.waits[way] >= bank.merges:
        return False
    if is_copy(bank, request) and not has_copy_room(bank, cache_set, way, fifos, pool, now_ps):
        return False
    way = _place(bank, cache_set, way, fifos, pool, request, now_ps)
    if way < 0:
        return False
    wanted = request.sectors
    hit = wanted & cache_set.way[way].valid
    merged = wanted & cache_set.way[way].pending & ~hit & 15
    missing = wanted & ~(hit | merged) & 15
    _count_read(bank, request, hit, merged, missing)
    if missing != 0:
        fetch(bank, cache_set, way, waiters, fifos, pool, request, missing, now_ps)
    if hit == wanted:
        if request.op != Op.READ:
            cache_set.way[way].dirty |= wanted
        answer(fifos[bank.hits], pool, request, now_ps + bank.latency_ps)
        return True
    w = np.int64(cache_set.waiter[way]) + cache_set.waits[way]
    waiters[w] = request
    waiters[w].need = wanted & ~hit & 15
    cache_set.waits[way] += 1
    return True


@compiled(inline=True)
def _count_read(bank, request, hit, merged, missing):
    """Count the sectors of a read. A read that fills a copy is counted where a CU asked; its end, at the home."""
    wanted = sectors_in(request.sectors)
    if request.op != Op.READ:
        bank.atomic_sectors += wanted
        bank.atomic_miss_sectors += sectors_in(missing)
        return
    bank.read_hit_sectors += sectors_in(hit)
    if hit != request.sectors:
        bank.read_merged_sectors += sectors_in(merged)
        if is_copy(bank, request):
            bank.copy_miss_sectors += sectors_in(missing)
        else:
            bank.read_miss_sectors += sectors_in(missing)
    if request.source < bank.cus:
        bank.read_sectors += wanted


@compiled(inline=True)
def _write(bank, sets, waiters, fifos, pool, request, now_ps):
    """Write into the cache. Returns False if the bank must block.

    A store of this GPU is acknowledged if the machine does so, or if a warp waits; one that came over a link is not.
    """
    cache_set = bank_set(bank, sets, request)
    way = find_way(cache_set, bank.ways, request.line)
    way = _place(bank, cache_set, way, fifos, pool, request, now_ps)
    if way < 0:
        return False
    bank.write_sectors += sectors_in(request.sectors)
    if bank.write_miss != WriteMiss.LAZY:
        fetch_for_write(bank, cache_set, way, waiters, fifos, pool, request, now_ps)
    cache_set.way[way].valid |= request.full
    in_part = request.sectors & ~cache_set.way[way].valid & 15
    cache_set.way[way].partial = (cache_set.way[way].partial | in_part) & ~cache_set.way[way].valid & 15
    if bank.write_through == 1:
        write_through(bank, cache_set, way, fifos, pool, request, now_ps)
    else:
        cache_set.way[way].dirty |= request.sectors
    if (bank.acks == 1 and request.link == 0) or is_awaited(request):
        fifo_push_copy(fifos[bank.hits], pool, request, now_ps + bank.latency_ps)
    return True


@compiled(inline=True)
def _pass_through(bank, sets, fifos, pool, request, now_ps):
    """Pass an uncached read, write or update to the channel. A dirty copy goes first; an overwritten one is dropped."""
    cache_set = bank_set(bank, sets, request)
    way = find_way(cache_set, bank.ways, request.line)
    if way >= 0:
        if request.op == Op.WRITE:
            cache_set.way[way].dirty &= ~request.full & 15
        bank.writeback_sectors += write_back(bank, cache_set, way, request.sectors, fifos, pool, request, now_ps)
        if request.op != Op.READ:
            cache_set.way[way].valid &= ~request.sectors & 15
            cache_set.way[way].partial &= ~request.sectors & 15
    if request.op == Op.READ:
        bank.uncached_read_sectors += sectors_in(request.sectors)
    else:
        bank.uncached_write_sectors += sectors_in(request.sectors)
    to_dram(bank, fifos, pool, request, request.op, request.stream, request.line, request.sectors, now_ps)
    if is_awaited(request):
        fifo_push_copy(fifos[bank.hits], pool, request, now_ps + bank.latency_ps)
    if request.op == Op.READ and request.source < 0:
        bank.reads_out -= 1  # the channel sends the data to the DMA engine


@compiled(inline=True)
def _serve(bank, sets, waiters, fifos, pool, request, now_ps):
    """Serve the oldest request. Returns False if the bank must block."""
    if not _has_places(bank, fifos):
        return False
    if not room_for_answers(bank, fifos, pool, now_ps):
        bank.room_ps, bank.blocked = answers_room_ps(bank, fifos, pool), FOR_ANSWERS
        return False
    if not room_for_channel(bank, fifos, pool, now_ps):
        bank.room_ps, bank.blocked = l2_room_ps(bank, fifos, pool), FOR_CHANNEL
        return False
    if request.op == Op.UPDATE or (request.cache == Cache.UNCACHED and request.op <= Op.WRITE):
        _pass_through(bank, sets, fifos, pool, request, now_ps)
        return True
    if request.op == Op.WRITE:
        return _write(bank, sets, waiters, fifos, pool, request, now_ps)
    return _read(bank, sets, waiters, fifos, pool, request, now_ps)


@compiled(inline=True)
def _serve_first(bank, sets, waiters, fifos, pool, now_ps, number, place):
    """Serve the oldest request that can be served. Only a bank with far requests looks past one that cannot.

    Args:
        number, place: fifo of the oldest request, and its bit in `tried` (`next_input`).

    Returns:
        The fifo of the request, or -1. Then `bank.room_ps` is when there is room that one of them waits for.
    """
    tried, head_ps = np.int64(0), now_ps
    room_ps = NEVER
    while head_ps <= now_ps:
        bank.room_ps = NEVER
        if _serve(bank, sets, waiters, fifos, pool, fifo_head(fifos[number], pool), now_ps):
            return number
        room_ps = min(room_ps, bank.room_ps)
        if bank.far < 0:
            break
        tried |= place
        number, head_ps, place = next_input(bank, fifos, pool, tried)
    bank.room_ps = room_ps
    return np.int64(-1)


@compiled(inline=True)
def l2_step(bank, sets, waiters, fifos, pool, now_ps):
    """Take the fills that are due, then at most one request.

    Returns:
        When the bank can act next. NEVER if it is empty, or blocked until a fill or a credit of unknown time.

    Writes: bank, sets, waiters, fifos, pool.
    """
    wake_ps = fifo_head_ps(fifos[bank.fills], pool)
    if wake_ps <= now_ps:
        wake_ps = take_fills(bank, sets, waiters, fifos, pool, bank.fills, now_ps)
    if bank.copy_fills >= 0:
        copy_ps = fifo_head_ps(fifos[bank.copy_fills], pool)
        if copy_ps <= now_ps:
            copy_ps = take_fills(bank, sets, waiters, fifos, pool, bank.copy_fills, now_ps)
        wake_ps = min(wake_ps, copy_ps)
    bank.blocked = 0
    if bank.flush_set >= 0:
        return min(wake_ps, flush_step(bank, sets, fifos, pool, now_ps))
    number, head_ps, place = next_input(bank, fifos, pool, 0)
    if max(head_ps, bank.next_ps) <= now_ps:
        bank.tried_ps = now_ps
        number = _serve_first(bank, sets, waiters, fifos, pool, now_ps, number, place)
        if number >= 0:
            requests = fifos[number]
            bank.next_ps = now_ps + bank.period_ps
            if bank.atomic_ps > 0 and fifo_head(requests, pool).op >= Op.ATOMIC:
                bank.next_ps = max(bank.next_ps, now_ps + fifo_head(requests, pool).need * bank.atomic_ps)
            fifo_take(requests, pool, now_ps)
            bank.blocked = 0
            bank.requests_served += 1
            bank.last_request_ps = now_ps
            if fifo_fill(requests) > AHEAD:
                expect(bank_set(bank, sets, fifo_request(requests, pool, requests.head + AHEAD)), bank.ways)
            if bank.blocked_since_ps >= 0:
                bank.blocked_ps += now_ps - bank.blocked_since_ps
                bank.blocked_since_ps = -1
        else:
            if bank.blocked_since_ps < 0:
                bank.blocked_since_ps = now_ps
            wake_ps = min(wake_ps, later_input_ps(bank, fifos, pool, now_ps))
            return min(wake_ps, bank.room_ps) if bank.blocked != 0 else wake_ps
        _, head_ps, _ = next_input(bank, fifos, pool, 0)
    if head_ps < NEVER:
        wake_ps = min(wake_ps, max(head_ps, bank.next_ps))
    return wake_ps
