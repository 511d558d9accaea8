"""Crossbar between the CUs and the L2 banks of one GPU: one port in each direction per CU and per bank.

A packet is a header and data: the sectors of a write to a bank, or of a read on its return. It passes its two ports at
once and then takes a fixed latency: it has passed the second port when it has passed the first, at the earliest its own
transfer time after the packet before it. So a second port that is slower does not delay a packet if it was idle.
Packets are served in the order of the clocks in which they are ready at their source. Within a clock the sources take
turns: the clock's number selects the source that goes first (D8).

A packet stays at its source until the source's port is free. So nothing books a port ahead of packets that can use it.
A request leaves its CU only if the bank's fifo has room. Otherwise it claims the next place there and waits for the
credit, and all requests behind it wait too (D55). So a bank's places go to requests in the order in which they asked.
Bulk copies to other GPUs are a further source per CU. They use the CU's port when it is free, and wait for the link in
a queue of their own (`sim.hw.bulk`).
Answers always have room at the CU, because it reserves a place for every read that it sends. The answer to a multicast
load goes to several CUs of a cluster: it occupies the port of its bank once, and the ports of all these CUs. The answer
to a load of another GPU goes from its bank to the link. What links bring for the CUs comes over sources of their own.
"""

import numpy as np

from sim.hw.address_map import channel_of, l2_place
from sim.hw.bits import divided, trailing_zeros
from sim.hw.calendar import WORD_BITS, WORD_SOURCES, calendar_add, slot_sources
from sim.hw.fifo import (
    fifo_has_room,
    fifo_head,
    fifo_head_ps,
    fifo_insert_copy,
    fifo_push_copy,
    fifo_request,
    fifo_room_ps,
    fifo_take,
)
from sim.hw.partition import FAR, home_of, route
from sim.hw.prefetch import prefetch
from sim.hw.request import NEVER, data_bytes
from tracer.compile.jit import compiled

SENT = -1


@compiled(inline=True)
def home_place(noc, line):
    """(L2 bank of a line, set in this bank). If the partitions are private, the bank's number in each. Reads: noc."""
    return l2_place(line, noc.interleave_bytes, noc.channels, noc.index, noc.slices, noc.sets, noc.set_index)


@compiled(inline=True)
def home_channel(noc, line):
    """Memory channel of a line. Reads: noc."""
    return channel_of(line, noc.interleave_bytes, noc.channels, noc.index)


@compiled(inline=True)
def transfer_ps(noc, data_bytes, clk_per_byte):
    """Time that a packet occupies a port: whole clocks. clk_per_byte: a reciprocal (`sim.hw.bits`). Reads: noc."""
    return (divided(data_bytes - 1, clk_per_byte) + 1) * noc.period_ps


@compiled(inline=True)
def _departure_ps(noc, c, fifos, pool):
    """When the oldest request of source c can leave, as far as known; NEVER if there is none."""
    port_ps = noc.cu_out_ps[c >> noc.cu_bits]
    if noc.claim[c] < 0:
        return max(fifo_head_ps(fifos[noc.first_port_fifo + c], pool), port_ps)
    if noc.claim_ps[c] == NEVER:
        noc.claim_ps[c] = fifo_room_ps(fifos[noc.claim_fifo[c]], pool, noc.claim[c])
    return max(noc.claim_ps[c], port_ps)


@compiled
def noc_wake_ps(noc, fifos, pool):
    """When the first request that waits for room can leave, as far as known. Reads: fifos, pool. Writes: noc."""
    wake_ps = NEVER
    if noc.waiting > 0:
        for c in range(noc.sources):
            if noc.claim[c] >= 0:
                wake_ps = min(wake_ps, _departure_ps(noc, c, fifos, pool))
    return wake_ps


@compiled(inline=True)
def _claim(noc, c, number, pool, target, slot_end_ps):
    """Claim a place in fifo `number` for the oldest request of source c, or use its claim.

    Returns:
        True if the request can leave in this slot: there is room.
    """
    if noc.claim[c] >= 0:
        noc.claim[c] = -1
        noc.waiting -= 1
        return True
    place = max(target.claimed, target.tail)
    target.claimed = place + 1
    if fifo_has_room(target, pool, place, slot_end_ps - 1):
        return True
    noc.claim[c], noc.claim_fifo[c], noc.claim_ps[c] = place, number, fifo_room_ps(target, pool, place)
    noc.waiting += 1
    noc.refused += 1
    return False


@compiled(inline=True)
def _aim(noc, c, fifos, pool, end_ps):
    """Look up the homes of the requests of source c that can leave before end_ps.

    The fifos of their banks are prefetched on the host.
    """
    port = fifos[noc.first_port_fifo + c]
    number = max(noc.aimed[c], port.head)
    while number < port.tail:
        request = fifo_request(port, pool, number)
        if request.ready_ps >= end_ps:
            break
        if request.link == 0:
            request.bank, request.cache_set = home_place(noc, request.line)
            prefetch(fifos[noc.first_request_fifo + request.bank], 0)
        number += 1
    noc.aimed[c] = number


