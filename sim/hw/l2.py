"""One bank of the L2: sectored, write-back, write-allocate without fetch, one request per clock.

A read looks its sectors up: present ones are hits, those on their way merge with the miss in flight, the others are
asked from the bank's HBM channel; the answer goes out when all are there. A write makes its whole sectors valid and
dirty; a sector written in part is fetched only when somebody reads it. Atomics are done here on fetched sectors, as fast as other requests (D12).
Uncached requests pass through to the channel (copies in the bank are written back or dropped first).

A request is taken only if all that it could need is free (miss entry, waiting place, room towards the channel);
otherwise the bank blocks, in order. Every read towards DRAM has its place in the fill fifo.
The bank's latency delays hits only; that of misses is calibrated as a whole (D11).
"""

import numpy as np

from sim.hw.fifo import fifo_fill, fifo_full, fifo_head, fifo_head_ps, fifo_pop, fifo_push_copy, fifo_slot
from sim.hw.request import NEVER, REQUEST, STREAMS, Op, Stream
from sim.hw.tags import EVICT_FIRST, claim_way, expect, find_way, hold, release, sectors_in, touch, victim_way
from tracer.jit import kernel
from traces.schema import Cache

WAITER = np.dtype([("request", REQUEST), ("next", "i4"), ("need", "i4")], align=True)
"""A request that waits for sectors on their way; `need` = those that are still missing."""

L2_BANK = np.dtype(
    [
        # constants
        ("first_set", "i8"),
        ("sets", "i8"),
        ("ways", "i8"),
        ("period_ps", "i8"),
        ("latency_ps", "i8"),
        ("path_ps", "i8"),  # to the memory controller
        ("misses", "i8"),  # lines in flight (MSHRs)
        ("merges", "i8"),  # requests waiting on one line
        ("requests", "i8"),  # fifo from the NoC
        ("fills", "i8"),  # fifo from the channel
        ("hits", "i8"),  # fifo towards the NoC: answers to hits
        ("late", "i8"),  # fifo towards the NoC: answers that waited for DRAM
        ("dram", "i8", STREAMS),  # fifos towards the channel
        # state
        ("next_ps", "i8"),  # takes no request before
        ("sent_ps", "i8"),  # when the channel sees the oldest of what was sent in this window; NEVER = nothing sent
        ("blocked", "i8"),  # 1: waits for a fill or for room towards the channel
        ("blocked_since_ps", "i8"),
        ("misses_used", "i8"),
        ("reads_out", "i8"),  # reads sent to DRAM and not back
        ("free_waiter", "i8"),
        ("flush_set", "i8"),  # next set to write back, -1 when not flushing
        # counters
        ("read_sectors", "i8"),
        ("read_hit_sectors", "i8"),
        ("read_merged_sectors", "i8"),
        ("read_miss_sectors", "i8"),
        ("write_sectors", "i8"),
        ("atomic_sectors", "i8"),
        ("uncached_read_sectors", "i8"),
        ("uncached_write_sectors", "i8"),  # writes and updates that passed through
        ("writeback_sectors", "i8"),  # evicted dirty sectors
        ("flush_sectors", "i8"),  # written back by a flush
        ("requests_served", "i8"),
        ("blocked_ps", "i8"),
        ("misses_used_max", "i8"),
        ("last_request_ps", "i8"),
    ],
    align=True,
)


def make_l2_banks(machine, wiring):
    """L2 bank records of one GPU.

    Args:
        machine: sim.spec.Machine.
        wiring: dict of fifo numbers, each an array over banks: requests, fills, hits, late; dram: (banks, STREAMS).

    Returns:
        (banks, waiters, sets): L2_BANK and WAITER arrays and the number of cache sets they need.
    """
    spec = machine.l2
    count = spec.banks
    banks = np.zeros(count, L2_BANK)
    sets = spec.bytes // (count * spec.ways * 128)
    banks["first_set"] = np.arange(count) * sets
    banks["sets"], banks["ways"] = sets, spec.ways
    banks["period_ps"] = period_ps = round(1e6 / spec.clock_MHz)
    banks["latency_ps"] = spec.latency_clk * period_ps
    banks["path_ps"] = machine.hbm.request_ps
    banks["misses"], banks["merges"] = spec.mshrs, spec.mshr_merges
    for name, fifos in wiring.items():
        banks[name] = fifos
    places = waiting_places(spec)
    waiters = np.zeros(count * places, WAITER)
    waiters["next"] = np.arange(1, count * places + 1)
    waiters["next"][places - 1 :: places] = -1
    banks["free_waiter"] = np.arange(count) * places
    banks["flush_set"] = -1
    banks["sent_ps"] = NEVER
    banks["blocked_since_ps"] = -1
    return banks, waiters, sets * count


