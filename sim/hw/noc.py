"""Crossbar between the CUs and the L2 banks of one GPU: one port in each direction per CU and per bank.

A packet is a header and data: the sectors of a write to a bank, or of a read on its return. It occupies its two ports
one after the other and then takes a fixed latency. Packets are served in the order of the times at which they are ready
at their source, in slots of 1/64 of a time window. Within a slot the sources take turns (D8). A request leaves its CU
only if the bank's fifo has room. Otherwise this request and all behind it wait for the next window. Answers always have
room, because a CU reserves a place for every read that it sends.
"""

import numpy as np

from sim.hw.address_map import l2_bank_of, l2_set_of
from sim.hw.bits import quotient
from sim.hw.fifo import fifo_full, fifo_head, fifo_head_ps, fifo_pop, fifo_push_copy, fifo_slot
from sim.hw.noc_record import MAX_PACKETS, SCALE_BITS, SLOTS
from sim.hw.partition import FAR, home_of, is_far, route
from sim.hw.request import NEVER, SECTOR_BYTES, Op
from sim.hw.tags import sectors_in
from tracer.compile.jit import compiled


@compiled(inline=True)
def home_bank(noc, line):
    """L2 bank of a line; if the partitions are private, its number in each of them. Reads: noc."""
    return l2_bank_of(line, noc.interleave_bytes, noc.channels, noc.home_banks, noc.index)


@compiled(inline=True)
def home_set(noc, line):
    """Set of a line in its L2 bank. Reads: noc."""
    return l2_set_of(line, noc.interleave_bytes, noc.channels, noc.home_banks, noc.sets, noc.set_index)


@compiled(inline=True)
def _port_ps(noc, data_bytes, bytes_per_clk):
    return quotient(data_bytes + bytes_per_clk - 1, bytes_per_clk) * noc.period_ps


@compiled(inline=True)
def _sort(noc, fifos, pool, first_fifo, sources, begin_ps, end_ps):
    """List the packets that are ready at their sources before end_ps, in the order of service. Returns their number."""
    noc.slot_first[:] = -1
    first = noc.turn % sources
    packets = 0
    slots_per_ps = (SLOTS << SCALE_BITS) // (end_ps - begin_ps) + 1
    for k in range(sources):
        source = first + k
        if source >= sources:
            source -= sources
        fifo = fifos[first_fifo + source]
        position = fifo.head
        while position != fifo.tail and packets < MAX_PACKETS:
            ready_ps = pool[fifo_slot(fifo, position)].ready_ps
            if ready_ps >= end_ps:
                break
            slot = max(ready_ps - begin_ps, 0) * slots_per_ps >> SCALE_BITS
            if noc.slot_first[slot] < 0:
                noc.slot_first[slot] = packets
            else:
                noc.packet_next[noc.slot_last[slot]] = packets
            noc.slot_last[slot] = packets
            noc.packet_next[packets] = -1
            noc.packet_source[packets] = source
            packets += 1
            position += 1
    return packets


@compiled(inline=True)
def _next_departure_ps(fifos, pool, first_fifo, sources, end_ps):
    """When the oldest waiting packet can leave: end_ps if it is ready now, NEVER if no packet is left."""
    next_ps = NEVER
    for source in range(sources):
        next_ps = min(next_ps, fifo_head_ps(fifos[first_fifo + source], pool))
    return max(next_ps, end_ps) if next_ps < NEVER else NEVER


