"""Phases of the traffic between GPUs in a time window: arrivals, DMA engines, links. The engine calls them.

Each phase serves its ports or engines in the order of time. Arrivals and reads of DMA engines go directly to the
memory channels, past crossbar and L2 (D24). Arrivals that must stay in L2 go to its banks, and with `l2.fabric` all do.
"""

import numpy as np

from sim.hw.address_map import channel_of
from sim.hw.bits import trailing_zeros
from sim.hw.calendar import WORD_BITS, WORD_SOURCES, calendar_add, slot_sources
from sim.hw.dma import COMMAND, dma_answer, dma_line, dma_load, dma_read, dma_read_ps
from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_pop, fifo_push_copy, fifo_request, fifo_room_ps
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
from sim.hw.noc import home_bank, home_set
from sim.hw.request import NEVER, Stream
from sim.hw.spans import SpanKind, write_span
from sim.hw.switch import add_part, has_room, is_last_part, take_sum
from tracer.compile.jit import compiled


@compiled
def fabric_wake_ps(node):
    """When a packet arrives or leaves, or a DMA engine acts, as far as known; NEVER if none does.

    Reads: the records of links, wires and DMA engines, node.fifos, node.pool. Writes: node.arriving, node.ports.
    """
    wake_ps = NEVER
    for p in range(len(node.ports)):
        wake_ps = min(wake_ps, _delivery_ps(node, p))
        start_fs = departure_fs(node.ports, p, node.wires, node.fifos, node.pool)
        if start_fs < NEVER:
            wake_ps = min(wake_ps, start_fs // FS_PER_PS)
    reading = False
    for e in range(len(node.dmas)):
        reading = reading or node.dmas[e].out > 0
        wake_ps = min(wake_ps, _engine_ps(node, e))
    if reading:
        for h in range(len(node.channels)):
            wake_ps = min(wake_ps, fifo_head_ps(node.fifos[node.channels[h].data_fifo], node.pool))
    return wake_ps


@compiled
def _channel_of(node, line):
    noc = node.noc[0]
    return channel_of(line, noc.interleave_bytes, noc.channels, noc.index)


@compiled
def _look_up_target(node, p):
    """Find the fifo for the oldest packet of a port: of its memory channel, or of its L2 bank."""
    port = node.ports[p]
    port_peek(node.ports, p, node.wires, node.output.space[0], node.output.mirrors, node.arriving)
    request = node.arriving[0]
    if goes_to_l2(port, request):
        port.target = home_bank(node.noc[0], request.line)
        port.target_fifo = node.banks[port.target].arrivals
    else:
        port.target = _channel_of(node, request.line)
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

    Reads: node.banks, node.engine, node.fabric_fifos, node.noc. Writes: node.arriving, node.bank_told_ps, node.fifos,
    node.memory_wake_ps, node.output, node.pool, node.ports, node.wires.
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
    """Put the oldest packet of a port into the queue of its memory channel or L2 bank, or leave it in the switch."""
    port = node.ports[p]
    port_peek(node.ports, p, node.wires, node.output.space[0], node.output.mirrors, node.arriving)
    request, target = node.arriving[0], port.target
    if _waits_in_switch(node, p):
        add_part(node.output.switch[0], node.output.sums, port.part, request.contributors)
        port_add(node.ports, p, node.wires, request, now_ps)
        return
    if port.part >= 0:
        request.contributors |= take_sum(node.output.switch[0], node.output.sums, port.part)
    if goes_to_l2(port, request):
        request.bank, request.cache_set = target, home_set(node.noc[0], request.line)
        node.bank_told_ps[target] = min(node.bank_told_ps[target], now_ps + port.request_ps)
        if is_cached(request):  # no channel sees it
            notes = node.fifos[node.engine[0].first_note_fifo + len(node.channels)]
            fifo_push_copy(notes, node.pool, request, now_ps)
    else:
        node.memory_wake_ps[target] = min(node.memory_wake_ps[target], now_ps + port.request_ps)
    port_take(node.ports, p, node.wires, node.fifos[port.target_fifo], node.pool, request, now_ps)


@compiled
def _engine_ps(node, e):
    """When a DMA engine takes the next descriptor or reads the next line, as far as known."""
    dma = node.dmas[e]
    if dma.tag < 0:
        following = dma.descriptor if dma.left > 0 else node.engine[0].descriptors
        if following == node.output.tracker[0].released:
            return NEVER
        return max(dma.next_ps, node.output.released[following % len(node.output.released), 2] + dma.setup_ps)
    port = node.ports[node.output.sends[dma.send].port]
    fifo = node.fifos[_read_target(node, dma)[1]]
    return dma_read_ps(dma, port, node.fifos, node.pool, fifo)


@compiled
def _read_target(node, dma):
    """(memory channel or L2 bank that takes the next read of an engine, number of its fifo)."""
    line = dma_line(dma)
    if dma.through_l2 == 1:
        target = home_bank(node.noc[0], line)
        return target, node.banks[target].dma_reads
    target = _channel_of(node, line)
    return target, node.fabric_fifos[target, Stream.COMM_READ]


@compiled(apart=True)
def run_dmas(node, begin_ps, end_ps):
    """DMA engines take data that channels return, read their tiles, and take the next ready descriptor.

    Reads: node.banks, node.channels, node.fabric_fifos, node.noc. Writes: node.bank_told_ps, node.calendars,
    node.dmas, node.engine, node.fifos, node.memory_wake_ps, node.output, node.pool, node.ports, node.spans.
    """
    calendar, period_ps = node.calendars[1], node.calendars[1].period_ps
    # Data come a fixed time after a clock edge of the channels, so all data of a slot come at once.
    base_ps = (begin_ps - node.engine[0].data_ps) // period_ps * period_ps + node.engine[0].data_ps
    for h in range(len(node.channels)):
        data_ps = fifo_head_ps(node.fifos[node.channels[h].data_fifo], node.pool)
        if data_ps < end_ps:
            calendar_add(calendar, h, data_ps - base_ps)
    slot = 0
    while calendar.busy >> slot != 0:
        if (calendar.busy >> slot) & 1:
            _run_engines(node, base_ps + slot * period_ps)
            _take_data(node, calendar, slot, base_ps, end_ps)
        slot += 1
    calendar.busy = 0
    _run_engines(node, end_ps)


@compiled
def _take_data(node, calendar, slot, base_ps, end_ps):
    """Put the data that come in a slot into the fifos of their links, the lower channel first.

    Behind data that a memory-side cache had to fetch there may be data that it had: they were ready earlier.
    """
    channels, next_slot_ps = len(node.channels), base_ps + (slot + 1) * calendar.period_ps
    words = (channels + WORD_SOURCES - 1) >> WORD_BITS
    for step in range(words + 1):
        word, bits = slot_sources(calendar, slot, 0, step, words)
        while bits != 0:
            h = (word << WORD_BITS) + trailing_zeros(bits)
            bits &= bits - 1
            fifo = node.fifos[node.channels[h].data_fifo]
            data_ps = fifo_head_ps(fifo, node.pool)
            while data_ps < min(next_slot_ps, end_ps):
                _answer(node, fifo_head(fifo, node.pool))
                fifo_pop(fifo)
                data_ps = fifo_head_ps(fifo, node.pool)
            if data_ps < end_ps:
                calendar_add(calendar, h, data_ps - base_ps)


@compiled
def _answer(node, data):
    """Give data to the engine that has read them."""
    send = node.output.sends[data.load]
    dma_answer(*(node.dmas[-1 - np.int64(data.source)], node.ports[send.port], node.fifos, node.pool, data, send.op))


@compiled
def _run_engines(node, end_ps):
    """Run the DMA engines in the order of time up to end_ps; at equal times the lower engine first."""
    while True:
        chosen, chosen_ps = -1, end_ps
        for e in range(len(node.dmas)):
            now_ps = _engine_ps(node, e)
            if now_ps < chosen_ps:
                chosen, chosen_ps = e, now_ps
        if chosen < 0:
            return
        dma = node.dmas[chosen]
        if dma.tag < 0:
            _take_descriptor(node, dma)
        else:
            _read(node, chosen, dma, chosen_ps)


@compiled
def _take_descriptor(node, dma):
    """Give the engine the next descriptor of its command, or of the next command in the ready list."""
    out = node.output
    if dma.left == 0:
        dma.descriptor = node.engine[0].descriptors
        dma.left = out.released[dma.descriptor % len(out.released), COMMAND]
        node.engine[0].descriptors += dma.left
    released = out.released[dma.descriptor % len(out.released)]
    dma_load(dma, out.tiles, out.wavefronts, released[0], released[1], released[2], released[3])
    dma.descriptor += 1
    dma.left -= 1


@compiled
def _read(node, e, dma, now_ps):
    """Read the next line. After the last line of a tile, write the span of the tile."""
    port = node.ports[node.output.sends[dma.send].port]
    target, number = _read_target(node, dma)
    fifo = node.fifos[number]
    dma_read(dma, np.int64(e), node.output.sends, port, fifo, node.pool, now_ps)
    if dma.through_l2 == 1:
        request = fifo_request(fifo, node.pool, fifo.tail - 1)
        request.bank, request.cache_set = target, home_set(node.noc[0], request.line)
        node.bank_told_ps[target] = min(node.bank_told_ps[target], now_ps + dma.request_ps)
    else:
        node.memory_wake_ps[target] = min(node.memory_wake_ps[target], now_ps + dma.request_ps)
    if dma.tag < 0:
        write_span(node.spans, node.engine[0], SpanKind.DMA, e, 0, dma.last_tag, dma.began_ps, dma.next_ps)


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