def waiting_places(spec):
    """Requests that can wait in a bank for data on their way."""
    return spec.mshrs * spec.mshr_merges


@kernel
def _set_of(bank, sets, request):
    return sets[bank.first_set + request.cache_set]


@kernel
def _to_dram(bank, fifos, pool, request, op, stream, line, sectors, now_ps):
    """Append a request for `sectors` of `line` to the channel's fifo of `stream`; returns it."""
    fifo = fifos[bank.dram[stream]]
    fifo_push_copy(fifo, pool, request, now_ps + bank.path_ps)
    sent = pool[fifo_slot(fifo, fifo.tail - 1)]
    sent.op, sent.stream, sent.line, sent.sectors, sent.full = op, stream, line, sectors, sectors
    bank.sent_ps = min(bank.sent_ps, sent.ready_ps)
    if op == Op.READ:
        bank.reads_out += 1
    return sent


@kernel
def _write_back(bank, cache_set, way, mask, fifos, pool, request, now_ps):
    """Send the dirty sectors of `mask` to DRAM; they are clean afterwards. Returns how many."""
    dirty = cache_set.way[way].dirty & mask
    if dirty == 0:
        return 0
    stream = Stream.COMPUTE_WRITE
    sent = _to_dram(bank, fifos, pool, request, Op.WRITE, stream, cache_set.tag[way], dirty, now_ps)
    sent.tag = -1
    cache_set.way[way].dirty &= ~dirty & 15
    return sectors_in(dirty)


@kernel
def _has_room(bank, fifos):
    """Is everything free that any request could need? Two writes: an eviction and the request itself."""
    for stream in range(STREAMS):
        fifo = fifos[bank.dram[stream]]
        if fifo.limit - fifo_fill(fifo) < 2:
            return False
    return (
        bank.misses_used < bank.misses
        and bank.free_waiter >= 0
        and bank.reads_out < fifos[bank.fills].limit
        and not fifo_full(fifos[bank.hits])
        and not fifo_full(fifos[bank.late])
    )


@kernel
def _place(bank, cache_set, way, fifos, pool, request, now_ps):
    """The request's line in the set: `way` if it is there, else a claimed way (victim evicted); -1 if all are held."""
    if way >= 0:
        touch(cache_set, way)
        return way
    way = victim_way(cache_set, bank.ways)
    if way >= 0:
        if cache_set.way[way].dirty != 0:
            bank.writeback_sectors += _write_back(bank, cache_set, way, 15, fifos, pool, request, now_ps)
        claim_way(cache_set, way, request.line)
        if request.cache == Cache.STREAM:
            cache_set.age[way] = EVICT_FIRST
    return way


@kernel
def _answer(fifo, pool, request, ready_ps):
    if request.op == Op.READ or request.op == Op.ATOMIC:
        fifo_push_copy(fifo, pool, request, ready_ps)


@kernel
def _waiters_on(waiters, first):
    count = 0
    while first >= 0:
        count += 1
        first = waiters[first].next
    return count