@compiled(inline=True)
def _send(noc, c, fifos, pool, begin_ps, end_ps, bank_wake_ps):
    """Move the oldest request of CU c to its bank. Returns False if the bank is full."""
    port = fifos[noc.first_port_fifo + c]
    request = fifo_head(port, pool)
    if request.link > 0:
        return _send_out(noc, c, fifos, pool, port, request, begin_ps, end_ps)
    home = home_bank(noc, request.line)
    bank, far = route(noc, c, home, request)
    target = fifos[(noc.first_far_fifo if far == FAR else noc.first_request_fifo) + bank]
    if fifo_full(target):
        noc.refused += 1
        return False
    volume = noc.header_bytes
    if request.op != Op.READ:
        volume += sectors_in(request.sectors) * SECTOR_BYTES
    noc.request_packets += 1
    noc.request_bytes += volume
    left_ps = max(noc.cu_out_ps[c], request.ready_ps) + _port_ps(noc, volume, noc.request_bytes_per_clk)
    noc.cu_out_ps[c] = left_ps
    path_ps = noc.latency_ps
    if far == FAR:
        left_ps = max(noc.far_out_ps[c] + _port_ps(noc, volume, noc.far_bytes_per_clk), left_ps)
        noc.far_out_ps[c] = left_ps
        path_ps += noc.far_ps
        noc.far_requests += 1
    in_ps = max(noc.bank_in_ps[bank] + _port_ps(noc, volume, noc.bank_bytes_per_clk), left_ps)
    noc.bank_in_ps[bank] = in_ps
    request.bank = home_of(noc, bank, home)
    request.cache_set = home_set(noc, request.line)
    fifo_push_copy(target, pool, request, in_ps + path_ps)
    fifo_pop(port)
    bank_wake_ps[bank] = min(bank_wake_ps[bank], in_ps + path_ps)
    return True


@compiled
def _send_out(noc, c, fifos, pool, port, request, begin_ps, end_ps):
    """Move the oldest request of CU c, a store to another GPU, to its link.

    A request that was blocked leaves now, not at the time it came: another GPU must not see it too early.

    Returns:
        False if the link's fifo is full, or if the CU's port is booked until end_ps. In the second case the request
        would enter the fifo before requests of other CUs that leave earlier.
    """
    target = fifos[noc.first_link_fifo + np.int64(request.link) - 1]
    if noc.cu_out_ps[c] >= end_ps:
        return False
    if fifo_full(target):
        noc.refused += 1
        return False
    volume = noc.header_bytes + sectors_in(request.sectors) * SECTOR_BYTES
    noc.request_packets += 1
    noc.request_bytes += volume
    start_ps = max(noc.cu_out_ps[c], request.ready_ps, begin_ps)
    left_ps = start_ps + _port_ps(noc, volume, noc.request_bytes_per_clk)
    noc.cu_out_ps[c] = left_ps
    fifo_push_copy(target, pool, request, left_ps + noc.latency_ps)
    fifo_pop(port)
    return True


@compiled
def noc_requests(noc, fifos, pool, begin_ps, end_ps, bank_wake_ps):
    """Carry the requests of the window [begin_ps, end_ps) from the CU ports to the banks.

    Args:
        bank_wake_ps: i8[banks], lowered to the times of the arrivals.

    Returns:
        When the next request can leave, NEVER if none is left.

    Writes: noc, fifos, pool, bank_wake_ps.
    """
    noc.turn += 1
    if _sort(noc, fifos, pool, noc.first_port_fifo, noc.cus, begin_ps, end_ps) > 0:
        noc.stuck[:] = 0
        for slot in range(SLOTS):
            packet = noc.slot_first[slot]
            while packet >= 0:
                c = noc.packet_source[packet]
                if noc.stuck[c] == 0 and not _send(noc, c, fifos, pool, begin_ps, end_ps, bank_wake_ps):
                    noc.stuck[c] = 1
                packet = noc.packet_next[packet]
    return _next_departure_ps(fifos, pool, noc.first_port_fifo, noc.cus, end_ps)


