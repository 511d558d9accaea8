"""Phase of the DMA engines in a time window. They act in the order of time.

Their reads go directly to the memory channels, past crossbar and L2 (D24); with `l2.fabric` they go to L2 banks.
"""

import numpy as np

from sim.hw.bits import trailing_zeros
from sim.hw.calendar import WORD_BITS, WORD_SOURCES, calendar_add, slot_sources
from sim.hw.dma import COMMAND, dma_answer, dma_line, dma_load, dma_read, dma_read_ps
from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_pop, fifo_request
from sim.hw.noc import home_channel, home_place
from sim.hw.request import NEVER, Stream
from sim.hw.spans import SpanKind, write_span
from tracer.compile.jit import compiled


@compiled
def dmas_wake_ps(node):
    """When a DMA engine acts, as far as known; NEVER if none does.

    Reads: node.banks, node.channels, node.engine, node.fabric_fifos, node.fifos, node.noc, node.output, node.pool,
    node.ports. Writes: node.dmas.
    """
    wake_ps = NEVER
    reading = False
    for e in range(len(node.dmas)):
        reading = reading or node.dmas[e].out > 0
        wake_ps = min(wake_ps, _engine_ps(node, e))
    if reading:
        for h in range(len(node.channels)):
            wake_ps = min(wake_ps, fifo_head_ps(node.fifos[node.channels[h].data_fifo], node.pool))
    return wake_ps


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
        target, _ = home_place(node.noc[0], line)
        return target, node.banks[target].dma_reads
    target = home_channel(node.noc[0], line)
    return target, node.fabric_fifos[target, Stream.COMM_READ]


@compiled(apart=True)
def run_dmas(node, begin_ps, end_ps):
    """DMA engines take data that channels return, read their tiles, and take the next ready descriptor.

    Reads: node.banks, node.channels, node.fabric_fifos, node.noc. Writes: node.bank_told_ps, node.calendars,
    node.dmas, node.engine, node.fifos, node.memory_wake_ps, node.output, node.pool, node.ports, node.spans.
    """
    calendar, period_ps = node.calendars[1], node.calendars[1].period_ps
    # Data of a channel come a fixed time after its clock edge. Data of a memory-side cache wait for the next such time.
    base_ps = (begin_ps - node.engine[0].data_ps) // period_ps * period_ps + node.engine[0].data_ps
    for h in range(len(node.channels)):
        data_ps = _slot_ps(node, h, base_ps, period_ps)
        if data_ps < end_ps:
            calendar_add(calendar, h, max(data_ps - base_ps, 0))
    slot = 0
    while calendar.busy >> slot != 0:
        if (calendar.busy >> slot) & 1:
            _run_engines(node, base_ps + slot * period_ps)
            _take_data(node, calendar, slot, base_ps, end_ps)
        slot += 1
    calendar.busy = 0
    _run_engines(node, end_ps)


@compiled
def _slot_ps(node, h, base_ps, period_ps):
    """The slot with the next data of channel h: it begins when they are there or later; NEVER if there are none."""
    data_ps = fifo_head_ps(node.fifos[node.channels[h].data_fifo], node.pool)
    return base_ps - (base_ps - data_ps) // period_ps * period_ps if data_ps < NEVER else NEVER


@compiled
def _take_data(node, calendar, slot, base_ps, end_ps):
    """Put the data that come in a slot into the fifos of their links, the lower channel first.

    Behind data that a memory-side cache had to fetch there may be data that it had: they were ready earlier.
    """
    channels, slot_ps = len(node.channels), base_ps + slot * calendar.period_ps
    words = (channels + WORD_SOURCES - 1) >> WORD_BITS
    for step in range(words + 1):
        word, bits = slot_sources(calendar, slot, 0, step, words)
        while bits != 0:
            h = (word << WORD_BITS) + trailing_zeros(bits)
            bits &= bits - 1
            fifo = node.fifos[node.channels[h].data_fifo]
            data_ps = _slot_ps(node, h, base_ps, calendar.period_ps)
            while data_ps <= slot_ps:
                data = fifo_head(fifo, node.pool)
                data.ready_ps = max(data.ready_ps, data_ps)
                _answer(node, data)
                fifo_pop(fifo)
                data_ps = _slot_ps(node, h, base_ps, calendar.period_ps)
            if data_ps < end_ps:
                calendar_add(calendar, h, data_ps - base_ps)


@compiled
def _answer(node, data):
    """Give data to the engine that has read them."""
    send = node.output.sends[data.load]
    dma_answer(*(node.dmas[-1 - np.int64(data.source)], node.ports[send.port], node.fifos, node.pool, data, send.op))


@compiled
def _run_engines(node, end_ps):
    """Run the DMA engines in the order of time up to end_ps.

    At equal times the engine that has waited longer goes first, then the lower one. So engines that wait for the places
    of one link take turns (assumed).
    """
    while True:
        chosen, chosen_ps = -1, end_ps
        for e in range(len(node.dmas)):
            now_ps = _engine_ps(node, e)
            longer = now_ps == chosen_ps and chosen >= 0 and node.dmas[e].next_ps < node.dmas[chosen].next_ps
            if now_ps < chosen_ps or longer:
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
        request.bank, request.cache_set = home_place(node.noc[0], request.line)
        node.bank_told_ps[target] = min(node.bank_told_ps[target], now_ps + dma.request_ps)
    else:
        node.memory_wake_ps[target] = min(node.memory_wake_ps[target], now_ps + dma.request_ps)
    if dma.tag < 0:
        write_span(node.spans, node.engine[0], SpanKind.DMA, e, 0, dma.last_tag, dma.began_ps, dma.next_ps)