@kernel
def _read(bank, sets, waiters, fifos, pool, request, now_ps):
    """Read, atomic or reduction. Returns False if the bank must block."""
    cache_set = _set_of(bank, sets, request)
    way = find_way(cache_set, bank.ways, request.line)
    if way >= 0 and _waiters_on(waiters, cache_set.waiter[way]) >= bank.merges:
        return False
    way = _place(bank, cache_set, way, fifos, pool, request, now_ps)
    if way < 0:
        return False
    wanted = request.sectors
    hit = wanted & cache_set.way[way].valid
    merged = wanted & cache_set.way[way].pending & ~hit & 15
    missing = wanted & ~(hit | merged) & 15
    _count_read(bank, request.op, hit, merged, missing)
    if missing != 0:
        if cache_set.way[way].pending == 0:
            hold(cache_set, way)
            bank.misses_used += 1
            bank.misses_used_max = max(bank.misses_used_max, bank.misses_used)
        cache_set.way[way].pending |= missing
        stream = Stream.COMM_READ if request.stream >= Stream.COMM_READ else Stream.COMPUTE_READ
        sent = _to_dram(bank, fifos, pool, request, Op.READ, stream, request.line, missing, now_ps)
        sent.cache = Cache.DEFAULT  # an uncached atomic too is done here: its data fill the cache
    if hit == wanted:
        if request.op != Op.READ:
            cache_set.way[way].dirty |= wanted
        _answer(fifos[bank.hits], pool, request, now_ps + bank.latency_ps)
        return True
    w = bank.free_waiter
    bank.free_waiter = waiters[w].next
    waiters[w].request = request
    waiters[w].need = wanted & ~hit & 15
    waiters[w].next = cache_set.waiter[way]
    cache_set.waiter[way] = w
    return True


@kernel
def _count_read(bank, op, hit, merged, missing):
    if op == Op.READ:
        bank.read_sectors += sectors_in(hit | merged | missing)
        bank.read_hit_sectors += sectors_in(hit)
        bank.read_merged_sectors += sectors_in(merged)
        bank.read_miss_sectors += sectors_in(missing)
    else:
        bank.atomic_sectors += sectors_in(hit | merged | missing)


@kernel
def _write(bank, sets, fifos, pool, request, now_ps):
    """Write into the cache. Returns False if the bank must block."""
    cache_set = _set_of(bank, sets, request)
    way = find_way(cache_set, bank.ways, request.line)
    way = _place(bank, cache_set, way, fifos, pool, request, now_ps)
    if way < 0:
        return False
    bank.write_sectors += sectors_in(request.sectors)
    cache_set.way[way].valid |= request.full
    in_part = request.sectors & ~cache_set.way[way].valid & 15
    cache_set.way[way].partial = (cache_set.way[way].partial | in_part) & ~cache_set.way[way].valid & 15
    cache_set.way[way].dirty |= request.sectors
    return True


@kernel
def _pass_through(bank, sets, fifos, pool, request, now_ps):
    """Uncached read, write or update: on to the channel. A dirty copy goes before it, an overwritten one is dropped."""
    cache_set = _set_of(bank, sets, request)
    way = find_way(cache_set, bank.ways, request.line)
    if way >= 0:
        if request.op == Op.WRITE:
            cache_set.way[way].dirty &= ~request.full & 15
        bank.writeback_sectors += _write_back(bank, cache_set, way, request.sectors, fifos, pool, request, now_ps)
        if request.op != Op.READ:
            cache_set.way[way].valid &= ~request.sectors & 15
            cache_set.way[way].partial &= ~request.sectors & 15
    if request.op == Op.READ:
        bank.uncached_read_sectors += sectors_in(request.sectors)
    else:
        bank.uncached_write_sectors += sectors_in(request.sectors)
    _to_dram(bank, fifos, pool, request, request.op, request.stream, request.line, request.sectors, now_ps)


@kernel
def _serve(bank, sets, waiters, fifos, pool, request, now_ps):
    """Do the oldest request. Returns False if the bank must block."""
    if not _has_room(bank, fifos):
        return False
    if request.op == Op.UPDATE or (request.cache == Cache.UNCACHED and request.op <= Op.WRITE):
        _pass_through(bank, sets, fifos, pool, request, now_ps)
        return True
    if request.op == Op.WRITE:
        return _write(bank, sets, fifos, pool, request, now_ps)
    return _read(bank, sets, waiters, fifos, pool, request, now_ps)


