"""Load/store unit of one CU: turns warp memory events into line requests, through L1 to the CU's NoC port.

The unit works on one event at a time, one line per `line_ps`. A line of one to three sectors takes one to three
quarters of that time, but at least `tag_ps`, the look-up of its tag. A line enters only if L1 has a free miss entry and
the port fifo has room. Otherwise the unit blocks, until an answer frees a miss entry, or until the port has room for
`LINES_AT_ONCE` lines or the rest of the event. Memory events of other warps queue in the order in which they tried to
issue. The tag look-ups of an event happen together when the event starts (D5); its requests leave one by one. Stores
are posted: no warp waits for them (D10). But a store with a scoreboard slot is acknowledged, and a fence waits for it.
Loads of a collective's kernel from another GPU leave over a link; such kernels pass L1.

An event that goes to other CUs of the cluster (distributed shared memory, a remote arrival) leaves through another
port, past L1 (`sim.hw.peers`). Each of its lines is answered.

The load table holds the events that wait for answers: the number of missing answers and the scoreboard slot to clear.
Acknowledgements take entries of L1 on their way, like loads.
"""

import numpy as np

from sim.hw.barrier import copy_ends
from sim.hw.fifo import fifo_request, fifo_room_ps
from sim.hw.l1 import BYPASS, l1_close, l1_fill, l1_has_room, l1_hit_sectors, l1_join, l1_miss, l1_write
from sim.hw.lsu_lines import op_of, open_load, send
from sim.hw.lsu_route import choose_sets, leave_window, next_gpu, route_collective, route_store
from sim.hw.remote import send_remote
from sim.hw.request import NEVER, Op, Stream
from sim.hw.space import space_of, tile_of
from sim.hw.tags import canonical, sectors_in
from sim.hw.warp import MAX_WARPS, slot_done
from tracer.coalesce import coalesce_at, most_lanes_at_one_address
from tracer.compile.jit import compiled
from traces.schema import LINE_BYTES, NO_SLOT, SECTOR_BYTES, Kind

SECTORS = LINE_BYTES // SECTOR_BYTES
LINES_AT_ONCE = 4
"""A full warp of 16-byte accesses has as many lines."""


@compiled(inline=True)
def lsu_idle(lsu, now_ps):
    """Can an event start now? Reads: lsu."""
    return lsu.next_line == lsu.lines and lsu.free_ps <= now_ps and lsu.loads_used < lsu.loads


@compiled
def lsu_enqueue(lsu, w):
    """Warp w joins the queue for the unit. Writes: lsu."""
    lsu.queue[lsu.queue_tail & (MAX_WARPS - 1)] = w
    lsu.queue_tail += 1


@compiled(inline=True)
def lsu_start(lsu, l1, sets, warps, w, event, base, addresses, tag, comm, spaces, tiles, sends, now_ps):
    """Start the memory event of warp w; `lsu_advance` sends its lines.

    Args:
        base: base address of the event, in this workgroup.
        tag: number of the workgroup, which selects its tile; for a collective's kernel, the tile.
        comm: 1 for a collective's kernel, whose events name their tile: `work`, counted from `tag`.
        spaces, tiles, sends: address-space configuration. It does not apply to stores outside its buffers.

    Reads: event, addresses, l1, spaces, sends. Writes: lsu, warps, tiles.
    """
    kind = event.kind
    lsu.lines = coalesce_at(event, base, addresses, lsu.line, lsu.sectors, lsu.full)
    if lsu.counts_lanes == 1 and (kind == Kind.ATOMIC or kind == Kind.REDUCE):
        for i in range(lsu.lines):
            lsu.same[i] = most_lanes_at_one_address(event, base, addresses, lsu.line[i])
    for i in range(lsu.lines):
        lsu.line[i] = canonical(lsu.line[i])
    lsu.next_line = 0
    lsu.port = lsu.noc_port
    lsu.tag = tag + event.work if comm else tag
    lsu.cache = event.cache
    lsu.load = -1
    lsu.link = lsu.contributors = lsu.share = lsu.stores = lsu.store = 0
    lsu.send = -1
    lsu.op = op_of(kind)
    if lsu.op == Op.READ or lsu.op == Op.ATOMIC:
        lsu.stream = Stream.COMM_READ if comm else Stream.COMPUTE_READ
        lsu.load = open_load(lsu, warps, w, event.slot, now_ps)
        if comm:
            leave_window(lsu)
        if lsu.op == Op.READ:
            choose_sets(lsu, l1, sets)
    else:
        lsu.stream = Stream.COMM_WRITE if comm else Stream.COMPUTE_WRITE
        if comm:
            route_collective(lsu, tiles[lsu.tag])
            if event.slot != NO_SLOT and lsu.link == 0:
                lsu.load = open_load(lsu, warps, w, event.slot, now_ps)
        else:
            number = space_of(spaces, lsu.line[0])
            if number >= 0:
                lsu.tag, lsu.share = tile_of(spaces[number], tag)
                route_store(lsu, tiles[lsu.tag], sends)
            elif event.slot != NO_SLOT:
                lsu.load = open_load(lsu, warps, w, event.slot, now_ps)
    lsu.free_ps = now_ps


