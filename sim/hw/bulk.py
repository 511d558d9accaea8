"""Bulk copy unit of one CU (Hopper's Tensor Memory Accelerator): one instruction copies a box of rows.

A copy of rows x bytes with a pitch becomes line requests, which go past L1 through the CU's NoC port: between L2 and
shared memory, without registers. Copies are sent in the order in which they were issued, one line per `line_ps`, the
first line `latency_ps` after its instruction. While the load/store unit waits for the port, it goes first. Each line
holds an entry of L1 until its data or its acknowledgement comes, as a copy of a warp (LDGSTS) does. The last one clears
the slot of the copy and may end a phase of its transaction barrier (`sim.hw.barrier`).

A multicast load brings its data to several workgroups of the cluster: L2 reads each line once, and the crossbar
delivers it to all their CUs (`sim.hw.peers.deliver`). A copy to the shared memory of another workgroup leaves through
the port towards the other CUs. Both signal the transaction barriers of the workgroups that get the data.

A tile of the output may have a destination (`sim.hw.space`): near-memory updates here, or another GPU. A copy that
stores into it goes there. Its lines are not acknowledged; its slot is clear when the last one has left. Each CU has a
second record, with a second NoC port, for the copies to other GPUs. They wait in shared memory until the link has room.
Meanwhile the other copies and the loads of the CU continue.

Source: NVIDIA PTX ISA, cp.async.bulk.tensor, cp.reduce.async.bulk and mbarrier. Left out: tensor maps, swizzles,
im2col, and the port of shared memory (D47).
"""

import numpy as np

from sim.hw.barrier import copy_begins
from sim.hw.fifo import fifo_request, fifo_room_ps
from sim.hw.l1 import BYPASS, l1_has_room, l1_miss
from sim.hw.lsu import LINES_AT_ONCE, finish_load
from sim.hw.lsu_lines import open_load, send, send_to_peer
from sim.hw.lsu_record import MAX_LOADS
from sim.hw.request import LINE_BYTES, NEVER, Op, Stream
from sim.hw.signals import pack_signal
from sim.hw.space import space_of, tile_of
from sim.hw.tags import canonical, sectors_in
from tracer.coalesce import sector_masks
from tracer.compile.jit import compiled
from traces.schema import NO_SLOT, Bulk, Cache


@compiled
def bulk_start(bulk, leaving, cu, lsu, warps, w, event, base, tag, wavefront, output, now_ps):
    """Take in the bulk copy of warp w. The load table must have room.

    Args:
        tag: of its workgroup, which selects its output tile.
        output: its configuration applies to copies that store into a buffer.

    Reads: output. Writes: bulk, leaving, cu, lsu, warps.
    """
    number = -1
    if event.space == Bulk.STORE or event.space == Bulk.REDUCE:
        number = space_of(output.space, canonical(base & -LINE_BYTES))
    if number < 0:
        copy = _take_in(bulk, lsu, warps, w, event, base, tag, wavefront, now_ps)
        _signal(copy, cu, lsu, warps, w, event)
        return
    tag, share = tile_of(output.space[number], tag)
    tile = output.tiles[tag]
    if tile.routed == 1 and tile.stay == 0:
        copy = _take_in(leaving, lsu, warps, w, event, base, tag, wavefront, now_ps)
        bulk.leaving += 1
        copy.send, copy.link = tile.first_store, 1 + output.sends[tile.first_store].port
    else:
        copy = _take_in(bulk, lsu, warps, w, event, base, tag, wavefront, now_ps)
    copy.share = share
    if tile.routed == 1:
        copy.routed, copy.op, copy.cache, copy.contributors = 1, tile.op, Cache.UNCACHED, 1