@kernel
def _fill(bank, sets, waiters, fifos, pool, fill, now_ps):
    """Data came from DRAM: mark the sectors valid and answer everybody who now has all of his."""
    bank.reads_out -= 1
    if fill.cache == Cache.UNCACHED:
        _answer(fifos[bank.late], pool, fill, now_ps)
        return
    cache_set = _set_of(bank, sets, fill)
    way = find_way(cache_set, bank.ways, fill.line)
    cache_set.way[way].pending &= ~fill.sectors & 15
    cache_set.way[way].valid |= fill.sectors
    cache_set.way[way].partial &= ~fill.sectors & 15
    if cache_set.way[way].pending == 0:
        release(cache_set, way)
        bank.misses_used -= 1
    before = -1
    w = np.int64(cache_set.waiter[way])
    while w >= 0:
        waiter = waiters[w]
        following = np.int64(waiter.next)
        waiter.need &= ~fill.sectors & 15
        if waiter.need == 0:
            if waiter.request.op != Op.READ:
                cache_set.way[way].dirty |= waiter.request.sectors
            _answer(fifos[bank.late], pool, waiter.request, now_ps)
            if before < 0:
                cache_set.waiter[way] = following
            else:
                waiters[before].next = following
            waiter.next = bank.free_waiter
            bank.free_waiter = w
        else:
            before = w
        w = following


@kernel
def _flush(bank, sets, fifos, pool, now_ps):
    """Write dirty lines back, one per clock, as long as there is room. Lines stay valid."""
    nobody = pool[fifos[bank.requests].first]
    while bank.flush_set >= 0:
        cache_set = sets[bank.first_set + bank.flush_set]
        for way in range(bank.ways):
            if cache_set.way[way].dirty != 0:
                if fifo_full(fifos[bank.dram[Stream.COMPUTE_WRITE]]):
                    bank.blocked = 1
                    return NEVER
                bank.flush_sectors += _write_back(bank, cache_set, way, 15, fifos, pool, nobody, now_ps)
                return now_ps + bank.period_ps
        bank.flush_set += 1
        if bank.flush_set == bank.sets:
            bank.flush_set = -1
    return NEVER


@kernel
def l2_prefill(bank, sets, number, line):
    """Put a line into set `number` of the bank, clean, without traffic (a copy from the host through L2)."""
    cache_set = sets[bank.first_set + number]
    way = find_way(cache_set, bank.ways, line)
    if way < 0:
        way = victim_way(cache_set, bank.ways)
        claim_way(cache_set, way, line)
    cache_set.way[way].valid = 15


@kernel
def l2_step(bank, sets, waiters, fifos, pool, now_ps):
    """Take the fills that are due, then at most one request.

    Returns:
        When the bank can do something next; NEVER if it is empty or blocked (a fill or a pop of the channel helps).
    """
    fills = fifos[bank.fills]
    while fifo_head_ps(fills, pool) <= now_ps:
        _fill(bank, sets, waiters, fifos, pool, fifo_head(fills, pool), now_ps)
        fifo_pop(fills)
    wake_ps = fifo_head_ps(fills, pool)
    bank.blocked = 0
    if bank.flush_set >= 0:
        return min(wake_ps, _flush(bank, sets, fifos, pool, now_ps))
    requests = fifos[bank.requests]
    if max(fifo_head_ps(requests, pool), bank.next_ps) <= now_ps:
        if _serve(bank, sets, waiters, fifos, pool, fifo_head(requests, pool), now_ps):
            fifo_pop(requests)
            bank.requests_served += 1
            bank.next_ps = now_ps + bank.period_ps
            bank.last_request_ps = now_ps
            if fifo_fill(requests) > 1:
                expect(sets[bank.first_set + pool[fifo_slot(requests, requests.head + 1)].cache_set], bank.ways)
            if bank.blocked_since_ps >= 0:
                bank.blocked_ps += now_ps - bank.blocked_since_ps
                bank.blocked_since_ps = -1
        else:
            bank.blocked = 1
            if bank.blocked_since_ps < 0:
                bank.blocked_since_ps = now_ps
            return wake_ps
    head_ps = fifo_head_ps(requests, pool)
    if head_ps < NEVER:
        wake_ps = min(wake_ps, max(head_ps, bank.next_ps))
    return wake_ps