@compiled(inline=True)
def finish_load(lsu, warps, number):
    """Close load-table entry `number`, which has all its answers. Returns the time its warp slept, or 0."""
    load = lsu.load_table[number]
    slept_ps = slot_done(warps, np.int64(load.warp), np.int64(load.slot), load.done_ps)
    lsu.loads_used -= 1
    lsu.free[lsu.loads_used] = number
    return load.done_ps - slept_ps if slept_ps >= 0 else 0


@compiled(inline=True)
def lsu_answer(cu, lsu, l1, sets, warps, entry, now_ps):
    """The answer to L1 miss entry `entry` has arrived: fill L1 and credit every load that waits for it.

    Returns:
        Picoseconds that the woken warps had slept.

    Writes: cu, lsu, l1, sets, warps.
    """
    stalled_ps = 0
    l1_fill(l1, sets, entry)
    number = np.int64(l1.entry[entry].load)
    joiner = np.int64(l1.entry[entry].joiners)
    while number >= 0:
        load = lsu.load_table[number]
        load.answers -= 1
        load.done_ps = max(load.done_ps, now_ps)
        if load.answers == 0 and load.open == 0:
            stalled_ps += finish_load(lsu, warps, number)
            if load.barrier >= 0:
                copy_ends(cu, warps, np.int64(load.warp), np.int64(load.barrier), load.done_ps)
        number = -1
        if joiner >= 0:
            number = np.int64(l1.joiner_load[joiner])
            joiner = np.int64(l1.joiner_next[joiner])
    l1_close(l1, entry)
    return stalled_ps


@compiled
def _tell_lanes(lsu, fifos, pool, i):
    """Put the number of lanes at one address into the atomic that was sent last."""
    if lsu.counts_lanes == 1:
        port = fifos[lsu.port]
        fifo_request(port, pool, port.tail - 1).need = lsu.same[i]


@compiled(inline=True)
def _load_line(lsu, l1, sets, fifos, pool, i, leave_ps, now_ps):
    """One line of a load: L1 hit, joined to misses in flight, or a new miss."""
    line, sectors = lsu.line[i], lsu.sectors[i]
    load = lsu.load_table[lsu.load]
    l1.read_sectors += sectors_in(sectors)
    missing, number = sectors, np.int64(lsu.cache_set[i])
    if number != BYPASS:
        hit = l1_hit_sectors(l1, sets, number, line, sectors)
        missing = sectors & ~hit
        if hit != 0:
            l1.read_hit_sectors += sectors_in(hit)
            load.done_ps = max(load.done_ps, leave_ps + l1.latency_ps)
        if missing != 0 and l1.entries_used > 0:
            joined, waits = l1_join(l1, line, missing, lsu.load)
            load.answers += waits
            l1.read_merged_sectors += sectors_in(joined)
            missing &= ~joined
    if missing != 0:
        load.answers += 1
        entry = l1_miss(l1, line, missing, lsu.load, number)
        send(lsu, fifos, pool, entry, line, missing, missing, leave_ps + l1.latency_ps, now_ps)