@compiled(inline=True)
def _book_cu_port(noc, c, request, slot_ps):
    """Book the port of the CU of source c for a request: (bytes of its packet, when it leaves, end of the transfer)."""
    cu = c >> noc.cu_bits
    volume = noc.header_bytes + data_bytes(request)
    noc.request_packets += 1
    noc.request_bytes += volume
    noc.departed_ps[c] = now_ps = max(request.ready_ps, slot_ps, noc.departed_ps[c])
    noc.cu_out_ps[cu] = left_ps = max(noc.cu_out_ps[cu], now_ps) + transfer_ps(noc, volume, noc.request_clk_per_byte)
    return volume, now_ps, left_ps


@compiled(inline=True)
def _send(noc, c, fifos, pool, slot_ps, slot_end_ps, bank_wake_ps):
    """Move the oldest request of source c to its bank.

    Returns:
        SENT, or the time at which it can leave (NEVER if it is not known yet).
    """
    port = fifos[noc.first_port_fifo + c]
    request = fifo_head(port, pool)
    if request.link > 0:
        return _send_out(noc, c, fifos, pool, port, request, slot_ps, slot_end_ps)
    cu = c >> noc.cu_bits
    home = np.int64(request.bank)
    bank, far = route(noc, cu, home, request)
    if far == FAR and noc.far_out_ps[cu] >= slot_end_ps:
        return noc.far_out_ps[cu]
    number = (noc.first_far_fifo if far == FAR else noc.first_request_fifo) + bank
    target = fifos[number]
    if not _claim(noc, c, number, pool, target, slot_end_ps):
        return noc.claim_ps[c]
    volume, now_ps, left_ps = _book_cu_port(noc, c, request, slot_ps)
    path_ps = noc.latency_ps
    if far == FAR:
        left_ps = max(noc.far_out_ps[cu] + transfer_ps(noc, volume, noc.far_clk_per_byte), left_ps)
        noc.far_out_ps[cu] = left_ps
        path_ps += noc.far_ps
        noc.far_requests += 1
    in_ps = max(noc.bank_in_ps[bank] + transfer_ps(noc, volume, noc.bank_clk_per_byte), left_ps)
    noc.bank_in_ps[bank] = in_ps
    sent = fifo_push_copy(target, pool, request, in_ps + path_ps)
    sent.bank = home_of(noc, bank, home)
    fifo_take(port, pool, now_ps)
    bank_wake_ps[bank] = min(bank_wake_ps[bank], in_ps + path_ps)
    return SENT


@compiled
def _send_out(noc, c, fifos, pool, port, request, slot_ps, slot_end_ps):
    """Move the oldest request of source c, which is for another GPU, to its link.

    Returns:
        As `_send`.
    """
    number = noc.first_link_fifo + np.int64(request.link) - 1
    target = fifos[number]
    if not _claim(noc, c, number, pool, target, slot_end_ps):
        return noc.claim_ps[c]
    _, now_ps, left_ps = _book_cu_port(noc, c, request, slot_ps)
    fifo_insert_copy(target, pool, request, left_ps + noc.latency_ps)
    fifo_take(port, pool, now_ps)
    return SENT


@compiled
def noc_requests(noc, fifos, pool, begin_ps, end_ps, bank_wake_ps):
    """Carry the requests of the window [begin_ps, end_ps) from the CU ports to the banks.

    Args:
        begin_ps, end_ps: whole clocks of the crossbar.
        bank_wake_ps: i8[banks], lowered to the times of the arrivals.

    Returns:
        When the next request can leave, as far as known; NEVER if none is left.

    Writes: noc, fifos, pool, bank_wake_ps.
    """
    calendar = noc.requests
    next_ps = NEVER
    for c in range(noc.sources):
        leaves_ps = _departure_ps(noc, c, fifos, pool)
        if leaves_ps < end_ps:
            calendar_add(calendar, c, max(leaves_ps - begin_ps, 0))
            _aim(noc, c, fifos, pool, end_ps)
        else:
            next_ps = min(next_ps, leaves_ps)
    words = (noc.sources + WORD_SOURCES - 1) >> WORD_BITS
    clock = begin_ps // noc.period_ps
    slot = 0
    while calendar.busy >> slot != 0:
        if (calendar.busy >> slot) & 1:
            slot_ps = begin_ps + slot * noc.period_ps
            first = (clock + slot) % noc.cus << noc.cu_bits
            for step in range(words + 1):
                word, bits = slot_sources(calendar, slot, first, step, words)
                while bits != 0:
                    c = (word << WORD_BITS) + trailing_zeros(bits)
                    bits &= bits - 1
                    leaves_ps = _serve(noc, c, fifos, pool, slot_ps, bank_wake_ps)
                    if leaves_ps < end_ps:
                        calendar_add(calendar, c, leaves_ps - begin_ps)
                    else:
                        next_ps = min(next_ps, leaves_ps)
        slot += 1
    calendar.busy = 0
    return next_ps


@compiled(inline=True)
def _serve(noc, c, fifos, pool, slot_ps, bank_wake_ps):
    """Send the requests of source c that can leave in a slot. Returns when the next one can leave, as far as known."""
    slot_end_ps = slot_ps + noc.period_ps
    while True:
        leaves_ps = _departure_ps(noc, c, fifos, pool)
        if leaves_ps < slot_end_ps:
            leaves_ps = _send(noc, c, fifos, pool, slot_ps, slot_end_ps, bank_wake_ps)
        if leaves_ps != SENT:
            return leaves_ps