@compiled
def _take_in(bulk, lsu, warps, w, event, base, tag, wavefront, now_ps):
    """Put the bulk copy of warp w into the ring of a unit. Returns its COPY."""
    copy = bulk.copy[bulk.tail & (MAX_LOADS - 1)]
    bulk.tail += 1
    bulk.copies += 1
    copy.start_ps = now_ps + bulk.latency_ps
    copy.next = base
    copy.row_left = copy.row_bytes = event.stride
    copy.rows_left = event.work
    copy.skip_bytes = event.row_stride - event.stride
    if copy.skip_bytes == 0:  # rows without gaps are one row
        copy.row_left = np.int64(event.stride) * event.work
        copy.rows_left = 1
    copy.tag, copy.wavefront, copy.cache = tag, wavefront, event.cache
    copy.op = Op.READ
    if event.space == Bulk.STORE:
        copy.op = Op.WRITE
    elif event.space == Bulk.REDUCE:
        copy.op = Op.REDUCE
    copy.load = open_load(lsu, warps, w, event.slot, now_ps)
    copy.ranks, copy.peer = 0, -1
    copy.routed, copy.contributors, copy.share, copy.link, copy.send = 0, 0, 0, 0, -1
    return copy


@compiled
def _signal(copy, cu, lsu, warps, w, event):
    """Set at which transaction barriers a copy signals."""
    own_data = event.space == Bulk.LOAD
    if event.cycles > 0:
        own_data = _start_in_cluster(copy, cu.resident[warps.warp[w].workgroup], event, warps.warp[w].workgroup)
    if event.inner != NO_SLOT and own_data:
        lsu.load_table[copy.load].barrier = event.inner
        copy_begins(cu, warps, w, np.int64(event.inner))


@compiled
def _start_in_cluster(copy, resident, event, place):
    """Set to which workgroups of the cluster a copy brings data. Returns True if its own loads them too."""
    copy.ranks, copy.barrier, copy.place, copy.cluster = event.cycles, event.inner, place, resident.cluster
    if event.space == Bulk.SEND:
        for rank in range(resident.size):
            if (copy.ranks >> rank) & 1 == 1:
                copy.peer = resident.members[rank]
        return False
    return (copy.ranks >> resident.rank) & 1 == 1


@compiled(inline=True)
def bulk_idle(bulk):
    """Is there no copy to send? Reads: bulk."""
    return bulk.head == bulk.tail


@compiled
def bulk_advance(bulk, lsu, l1, fifos, pool, now_ps):
    """Send the next lines of the oldest copy. There must be one.

    Returns:
        True if the last line of a copy without acknowledgements has left: `bulk_left` must be called.

    Writes: bulk, lsu, l1, fifos, pool.
    """
    copy = bulk.copy[bulk.head & (MAX_LOADS - 1)]
    if max(bulk.free_ps, copy.start_ps) > now_ps:
        return False
    bulk.tag, bulk.op, bulk.cache, bulk.wavefront = copy.tag, copy.op, copy.cache, copy.wavefront
    bulk.port, bulk.share = bulk.noc_port if copy.peer < 0 else bulk.peer_port, copy.share
    bulk.contributors, bulk.link = copy.contributors, copy.link
    bulk.stream = Stream.COMPUTE_READ if copy.op == Op.READ else Stream.COMPUTE_WRITE
    for k in range(LINES_AT_ONCE):
        if not _has_room(bulk, copy, lsu, l1, fifos, pool, now_ps):
            if k > 0:  # it looks again when the next line is due
                bulk.port_room_ps = 0
            elif bulk.blocked_since_ps < 0:
                bulk.blocked_since_ps = now_ps
            return False
        if bulk.blocked_since_ps >= 0:
            bulk.blocked_ps += now_ps - bulk.blocked_since_ps
            bulk.blocked_since_ps = -1
        _send_line(bulk, copy, lsu, l1, fifos, pool, now_ps + k * bulk.line_ps, now_ps)
        bulk.free_ps = now_ps + (k + 1) * bulk.line_ps
        if copy.rows_left == 0:
            lsu.load_table[copy.load].open = 0
            bulk.head += 1
            return copy.routed == 1
    return False