@compiled(inline=True)
def _return(noc, source, fifos, pool, bank_wake_ps, cu_wake_ps):
    """Send the oldest answer of a source (a bank's hits, its late answers, or far answers of a CU) to its CU.

    The acknowledgement of a store occupies both ports; the CU does not wait for it.
    """
    queue = fifos[noc.first_hit_fifo + source]
    answer = fifo_head(queue, pool)
    c = np.int64(answer.source)
    if source >= 2 * noc.banks:
        _arrive(noc, c, fifos, pool, queue, answer, answer.ready_ps, cu_wake_ps)
        return
    bank = source if source < noc.banks else source - noc.banks
    if answer.op == Op.WRITE:
        volume = sectors_in(answer.sectors) * noc.ack_bytes
    else:
        volume = noc.header_bytes + sectors_in(answer.sectors) * SECTOR_BYTES
    noc.answer_packets += 1
    noc.answer_bytes += volume
    out_ps = max(noc.bank_out_ps[bank], answer.ready_ps) + _port_ps(noc, volume, noc.bank_bytes_per_clk)
    noc.bank_out_ps[bank] = out_ps
    if is_far(noc, bank, c):
        _cross(noc, c, volume, fifos, pool, answer, out_ps, bank_wake_ps)
        fifo_pop(queue)
    else:
        _arrive(noc, c, fifos, pool, queue, answer, out_ps, cu_wake_ps)


@compiled(inline=True)
def _arrive(noc, c, fifos, pool, queue, answer, out_ps, cu_wake_ps):
    """Move the oldest answer of a queue, which leaves its source at out_ps, into CU c."""
    volume = sectors_in(answer.sectors) * (noc.ack_bytes if answer.op == Op.WRITE else SECTOR_BYTES)
    if answer.op != Op.WRITE:
        volume += noc.header_bytes
    in_ps = max(noc.cu_in_ps[c] + _port_ps(noc, volume, noc.response_bytes_per_clk), out_ps)
    noc.cu_in_ps[c] = in_ps
    if answer.op == Op.WRITE:
        noc.last_ack_ps = max(noc.last_ack_ps, in_ps + noc.latency_ps)
        fifo_pop(queue)
        return
    fifo_push_copy(fifos[noc.first_answer_fifo + c], pool, answer, in_ps + noc.latency_ps)
    fifo_pop(queue)
    cu_wake_ps[c] = min(cu_wake_ps[c], in_ps + noc.latency_ps)


@compiled
def _cross(noc, c, volume, fifos, pool, answer, out_ps, bank_wake_ps):
    """Move an answer towards another partition: to the crossbar there, or into the bank that keeps a copy."""
    noc.far_answers += 1
    port_ps = _port_ps(noc, volume, noc.far_bytes_per_clk)
    if c >= noc.cus:
        bank = c - noc.cus
        noc.far_copy_ps[bank] = max(noc.far_copy_ps[bank] + port_ps, out_ps)
        ready_ps = noc.far_copy_ps[bank] + noc.far_ps
        fifo_push_copy(fifos[noc.first_copy_fifo + bank], pool, answer, ready_ps)
        bank_wake_ps[bank] = min(bank_wake_ps[bank], ready_ps)
    else:
        noc.far_in_ps[c] = max(noc.far_in_ps[c] + port_ps, out_ps)
        ready_ps = noc.far_in_ps[c] + noc.far_ps
        fifo_push_copy(fifos[noc.first_hit_fifo + 2 * noc.banks + c], pool, answer, ready_ps)


@compiled
def noc_answers(noc, fifos, pool, begin_ps, end_ps, bank_wake_ps, cu_wake_ps):
    """Carry the answers of the window from the banks to the CUs. Like `noc_requests`, but no answer is refused.

    Writes: noc, fifos, pool, bank_wake_ps, cu_wake_ps.
    """
    sources = 2 * noc.banks + (noc.cus if noc.first_far_fifo >= 0 else 0)
    if _sort(noc, fifos, pool, noc.first_hit_fifo, sources, begin_ps, end_ps) > 0:
        for slot in range(SLOTS):
            packet = noc.slot_first[slot]
            while packet >= 0:
                _return(noc, np.int64(noc.packet_source[packet]), fifos, pool, bank_wake_ps, cu_wake_ps)
                packet = noc.packet_next[packet]
    return _next_departure_ps(fifos, pool, noc.first_hit_fifo, sources, end_ps)
