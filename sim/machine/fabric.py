"""Phases of the traffic between GPUs in a time window: arrivals, DMA engines, Tracker, links. The engine calls them.

Back-pressure is one window late, as everywhere (D6): a blocked request tries again in the next window. Arrivals go
directly to the memory channels, past crossbar and L2, unless they must stay in L2 (D24).
"""

import numpy as np

from sim.hw.address_map import channel_of
from sim.hw.cu import retry_stores
from sim.hw.dma import dma_answer, dma_has_room, dma_line, dma_load, dma_read
from sim.hw.fifo import fifo_full, fifo_head, fifo_pop
from sim.hw.link import arrival_ps, is_cached, port_peek, port_send, port_take
from sim.hw.noc import home_bank, home_set
from sim.hw.request import NEVER, Stream
from sim.hw.spans import SpanKind, write_span
from sim.hw.tracker_count import tracker_count
from tracer.compile.jit import compiled


@compiled(inline=True)
def next_arrival_ps(node):
    """When the next packet of another GPU arrives. A packet that waits for room does not count; it is retried.

    Reads: node.ports, node.wires.
    """
    first_ps = NEVER
    for p in range(len(node.ports)):
        if node.ports[p].blocked_since_ps < 0:
            first_ps = min(first_ps, arrival_ps(node.ports, p, node.wires))
    return first_ps


@compiled(inline=True)
def fabric_moves(node):
    """A count of moves: it grows with every packet between GPUs and every read of a DMA engine.

    Reads: node.dmas, node.ports.
    """
    moves = np.int64(0)
    for p in range(len(node.ports)):
        moves += node.ports[p].packets + node.ports[p].arrived_bytes
    for e in range(len(node.dmas)):
        moves += node.dmas[e].lines
    return moves


@compiled
def _channel_of(node, line):
    noc = node.noc[0]
    return channel_of(line, noc.interleave_bytes, noc.channels, noc.index)


@compiled
def run_arrivals(node, begin_ps, end_ps):
    """Move packets that arrive before end_ps into the memory queues, in order, while there is room.

    Reads: node.banks, node.engine, node.memory_fifos, node.noc. Writes: node.arriving, node.bank_wake_ps,
    node.dispatch, node.fifos, node.memory_wake_ps, node.output, node.pool, node.ports, node.wires.
    """
    for p in range(len(node.ports)):
        port = node.ports[p]
        from_ps = begin_ps if port.blocked_since_ps >= 0 else 0  # also for the packets behind the blocked one
        while arrival_ps(node.ports, p, node.wires) < end_ps:
            now_ps = max(arrival_ps(node.ports, p, node.wires), from_ps)
            port_peek(node.ports, p, node.wires, node.output.space[0], node.output.mirrors, node.arriving)
            if not _deliver(node, p, node.arriving[0], now_ps):
                if port.blocked_since_ps < 0:
                    port.blocked_since_ps = now_ps
                break
            if port.blocked_since_ps >= 0:
                port.blocked_ps += now_ps - port.blocked_since_ps
                port.blocked_since_ps = -1


@compiled
def _deliver(node, p, request, now_ps):
    """Put a request into the queue of its memory channel or L2 bank. Returns False if the queue is full."""
    h = _channel_of(node, request.line)
    if is_cached(request):
        bank = home_bank(node.noc[0], request.line)
        fifo = node.fifos[node.banks[bank].requests]
        if fifo_full(fifo):
            return False
        request.bank, request.cache_set = bank, home_set(node.noc[0], request.line)
        port_take(node.ports, p, node.wires, fifo, node.pool, request, now_ps)
        node.bank_wake_ps[bank] = min(node.bank_wake_ps[bank], now_ps + node.ports[p].request_ps)
        _count(node, request, now_ps, now_ps + node.engine[0].window_ps)  # no channel sees this request
        return True
    fifo = node.fifos[node.memory_fifos[h, Stream.COMM_WRITE]]
    if fifo_full(fifo):
        return False
    port_take(node.ports, p, node.wires, fifo, node.pool, request, now_ps)
    node.memory_wake_ps[h] = min(node.memory_wake_ps[h], now_ps + node.ports[p].request_ps)
    return True


