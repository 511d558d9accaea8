"""Answers in the crossbar: from L2 banks and links to the CUs, to a cluster, to another partition, to another GPU."""

import numpy as np

from sim.hw.bits import trailing_zeros
from sim.hw.calendar import WORD_BITS, WORD_SOURCES, calendar_add, slot_sources
from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_insert_copy, fifo_push_copy, fifo_request, fifo_take
from sim.hw.noc import transfer_ps
from sim.hw.partition import is_far
from sim.hw.peers import asker_gets, deliver
from sim.hw.prefetch import prefetch
from sim.hw.request import NEVER, SECTOR_BYTES, Op, Stream, is_awaited, is_store
from sim.hw.tags import sectors_in
from tracer.compile.jit import compiled

ANSWERS_AHEAD = 4
"""So many answers of a source, the first ones, are prefetched on the host."""


@compiled(inline=True)
def _volume_bytes(noc, answer):
    """Bytes of an answer's packet: header and data; of an acknowledgement as the machine says."""
    sectors = sectors_in(answer.sectors)
    return sectors * noc.ack_bytes if is_store(answer) else noc.header_bytes + sectors * SECTOR_BYTES


@compiled(inline=True)
def _departure_ps(noc, queue, bank, pool):
    """When the oldest answer of a source can leave: it is there, and the port of its bank is free; NEVER if none."""
    head_ps = fifo_head_ps(queue, pool)
    return head_ps if bank < 0 else max(head_ps, noc.bank_out_ps[bank])


@compiled(inline=True)
def _bank(noc, source):
    """Bank of a source: of its hits, or of its late answers; -1 for other sources."""
    if source >= 2 * noc.banks:
        return -1
    return source if source < noc.banks else source - noc.banks


@compiled(inline=True)
def _return(noc, source, queue, bank, fifos, pool, leaves_ps, clusters, copy_told_ps, cu_wake_ps):
    """Send the oldest answer of a source (hits or late answers of a bank, far ones of a CU, data of a link) to its CU.

    queue, bank: of the source; leaves_ps: when it begins to leave.
    """
    answer = fifo_head(queue, pool)
    c = np.int64(answer.source)
    if source >= noc.first_link:  # data that another GPU has sent
        answer.op, answer.stream, answer.link = Op.READ, Stream.COMM_READ, 0
    if bank < 0:
        _arrive(noc, c, fifos, pool, answer, leaves_ps, clusters, cu_wake_ps)
    else:
        volume = _volume_bytes(noc, answer)
        far = answer.link == 0 and is_far(noc, bank, c)
        if far and c >= noc.cus:
            _copy(noc, c - noc.cus, volume, fifos, pool, answer, leaves_ps, copy_told_ps)
        else:
            noc.answer_packets += 1
            noc.answer_bytes += volume
            noc.bank_out_ps[bank] = out_ps = leaves_ps + transfer_ps(noc, volume, noc.bank_clk_per_byte)
            if answer.link > 0:
                _leave(noc, fifos, pool, answer, out_ps)
            elif far:
                crossed_ps = _cross(noc, c, volume, out_ps)
                if is_store(answer) and not is_awaited(answer):
                    _arrive(noc, c, fifos, pool, answer, out_ps, clusters, cu_wake_ps)
                    noc.last_ack_ps = max(noc.last_ack_ps, crossed_ps + noc.latency_ps)
                else:
                    fifo_push_copy(fifos[noc.first_hit_fifo + 2 * noc.banks + c], pool, answer, crossed_ps)
            else:
                _arrive(noc, c, fifos, pool, answer, out_ps, clusters, cu_wake_ps)
    fifo_take(queue, pool, leaves_ps)


@compiled(inline=True)
def _arrive(noc, c, fifos, pool, answer, out_ps, clusters, cu_wake_ps):
    """Move an answer, which leaves its source at out_ps, into CU c.

    The acknowledgement of a store occupies both ports. It ends there, unless a warp waits for it.
    """
    if answer.op == Op.READ and answer.share != 0:
        _arrive_at_cluster(noc, c, answer, out_ps, clusters, cu_wake_ps)
        return
    volume = _volume_bytes(noc, answer)
    noc.cu_bytes += volume
    in_ps = max(noc.cu_in_ps[c] + transfer_ps(noc, volume, noc.response_clk_per_byte), out_ps)
    noc.cu_in_ps[c] = in_ps
    if is_store(answer):
        noc.last_ack_ps = max(noc.last_ack_ps, in_ps + noc.latency_ps)
        if not is_awaited(answer):
            return
    fifo_push_copy(fifos[noc.first_answer_fifo + c], pool, answer, in_ps + noc.latency_ps)
    cu_wake_ps[c] = min(cu_wake_ps[c], in_ps + noc.latency_ps)


@compiled
def _leave(noc, fifos, pool, answer, out_ps):
    """Move an answer, which leaves its bank at out_ps, to the link over which its GPU is reached."""
    answer.op = Op.DATA
    fifo_insert_copy(fifos[noc.first_load_fifo + np.int64(answer.link) - 1], pool, answer, out_ps + noc.latency_ps)


