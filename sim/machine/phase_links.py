"""Phases of the links in a time window: packets that arrive, and packets that leave, in the order of time.

Arrivals go directly to the memory channels, past crossbar and L2 (D24). Those that must stay in L2 go to its banks, and
with `l2.fabric` all do. Loads of other GPUs go to L2 banks. What loads of this GPU bring goes over the crossbar to CUs.
"""

from sim.hw.fifo import fifo_push_copy, fifo_room_ps
from sim.hw.link import (
    arrival_ps,
    departure_fs,
    goes_to_l2,
    is_cached,
    next_sender,
    part_ps,
    port_add,
    port_peek,
    port_send,
    port_take,
)
from sim.hw.link_record import FS_PER_PS
from sim.hw.noc import home_channel, home_place
from sim.hw.request import NEVER, Op, Stream
from sim.hw.space import held
from sim.hw.switch import add_part, has_room, is_last_part, take_sum
from tracer.compile.jit import compiled


@compiled
def links_wake_ps(node):
    """When a packet arrives or leaves, as far as known; NEVER if none does.

    Reads: the records of links and wires, node.fifos, node.pool. Writes: node.arriving, node.ports.
    """
    wake_ps = NEVER
    for p in range(len(node.ports)):
        wake_ps = min(wake_ps, _delivery_ps(node, p))
        start_fs = departure_fs(node.ports, p, node.wires, node.fifos, node.pool)
        if start_fs < NEVER:
            wake_ps = min(wake_ps, start_fs // FS_PER_PS)
    return wake_ps


@compiled
def _look_up_target(node, p):
    """Find the fifo for the oldest packet of a port: of its memory channel, of its L2 bank, or of the crossbar."""
    port = node.ports[p]
    port_peek(node.ports, p, node.wires, node.output.space[0], node.output.mirrors, node.arriving)
    request = node.arriving[0]
    if request.op == Op.DATA:
        port.target = p
        port.target_fifo = node.noc[0].first_hit_fifo + node.noc[0].first_link + p
    elif goes_to_l2(port, request):
        port.target, _ = home_place(node.noc[0], request.line)
        port.target_fifo = node.banks[port.target].arrivals
    else:
        port.target = home_channel(node.noc[0], request.line)
        port.target_fifo = node.fabric_fifos[port.target, Stream.COMM_WRITE]


@compiled
def _delivery_ps(node, p):
    """When the oldest packet of a port can go to memory: it has arrived, and there is room. NEVER if not known."""
    now_ps = arrival_ps(node.ports, p, node.wires)
    if now_ps == NEVER:
        return NEVER
    if node.ports[p].target_fifo < 0:
        _look_up_target(node, p)
    if _waits_in_switch(node, p):
        switch, sums = node.output.switch[0], node.output.sums
        if not has_room(switch, sums, node.ports[p].part):
            return NEVER
        return max(part_ps(node.ports, p, node.wires), node.ports[p].took_ps)
    target = node.fifos[node.ports[p].target_fifo]
    return max(now_ps, node.ports[p].took_ps, fifo_room_ps(target, node.pool, target.tail))


@compiled
def _waits_in_switch(node, p):
    """Is the oldest packet of a port a part of a sum, and not the last part?"""
    part = node.ports[p].part
    return part >= 0 and not is_last_part(node.output.switch[0], node.output.sums, part)


@compiled(apart=True)
def run_arrivals(node, begin_ps, end_ps):
    """Move packets that arrive before end_ps into the memory queues, in the order of time, while there is room.

    At equal times the packet that arrived first goes first.

    Reads: node.banks, node.engine, node.fabric_fifos. Writes: node.arriving, node.bank_told_ps, node.fifos,
    node.memory_wake_ps, node.noc, node.output, node.pool, node.ports, node.wires.
    """
    while True:
        chosen = -1
        chosen_ps = waits_ps = end_ps
        for p in range(len(node.ports)):
            now_ps = _delivery_ps(node, p)
            if now_ps > chosen_ps or now_ps >= end_ps:
                continue
            arrived_ps = arrival_ps(node.ports, p, node.wires)
            if now_ps < chosen_ps or arrived_ps < waits_ps:
                chosen, chosen_ps, waits_ps = p, now_ps, arrived_ps
        if chosen < 0:
            return
        _deliver(node, chosen, chosen_ps)


@compiled
def _deliver(node, p, now_ps):
    """Put the oldest packet of a port into the queue of the unit that takes it, or leave it in the switch."""
    port = node.ports[p]
    port_peek(node.ports, p, node.wires, node.output.space[0], node.output.mirrors, node.arriving)
    request, target = node.arriving[0], port.target
    if _waits_in_switch(node, p):
        add_part(node.output.switch[0], node.output.sums, port.part, request.contributors)
        port_add(node.ports, p, node.wires, request, now_ps)
        return
    if port.part >= 0:
        request.contributors |= take_sum(node.output.switch[0], node.output.sums, port.part)
    if request.op == Op.DATA:
        _report(node, request, now_ps)
        node.noc[0].answers_ps = min(node.noc[0].answers_ps, now_ps + port.request_ps)
    elif goes_to_l2(port, request):
        if request.op == Op.READ:  # it reads the sums of these GPUs
            request.contributors = held(node.output.tiles[request.tag])
        request.bank, request.cache_set = home_place(node.noc[0], request.line)
        node.bank_told_ps[target] = min(node.bank_told_ps[target], now_ps + port.request_ps)
        if is_cached(request):
            _report(node, request, now_ps)
    else:
        node.memory_wake_ps[target] = min(node.memory_wake_ps[target], now_ps + port.request_ps)
    port_take(node.ports, p, node.wires, node.fifos[port.target_fifo], node.pool, request, now_ps)


@compiled
def _report(node, request, now_ps):
    """Tell the Tracker of data that no channel sees."""
    notes = node.fifos[node.engine[0].first_note_fifo + len(node.channels)]
    fifo_push_copy(notes, node.pool, request, now_ps)


@compiled(apart=True)
def run_links(node, begin_ps, end_ps):
    """Packets leave that can leave before end_ps, in the order of time.

    Writes: node.fifos, node.output, node.pool, node.ports, node.wires.
    """
    end_fs = end_ps * FS_PER_PS
    while True:
        p, start_fs = next_sender(node.ports, node.wires, node.fifos, node.pool)
        if start_fs >= end_fs:
            return
        port_send(*(node.ports, p, node.wires, node.output.sends, node.output.tiles, node.fifos, node.pool, start_fs))
