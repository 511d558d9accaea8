"""Links: unidirectional channels between GPUs, one packet per line, with credits.

A port is one GPU's end of a link in each direction. A switch that copies has a port more: a store that leaves over it
arrives at all GPUs, also at this one. Outgoing stores and loads of the CUs, lines of the DMA engines, and data for
loads of other GPUs wait in three fifos. The head that has waited longest goes next. It occupies the link for its bytes
and arrives a latency later. A packet leaves only with a credit: a place in the receiver's buffer. The credit returns a
latency after the receiver has passed the packet to its memory. So a full memory queue stops the sender, its DMA engine
and its CUs.

A load from another GPU crosses the link as a read without data. It goes to the L2 bank there. Its data come back over
the port to the GPU that asked (`back`), and go to the CU. Every load has a place where its data wait for the link, and
memory never waits for a link. So no circle of GPUs can wait for each other.

Two GPUs share only a wire. A packet is visible at the other end after the latency at the earliest. So GPUs may be
simulated alone for that time, at once or one after the other. Only then `publish` tells each end what the other has
done.

There are no errors, retries or flow-control packets (D25). Times are in femtoseconds (`sim.hw.link_record`).
"""

import numpy as np

from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_push_copy, fifo_take
from sim.hw.link_record import FS_PER_PS
from sim.hw.request import NEVER, SECTOR_BYTES, Op, Stream, data_bytes
from sim.hw.space import fingerprint, rotated
from sim.hw.switch import part_key
from sim.hw.tags import sectors_in
from tracer.compile.jit import compiled
from traces.schema import Cache


def publish(wires):
    """Tell the ends of all wires what the other end has done so far. No GPU may run meanwhile. Writes: wires."""
    wires["known_sent"], wires["known_taken"] = wires["sent"], wires["taken"]


@compiled
def _credit_ps(port, wire):
    """When the next packet has a credit. NEVER while the receiver has not passed on the packet whose place it takes."""
    before = wire.sent - port.credits
    if before < 0:
        return np.int64(0)
    if before >= wire.known_taken:
        return NEVER
    return wire.taken_ps[before & port.mask] + port.latency_ps


@compiled
def _credits_ps(ports, p, wires):
    """When the next packet of a port has its credit: on the port to all GPUs, one of every GPU."""
    if ports[p].to_all == 0:
        return _credit_ps(ports[p], wires[ports[p].out_wire])
    credit_ps = np.int64(0)
    for q in range(len(ports)):
        credit_ps = max(credit_ps, _credit_ps(ports[q], wires[ports[q].out_wire]))
    return credit_ps


@compiled
def _ready_ps(port, fifos, pool):
    """When the next packet of a port waits for the link, NEVER if there is none."""
    ready_ps = min(fifo_head_ps(fifos[port.store_fifo], pool), fifo_head_ps(fifos[port.dma_fifo], pool))
    return min(ready_ps, fifo_head_ps(fifos[port.load_fifo], pool)) if port.load_fifo >= 0 else ready_ps


@compiled(inline=True)
def _next_fifo(port, fifos, pool, ready_ps):
    """Number of the fifo whose head has waited since ready_ps, the longest time: of the first one of several."""
    if fifo_head_ps(fifos[port.store_fifo], pool) == ready_ps:
        return port.store_fifo
    return port.dma_fifo if fifo_head_ps(fifos[port.dma_fifo], pool) == ready_ps else port.load_fifo


@compiled
def departure_fs(ports, p, wires, fifos, pool):
    """When the next packet of a port leaves (femtoseconds). NEVER if there is none, or if its credit is not known yet.

    Reads: ports, wires, fifos, pool.
    """
    port = ports[p]
    ready_ps = _ready_ps(port, fifos, pool)
    if ready_ps == NEVER:
        return NEVER
    credit_ps = _credits_ps(ports, p, wires)
    if credit_ps == NEVER:
        return NEVER
    return max(max(ready_ps, credit_ps) * FS_PER_PS, ports[port.lane].free_fs)


@compiled
def next_sender(ports, wires, fifos, pool):
    """The port whose packet leaves next: the earliest; if equal, the packet that has waited longest.

    Returns:
        (port, time in femtoseconds); (-1, NEVER) if no packet leaves as far as known.

    Reads: ports, wires, fifos, pool.
    """
    chosen = -1
    chosen_fs = waits_ps = NEVER
    for p in range(len(ports)):
        start_fs = departure_fs(ports, p, wires, fifos, pool)
        ready_ps = _ready_ps(ports[p], fifos, pool)
        if start_fs < chosen_fs or (start_fs == chosen_fs and ready_ps < waits_ps):
            chosen, chosen_fs, waits_ps = p, start_fs, ready_ps
    return chosen, chosen_fs