@compiled
def _arrive_at_cluster(noc, c, answer, out_ps, clusters, cu_wake_ps):
    """Move the answer to a multicast load, which leaves its source at out_ps, into CU c and the CUs of its cluster.

    clusters: (cus, peers, mail).
    """
    cus, peers, mail = clusters
    volume = _volume_bytes(noc, answer)
    own_bytes = volume if asker_gets(cus, answer) else noc.header_bytes
    noc.cu_in_ps[c] = max(noc.cu_in_ps[c] + transfer_ps(noc, own_bytes, noc.response_clk_per_byte), out_ps)
    data_ps = transfer_ps(noc, volume, noc.response_clk_per_byte)
    others = deliver(cus, peers, mail, noc.cu_in_ps, answer, data_ps, out_ps, noc.latency_ps, cu_wake_ps)
    noc.cu_bytes += own_bytes + others * volume


@compiled
def _cross(noc, c, volume, out_ps):
    """Book the way of an answer for CU c to the crossbar of its partition. Returns when it is there.

    The CU has reserved a place there for answers that it awaits. No limit holds for the acknowledgements of posted
    stores: they take no place, and occupy the port of the CU as soon as they leave their bank.
    """
    noc.far_answers += 1
    noc.far_in_ps[c] = max(noc.far_in_ps[c] + transfer_ps(noc, volume, noc.far_clk_per_byte), out_ps)
    return noc.far_in_ps[c] + noc.far_ps


@compiled
def _copy(noc, bank, volume, fifos, pool, answer, leaves_ps, copy_told_ps):
    """Move an answer into the bank that keeps a copy. It goes between the partitions, past the ports towards CUs."""
    noc.far_answers += 1
    port_ps = transfer_ps(noc, volume, noc.far_clk_per_byte)
    noc.far_copy_ps[bank] = max(noc.far_copy_ps[bank], leaves_ps) + port_ps
    ready_ps = noc.far_copy_ps[bank] + noc.far_ps
    fifo_push_copy(fifos[noc.first_copy_fifo + bank], pool, answer, ready_ps)
    copy_told_ps[bank] = min(copy_told_ps[bank], ready_ps)


@compiled(inline=True)
def _expect_answers(noc, queue, fifos, pool):
    """Hint to the host: the first answers of a source leave soon. Reads: queue, pool."""
    for number in range(queue.head + 1, min(queue.tail, queue.head + ANSWERS_AHEAD)):
        prefetch(fifo_request(queue, pool, number), 0)
    prefetch(fifos[noc.first_answer_fifo + max(np.int64(fifo_head(queue, pool).source), 0)], 0)


@compiled
def noc_answers(noc, fifos, pool, begin_ps, end_ps, clusters, copy_told_ps, cu_wake_ps):
    """Carry the answers of the window from the banks to the CUs. Like `noc_requests`, but no answer is refused.

    clusters: records (cus, peers, mail) for multicast.

    Reads: clusters.cus. Writes: noc, fifos, pool, clusters.peers, clusters.mail, copy_told_ps, cu_wake_ps.
    """
    sources = noc.first_link + noc.links
    calendar = noc.answers
    next_ps = NEVER
    for source in range(sources):
        queue = fifos[noc.first_hit_fifo + source]
        leaves_ps = _departure_ps(noc, queue, _bank(noc, source), pool)
        if leaves_ps < end_ps:
            calendar_add(calendar, source, max(leaves_ps - begin_ps, 0))
            _expect_answers(noc, queue, fifos, pool)
        else:
            next_ps = min(next_ps, leaves_ps)
    words = (sources + WORD_SOURCES - 1) >> WORD_BITS
    clock = begin_ps // noc.period_ps
    slot = 0
    while calendar.busy >> slot != 0:
        if (calendar.busy >> slot) & 1:
            slot_end_ps = begin_ps + (slot + 1) * noc.period_ps
            first = (clock + slot) % sources
            for step in range(words + 1):
                word, bits = slot_sources(calendar, slot, first, step, words)
                while bits != 0:
                    source = (word << WORD_BITS) + trailing_zeros(bits)
                    bits &= bits - 1
                    queue, bank = fifos[noc.first_hit_fifo + source], _bank(noc, source)
                    leaves_ps = _departure_ps(noc, queue, bank, pool)
                    while leaves_ps < slot_end_ps:
                        _return(noc, source, queue, bank, fifos, pool, leaves_ps, clusters, copy_told_ps, cu_wake_ps)
                        leaves_ps = _departure_ps(noc, queue, bank, pool)
                    if leaves_ps < end_ps:
                        calendar_add(calendar, source, leaves_ps - begin_ps)
                    else:
                        next_ps = min(next_ps, leaves_ps)
        slot += 1
    calendar.busy = 0
    if noc.first_far_fifo >= 0:  # answers that crossed in this window
        for c in range(noc.cus):
            next_ps = min(next_ps, fifo_head_ps(fifos[noc.first_hit_fifo + 2 * noc.banks + c], pool))
    return next_ps