@compiled(inline=True)
def lsu_advance(lsu, l1, sets, fifos, pool, warps, now_ps):
    """Send lines of the current event until it is done or blocked. Returns the sleep time of a woken warp, or 0.

    Writes: lsu, l1, sets, fifos, pool, warps.
    """
    if lsu.next_line == lsu.lines and lsu.load < 0:
        return 0
    if now_ps < lsu.port_room_ps:
        return 0
    lsu.port_room_ps = 0
    lsu.free_ps = max(lsu.free_ps, now_ps)
    while lsu.next_line < lsu.lines:
        i = lsu.next_line
        if lsu.load >= 0 and not l1_has_room(l1):
            if lsu.blocked_since_ps < 0:
                lsu.blocked_since_ps = now_ps
            return 0
        if fifo_room_ps(fifos[lsu.port], pool, fifos[lsu.port].tail) > now_ps:
            lsu.port_room_ps = _port_room_ps(lsu, fifos, pool)
            if lsu.blocked_since_ps < 0:
                lsu.blocked_since_ps = now_ps
            return 0
        if lsu.op == Op.READ:
            _load_line(lsu, l1, sets, fifos, pool, i, lsu.free_ps, now_ps)
        elif lsu.op == Op.ATOMIC:
            lsu.load_table[lsu.load].answers += 1
            lsu.atomic_sectors += sectors_in(lsu.sectors[i])
            entry = l1_miss(l1, lsu.line[i], lsu.sectors[i], lsu.load, BYPASS)
            send(lsu, fifos, pool, entry, lsu.line[i], lsu.sectors[i], lsu.full[i], lsu.free_ps, now_ps)
            _tell_lanes(lsu, fifos, pool, i)
        elif lsu.op == Op.REMOTE:
            send_remote(lsu, l1, fifos, pool, i, now_ps)
        else:
            if lsu.op == Op.WRITE:
                l1_write(l1, lsu.sectors[i])
            else:
                lsu.atomic_sectors += sectors_in(lsu.sectors[i])
            entry = lsu.send
            if lsu.load >= 0:
                lsu.load_table[lsu.load].answers += 1
                entry = l1_miss(l1, lsu.line[i], lsu.sectors[i], lsu.load, BYPASS)
            send(lsu, fifos, pool, entry, lsu.line[i], lsu.sectors[i], lsu.full[i], lsu.free_ps, now_ps)
            if lsu.op == Op.REDUCE:
                _tell_lanes(lsu, fifos, pool, i)
        taken_ps = max(lsu.tag_ps, sectors_in(lsu.sectors[i]) * lsu.line_ps // SECTORS)
        lsu.line_requests += 1
        lsu.busy_ps += taken_ps
        lsu.next_line += 1
        lsu.free_ps += taken_ps
        if lsu.next_line == lsu.lines and lsu.store < lsu.stores:
            next_gpu(lsu)
    if lsu.blocked_since_ps >= 0:
        lsu.blocked_ps += now_ps - lsu.blocked_since_ps
        lsu.blocked_since_ps = -1
    stalled_ps = 0
    if lsu.load >= 0:
        load = lsu.load_table[lsu.load]
        load.open = 0
        if load.answers == 0:
            stalled_ps = finish_load(lsu, warps, lsu.load)
        lsu.load = -1
    return stalled_ps


@compiled
def _port_room_ps(lsu, fifos, pool):
    """When the port has room for the next lines of the current event, NEVER if it is not known yet."""
    port = fifos[lsu.port]
    return fifo_room_ps(port, pool, port.tail + min(lsu.lines - lsu.next_line, LINES_AT_ONCE, port.limit) - 1)


@compiled(inline=True)
def lsu_retry_ps(lsu, fifos, pool):
    """When a unit that waits for its port can continue, as far as known; NEVER if it does not wait for the port.

    Reads: fifos, pool. Writes: lsu.
    """
    if lsu.port_room_ps == NEVER:
        lsu.port_room_ps = _port_room_ps(lsu, fifos, pool)
    return lsu.port_room_ps if lsu.port_room_ps > 0 else NEVER


@compiled(inline=True)
def lsu_wake_ps(lsu):
    """When the next queued memory event, or an event that waited for the port, may continue.

    NEVER while the unit waits for answers, or for a credit of unknown time, or the queue is empty.

    Reads: lsu.
    """
    if lsu.port_room_ps > 0:
        return lsu.port_room_ps
    if lsu.queue_head == lsu.queue_tail or lsu.next_line < lsu.lines or lsu.loads_used >= lsu.loads:
        return NEVER
    return lsu.free_ps