@compiled
def bulk_left(bulk, lsu, warps):
    """The last line of the last copy of a unit has left: its shared memory is free. Returns as `finish_load`.

    Writes: lsu, warps.
    """
    number = np.int64(bulk.copy[(bulk.head - 1) & (MAX_LOADS - 1)].load)
    lsu.load_table[number].done_ps = bulk.free_ps
    return finish_load(lsu, warps, number)


@compiled(inline=True)
def _has_room(bulk, copy, lsu, l1, fifos, pool, now_ps):
    """Is there room for a line? If the port is full: `port_room_ps` is when it has room."""
    bulk.port_room_ps = 0
    if (bulk.leaves == 0 and lsu.port_room_ps > 0) or (copy.routed == 0 and not l1_has_room(l1)):
        return False
    room_ps = fifo_room_ps(fifos[bulk.port], pool, fifos[bulk.port].tail)
    if room_ps > now_ps:
        bulk.port_room_ps = room_ps
    return room_ps <= now_ps


@compiled
def _send_line(bulk, copy, lsu, l1, fifos, pool, leave_ps, now_ps):
    """Send the next line of a copy, and move on in its box."""
    line = copy.next & -LINE_BYTES
    low = copy.next - line
    taken = min(LINE_BYTES - low, copy.row_left)
    sectors, full = sector_masks(low, low + taken)
    copy.next += taken
    copy.row_left -= taken
    if copy.row_left == 0:
        copy.rows_left -= 1
        copy.row_left = copy.row_bytes
        copy.next += copy.skip_bytes
    bulk.line_requests += 1
    line = canonical(line)
    if copy.routed == 1:
        bulk.write_sectors += sectors_in(sectors)
        send(bulk, fifos, pool, copy.send, line, sectors, full, leave_ps, now_ps)
        return
    lsu.load_table[copy.load].answers += 1
    ready_ps = leave_ps
    entry = l1_miss(l1, line, sectors, np.int64(copy.load), BYPASS)
    if copy.ranks != 0:
        bulk.share = pack_signal(copy.ranks, copy.place, copy.barrier, taken)
    if copy.peer >= 0:
        bulk.sent_sectors += sectors_in(sectors)
        send_to_peer(
            bulk, fifos, pool, entry, Op.WRITE, sectors, copy.peer, bulk.share, ready_ps, now_ps
        ).contributors = copy.cluster
        return
    if copy.op == Op.READ:
        bulk.read_sectors += sectors_in(sectors)
        ready_ps += l1.latency_ps
    else:
        bulk.write_sectors += sectors_in(sectors)
    send(bulk, fifos, pool, entry, line, sectors, full if copy.op == Op.WRITE else sectors, ready_ps, now_ps)
    if lsu.counts_lanes == 1:
        fifo_request(fifos[bulk.port], pool, fifos[bulk.port].tail - 1).need = 1


@compiled(inline=True)
def bulk_retry_ps(bulk, fifos, pool):
    """When a unit that waits for a credit of unknown time can continue; NEVER if it does not wait for one.

    Reads: fifos, pool. Writes: bulk.
    """
    if bulk.port_room_ps == NEVER:
        bulk.port_room_ps = fifo_room_ps(fifos[bulk.port], pool, fifos[bulk.port].tail)
    return bulk.port_room_ps if bulk.port_room_ps > 0 else NEVER


@compiled
def bulk_wake_ps(bulk):
    """When the next line may leave; NEVER if there is none, or while it waits for an answer or the load/store unit.

    Reads: bulk.
    """
    if bulk.head == bulk.tail:
        return NEVER
    if bulk.port_room_ps > 0:
        return bulk.port_room_ps
    if bulk.blocked_since_ps >= 0:
        return NEVER
    return max(bulk.free_ps, bulk.copy[bulk.head & (MAX_LOADS - 1)].start_ps)