@compiled
def port_send(ports, p, wires, sends, tiles, fifos, pool, start_fs):
    """Put the next packet of a port on the wire at start_fs, with the tile and the address at the receiver.

    Reads: sends. Writes: ports, wires, tiles, fifos, pool.
    """
    port = ports[p]
    lane = ports[port.lane]
    ready_ps = _ready_ps(port, fifos, pool)
    if _credits_ps(ports, p, wires) * FS_PER_PS > max(ready_ps * FS_PER_PS, lane.free_fs):
        port.credit_stalls += 1
    fifo = fifos[_next_fifo(port, fifos, pool, ready_ps)]
    request = fifo_head(fifo, pool)
    volume = data_bytes(request)
    lane.free_fs = start_fs + (volume + port.header_bytes) * port.fs_per_byte
    port.packets += 1
    port.bytes += volume
    port.busy_ps += (lane.free_fs - start_fs) // FS_PER_PS
    if request.op == Op.DATA:
        port.load_bytes += volume
    if request.tag >= 0 and request.op != Op.READ:
        tile = tiles[request.tag]
        tile.sent_bytes += volume
        tile.sent_sum += fingerprint(tile, request.line, request.sectors)
    arrival_ps = (lane.free_fs + FS_PER_PS - 1) // FS_PER_PS + port.latency_ps
    if port.to_all == 1 and request.op == Op.WRITE:
        for q in range(len(ports)):
            _put(ports[q], wires[ports[q].out_wire], sends, request, arrival_ps)
    else:
        _put(port, wires[port.out_wire], sends, request, arrival_ps)
    fifo_take(fifo, pool, start_fs // FS_PER_PS)


@compiled
def _put(port, wire, sends, request, arrival_ps):
    """Put a packet on the wire of a port, with the tile and the address at the receiver."""
    place = wire.sent & port.mask
    packet = wire.packet[place]
    wire.packet[place] = request
    if request.load >= 0 and not is_load(request):
        send = sends[request.load]
        packet.tag, packet.line, packet.load = send.tag, request.line + send.shift_bytes, -1
    packet.ready_ps = arrival_ps
    wire.sent += 1


@compiled
def _received(port, p, space, mirrors, packet, target):
    """The packet as this GPU sees it."""
    target.link = 1 + p
    target.stream = Stream.COMM_WRITE
    if packet.op == Op.READ:
        target.link = 1 + port.back
        target.stream = Stream.COMM_READ
    target.contributors = rotated(packet.contributors, port.distance, space.gpus, space.set_mask)
    port.part = -1
    if space.mirrored == 1 and packet.tag >= 0:
        mirror = mirrors[p, packet.tag]
        target.tag = mirror.tag
        target.line = packet.line + mirror.shift_bytes
    if packet.op == Op.COMBINE:
        port.part = part_key(target.line, target.sectors)
        target.op = Op.WRITE


@compiled
def _arrival_fs(ports, p, packet):
    """When the last bit of a packet has arrived: after its time on the wire, and on the lane that it shares."""
    port = ports[p]
    volume = data_bytes(packet)
    on_wire_fs = (packet.ready_ps - 1) * FS_PER_PS + 1  # ready_ps is rounded up
    return max(on_wire_fs, ports[port.in_lane].in_free_fs + (volume + port.in_header_bytes) * port.in_fs_per_byte)


@compiled
def arrival_ps(ports, p, wires):
    """When the next packet arrives over a port, NEVER if none is in flight. Reads: ports, wires."""
    wire = wires[ports[p].in_wire]
    if wire.taken == wire.known_sent:
        return NEVER
    arrival_fs = _arrival_fs(ports, p, wire.packet[wire.taken & ports[p].in_mask])
    return (arrival_fs + FS_PER_PS - 1) // FS_PER_PS


@compiled
def port_peek(ports, p, wires, space, mirrors, place):
    """Copy the oldest incoming packet to `place`, as this GPU sees it.

    Reads: wires, space, mirrors. Writes: ports, place.
    """
    port = ports[p]
    wire = wires[port.in_wire]
    packet = wire.packet[wire.taken & port.in_mask]
    place[0] = packet
    _received(port, p, space, mirrors, packet, place[0])


@compiled
def port_take(ports, p, wires, fifo, pool, request, now_ps):
    """Pass the oldest packet to a memory fifo at now_ps. The fifo must not be full.

    Reads: request. Writes: ports, wires, fifo, pool.
    """
    port = ports[p]
    wire = wires[port.in_wire]
    fifo_push_copy(fifo, pool, request, now_ps + port.request_ps)
    port.blocked_ps += now_ps - max(arrival_ps(ports, p, wires), port.took_ps)
    port.took_ps = now_ps
    place = wire.taken & port.in_mask
    ports[port.in_lane].in_free_fs = _arrival_fs(ports, p, wire.packet[place])
    wire.taken_ps[place] = now_ps
    wire.taken += 1
    port.target_fifo = -1
    port.arrived_bytes += data_bytes(request)


@compiled(inline=True)
def is_load(packet):
    """Is a packet a load from another GPU, or its data on their way back? Reads: packet."""
    return packet.op == Op.READ or packet.op == Op.DATA


@compiled
def goes_to_l2(port, request):
    """Does an arriving packet go to its bank of L2? Loads do: what they read may be there. Reads: port, request."""
    return port.through_l2 == 1 or is_cached(request) or request.op == Op.READ


@compiled
def part_ps(ports, p, wires):
    """When the switch has the oldest packet of a port, a part of a sum. It needs no time of the link to this GPU.

    Reads: ports, wires.
    """
    wire = wires[ports[p].in_wire]
    return np.int64(wire.packet[wire.taken & ports[p].in_mask].ready_ps)


@compiled
def port_add(ports, p, wires, request, now_ps):
    """The switch keeps the oldest packet of a port, a part of a sum. Reads: request. Writes: ports, wires."""
    port = ports[p]
    wire = wires[port.in_wire]
    port.took_ps = now_ps
    wire.taken_ps[wire.taken & port.in_mask] = now_ps
    wire.taken += 1
    port.target_fifo = -1
    port.added_bytes += sectors_in(request.sectors) * SECTOR_BYTES


@compiled
def is_cached(request):
    """Does an arriving write stay in L2? Reads: request."""
    return request.cache != Cache.UNCACHED and request.op == Op.WRITE