@compiled
def run_dmas(node, begin_ps, end_ps):
    """DMA engines read their tiles, and take the next ready descriptor.

    Reads: node.memory_fifos. Writes: node.dmas, node.engine, node.fifos, node.memory_wake_ps, node.output,
    node.pool, node.ports, node.spans.
    """
    for e in range(len(node.dmas)):
        dma = node.dmas[e]
        while dma.tag >= 0 or _next_descriptor(node, dma):
            now_ps = dma.next_ps
            if dma.blocked == 1:
                now_ps = max(now_ps, begin_ps)
            if now_ps >= end_ps:
                break
            port = node.ports[node.output.sends[dma.send].port]
            h = _channel_of(node, dma_line(dma))
            fifo = node.fifos[node.memory_fifos[h, Stream.COMM_READ]]
            if not dma_has_room(dma, port, node.fifos, fifo):
                dma.blocked = 1
                dma.blocks += 1
                dma.wake_ps = NEVER
                break
            dma.blocked = 0
            dma_read(dma, np.int64(e), node.output.sends, port, fifo, node.pool, now_ps)
            if dma.tag < 0:
                write_span(
                    *(node.spans, node.engine[0], SpanKind.DMA, e, 0, dma.last_tag), *(dma.began_ps, dma.next_ps)
                )
            node.memory_wake_ps[h] = min(node.memory_wake_ps[h], now_ps + dma.request_ps)
        if dma.tag < 0:
            dma.wake_ps = NEVER


@compiled
def _next_descriptor(node, dma):
    """Give the engine the next ready descriptor. Returns False if none is ready."""
    engine = node.engine[0]
    if engine.descriptors == node.output.tracker[0].released:
        return False
    out = node.output
    released = out.released[engine.descriptors % len(out.released)]
    dma_load(dma, out.tiles, out.wavefronts, released[0], released[1], released[2], released[3])
    engine.descriptors += 1
    return True


@compiled
def dma_data(node, data):
    """Put data that a channel returned to a DMA engine into the fifo of its link.

    Reads: node.output, data. Writes: node.dmas, node.fifos, node.pool, node.ports.
    """
    dma = node.dmas[-1 - np.int64(data.source)]
    send = node.output.sends[data.load]
    dma_answer(dma, node.ports[send.port], node.fifos, node.pool, data, send.op)


@compiled
def count_notes(node, channel, end_ps):
    """The Tracker counts the requests that a channel has reported.

    Reads: node.pool, channel. Writes: node.dispatch, node.fifos, node.output.
    """
    notes = node.fifos[channel.note_fifo]
    while notes.head != notes.tail:
        request = fifo_head(notes, node.pool)
        _count(node, request, request.ready_ps, end_ps)
        fifo_pop(notes)


@compiled
def _count(node, request, now_ps, end_ps):
    out = node.output
    arrays = (out.tiles, out.wavefronts, out.gates, out.released, out.chunk_left)
    if tracker_count(out.tracker[0], out.space[0], *arrays, request, now_ps):
        _wake_gated(node, end_ps)


@compiled
def _wake_gated(node, end_ps):
    """A gate has opened: wake the dispatch queues that wait for a gate."""
    for queue in range(len(node.dispatch)):
        if node.dispatch[queue].gated == 1:
            node.dispatch[queue].wake_ps = min(node.dispatch[queue].wake_ps, end_ps)


@compiled
def run_links(node, begin_ps, end_ps):
    """Packets leave. Then set the time at which the fabric can act next without input from other units.

    Reads: node.fifos, node.pool. Writes: node.dmas, node.engine, node.output, node.ports, node.wires.
    """
    wake_ps = NEVER
    for p in range(len(node.ports)):
        next_ps = port_send(
            node.ports, p, node.wires, node.output.sends, node.output.tiles, node.fifos, node.pool, end_ps
        )
        wake_ps = min(wake_ps, next_ps)
    descriptors = node.engine[0].descriptors < node.output.tracker[0].released
    for e in range(len(node.dmas)):
        dma = node.dmas[e]
        if dma.tag < 0 and descriptors:
            dma.wake_ps = end_ps
        wake_ps = min(wake_ps, dma.wake_ps)
    node.engine[0].fabric_ps = max(wake_ps, end_ps) if wake_ps < NEVER else NEVER


@compiled
def retry_fabric(node, end_ps):
    """Requests that wait for room, a credit or a Tracker entry try again in the next window.

    Reads: node.dmas, node.fifos, node.ports. Writes: node.cu_wake_ps, node.engine, node.output, node.warps.
    """
    waits = False
    for p in range(len(node.ports)):
        port = node.ports[p]
        waits = waits or port.blocked_since_ps >= 0
        waits = waits or not _empty(node.fifos[port.store_fifo]) or not _empty(node.fifos[port.dma_fifo])
    for e in range(len(node.dmas)):
        waits = waits or node.dmas[e].blocked == 1
    tracker = node.output.tracker[0]
    if tracker.freed == 1 and tracker.waiting == 1:
        tracker.waiting = 0
        for c in range(len(node.cus)):
            if retry_stores(node.warps[c], end_ps):
                node.cu_wake_ps[c] = min(node.cu_wake_ps[c], end_ps)
    tracker.freed = 0
    if waits:
        node.engine[0].fabric_ps = min(node.engine[0].fabric_ps, end_ps)


@compiled
def _empty(fifo):
    return fifo.head == fifo.tail
