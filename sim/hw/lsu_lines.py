"""What the load/store unit and the bulk copy unit of a CU do alike: entries of the load table, requests into a port."""

import numpy as np

from sim.hw.fifo import fifo_push, fifo_request
from sim.hw.request import Op
from sim.hw.signals import member_cu
from sim.hw.warp import slot_take
from tracer.compile.jit import compiled
from traces.schema import Kind


@compiled(inline=True)
def op_of(kind):
    """Op of a memory event."""
    if kind == Kind.STORE:
        return Op.WRITE
    if kind == Kind.REDUCE:
        return Op.REDUCE
    return Op.ATOMIC if kind == Kind.ATOMIC else Op.READ


@compiled(inline=True)
def open_load(lsu, warps, w, slot, now_ps):
    """An event of warp w waits for answers. Returns its load-table entry."""
    number = np.int64(lsu.free[lsu.loads_used])
    load = lsu.load_table[number]
    lsu.loads_used += 1
    load.warp, load.slot, load.answers, load.open, load.done_ps = w, slot, 0, 1, now_ps
    load.barrier = -1
    slot_take(warps.warp[w], slot)
    return number


@compiled(inline=True)
def send(unit, fifos, pool, entry, line, sectors, full, leave_ps, now_ps):
    """Put a request of the load/store or bulk copy unit into the port. Reads: unit. Writes: fifos, pool."""
    request = fifo_push(fifos[unit.port], pool)
    request.line = line
    request.ready_ps = leave_ps
    request.born_ps = now_ps
    request.tag = unit.tag
    request.load = entry
    request.source = unit.cu
    request.contributors = unit.contributors
    request.share = unit.share
    request.link = unit.link
    request.wavefront = unit.wavefront
    request.sectors = sectors
    request.full = full
    request.op = unit.op
    request.stream = unit.stream
    request.cache = unit.cache


@compiled(inline=True)
def send_to_peer(unit, fifos, pool, entry, op, sectors, peer, share, leave_ps, now_ps):
    """Put a packet to a workgroup of the cluster into the port of a load/store or bulk copy unit. Returns it.

    The caller sets `contributors`: the cluster. Without sectors it is an arrival: `line` = arrivals of a phase, `tag` =
    bytes that it expects. share: what it brings to a transaction barrier (`sim.hw.signals`), 0 = nothing.

    Reads: unit. Writes: fifos, pool.
    """
    send(unit, fifos, pool, entry, 0, sectors, sectors, leave_ps, now_ps)
    packet = fifo_request(fifos[unit.port], pool, fifos[unit.port].tail - 1)
    packet.op, packet.share, packet.bank = op, share, member_cu(peer)
    return packet
