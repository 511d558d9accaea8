"""Phases of the units of one GPU in a time window, one phase per kind of unit.

Each phase has the arguments (node, begin_ps, end_ps) and runs all units of its kind alone through the window. Requests
to other units lower their wake times. `sim.machine.build` has the order of the phases and the connections of the units;
`sim.machine.fabric` has the phases between GPUs.
"""

import numpy as np

from sim.hw.cu import cu_step
from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_pop, fifo_push_copy
from sim.hw.hbm.channel import channel_step
from sim.hw.l2 import l2_expect, l2_expect_queue, l2_retry, l2_step
from sim.hw.msc import msc_step
from sim.hw.noc import noc_answers, noc_requests
from sim.hw.request import NEVER, STREAMS
from sim.hw.spans import SpanKind, write_span
from sim.machine.fabric import count_notes, dma_data
from tracer.compile.jit import compiled


@compiled
def run_cus(node, begin_ps, end_ps):
    """Run the CUs, each with its load/store unit and L1.

    Reads: node.addresses, node.events. Writes: node.cu_wake_ps, node.cus, node.dispatch, node.engine, node.fifos,
    node.freed, node.l1_sets, node.l1s, node.lsus, node.output, node.pool, node.spans, node.warps.
    """
    engine = node.engine[0]
    for c in range(len(node.cus)):
        now_ps = node.cu_wake_ps[c]
        if now_ps >= end_ps:
            continue
        cu, lsu, l1, warps = node.cus[c], node.lsus[c], node.l1s[c], node.warps[c]
        while now_ps < end_ps:
            engine.cu_steps += 1
            now_ps = cu_step(
                *(cu, lsu, l1, node.l1_sets, node.fifos, node.pool, warps, node.events, node.addresses),
                *(node.output, now_ps, end_ps),
            )
        node.cu_wake_ps[c] = now_ps
        if cu.ended > 0:
            _collect(node, c, cu, end_ps)


@compiled(inline=True)
def _collect(node, c, cu, end_ps):
    """Collect workgroups of the CU that have ended: their places are free from the next window on (D7)."""
    engine = node.engine[0]
    for i in range(cu.ended):
        write_span(
            *(node.spans, engine, SpanKind.WORKGROUP, c, cu.ended_queue[i], cu.ended_tag[i]),
            *(cu.ended_started_ps[i], cu.ended_ps[i]),
        )
        node.freed[engine.freed] = cu.ended_slab[i]
        engine.freed += 1
        dispatch = node.dispatch[cu.ended_queue[i]]
        dispatch.finished += 1
        dispatch.wake_ps = min(dispatch.wake_ps, max(end_ps, dispatch.next_ps))
    cu.ended = 0


@compiled
def run_requests(node, begin_ps, end_ps):
    """Carry requests over the NoC. Writes: node.bank_wake_ps, node.fifos, node.noc, node.pool."""
    noc = node.noc[0]
    noc.requests_ps = noc_requests(noc, node.fifos, node.pool, begin_ps, end_ps, node.bank_wake_ps)


@compiled
def run_answers(node, begin_ps, end_ps):
    """Carry answers over the NoC. Writes: node.bank_wake_ps, node.cu_wake_ps, node.fifos, node.noc, node.pool."""
    noc = node.noc[0]
    noc.answers_ps = noc_answers(noc, node.fifos, node.pool, begin_ps, end_ps, node.bank_wake_ps, node.cu_wake_ps)


@compiled
def run_banks(node, begin_ps, end_ps):
    """Run the L2 banks. Requests to memory wake the channel or its memory-side cache.

    Reads: node.noc. Writes: node.bank_wake_ps, node.banks, node.engine, node.fifos, node.l2_sets,
    node.memory_wake_ps, node.pool, node.waiters.
    """
    engine = node.engine[0]
    spread = node.noc[0].home_banks
    slices = spread // len(node.channels)
    for b in range(len(node.banks)):
        now_ps = node.bank_wake_ps[b]
        if now_ps >= end_ps:
            continue
        bank = node.banks[b]
        if b + 1 < len(node.banks):
            l2_expect_queue(node.banks[b + 1], node.l2_sets, node.fifos, node.pool)
        while now_ps < end_ps:
            engine.bank_steps += 1
            now_ps = l2_step(bank, node.l2_sets, node.waiters, node.fifos, node.pool, now_ps)
        node.bank_wake_ps[b] = now_ps
        channel = b % spread // slices
        node.memory_wake_ps[channel] = min(node.memory_wake_ps[channel], bank.sent_ps)
        bank.sent_ps = NEVER
        if bank.peer >= 0:
            _wake_peers(node, bank, end_ps)


@compiled
def _wake_peers(node, bank, end_ps):
    """Wake the banks of other partitions that a bank has asked, and those that wait for room at this bank."""
    for b in range(bank.number % bank.partition_banks, bank.all_banks, bank.partition_banks):
        if b != bank.number:
            node.bank_wake_ps[b] = min(node.bank_wake_ps[b], bank.asked_ps)
            l2_retry(node.banks, node.bank_wake_ps, b, b + 1, end_ps)
    bank.asked_ps = NEVER


@compiled(inline=True)
def _retry_banks(node, h, end_ps):
    """A fifo towards memory of channel h has room again: its banks, in each private partition, try again."""
    spread = node.noc[0].home_banks
    slices = spread // len(node.channels)
    for first in range(h * slices, len(node.banks), spread):
        l2_retry(node.banks, node.bank_wake_ps, first, first + slices, end_ps)


@compiled(inline=True)
def _taken(node, channel):
    """Requests that the channel has taken from its stream fifos so far."""
    taken = 0
    for stream in range(STREAMS):
        taken += node.fifos[channel.in_fifo[stream]].head
    return taken


@compiled
def run_channels(node, begin_ps, end_ps):
    """Run the HBM channels. Then return read data, report updates to the Tracker, and wake banks that wait for room.

    Reads: node.banks, node.noc. Writes: node.bank_wake_ps, node.channel_wake_ps, node.channels, node.dispatch,
    node.dmas, node.engine, node.fifos, node.log, node.output, node.pool, node.ports.
    """
    engine = node.engine[0]
    for h in range(len(node.channels)):
        now_ps = node.channel_wake_ps[h]
        if now_ps >= end_ps:
            continue
        channel = node.channels[h]
        taken = _taken(node, channel)
        while now_ps < end_ps:
            engine.channel_steps += 1
            now_ps = channel_step(channel, node.fifos, node.pool, now_ps, node.log)
        node.channel_wake_ps[h] = now_ps
        if len(node.msc_sets) > 0:  # the memory-side cache takes the data
            node.msc_wake_ps[h] = min(node.msc_wake_ps[h], fifo_head_ps(node.fifos[channel.out_fifo], node.pool))
        else:
            _return_data(node, channel.out_fifo)
        if channel.note_fifo >= 0:
            count_notes(node, channel, end_ps)
        if _taken(node, channel) != taken:
            _retry_banks(node, h, end_ps)


@compiled(inline=True)
def _return_data(node, number):
    """Put data from memory, in fifo `number`, into the fill fifos of their banks."""
    out = node.fifos[number]
    while out.head != out.tail:
        data = fifo_head(out, node.pool)
        if data.source < 0:
            dma_data(node, data)
            fifo_pop(out)
            continue
        b = np.int64(data.bank)
        node.bank_wake_ps[b] = min(node.bank_wake_ps[b], data.ready_ps)
        l2_expect(node.banks[b], node.l2_sets, data)
        fifo_push_copy(node.fifos[node.banks[b].fills], node.pool, data, data.ready_ps)
        fifo_pop(out)


@compiled
def run_mscs(node, begin_ps, end_ps):
    """Run the slices of the memory-side cache. Return data, wake channels, and L2 banks that wait for room.

    Reads: node.banks, node.noc. Writes: node.bank_wake_ps, node.channel_wake_ps, node.dmas, node.fifos, node.msc_sets,
    node.msc_waiters, node.msc_wake_ps, node.mscs, node.pool, node.ports.
    """
    for h in range(len(node.mscs)):
        now_ps = node.msc_wake_ps[h]
        if now_ps >= end_ps:
            continue
        msc = node.mscs[h]
        while now_ps < end_ps:
            now_ps = msc_step(msc, node.msc_sets, node.msc_waiters, node.fifos, node.pool, now_ps)
        node.msc_wake_ps[h] = now_ps
        if msc.sets > 0:
            _return_data(node, msc.answers)
        if msc.sent_ps < NEVER:
            node.channel_wake_ps[h] = min(node.channel_wake_ps[h], msc.sent_ps)
            msc.sent_ps = NEVER
        if msc.taken == 1:
            msc.taken = 0
            _retry_banks(node, h, end_ps)


@compiled(inline=True)
def memory_moves(node):
    """A count of moves: it grows with every request that the memory-side cache takes. Reads: node.mscs."""
    moves = np.int64(0)
    for h in range(len(node.mscs)):
        for stream in range(STREAMS):
            moves += node.mscs[h].requests[stream]
    return moves


@compiled(inline=True)
def retry_mscs(node, end_ps):
    """Slices in which a stream waits for room try again in the next time window.

    Reads: node.mscs. Writes: node.msc_wake_ps.
    """
    for h in range(len(node.mscs)):
        if node.mscs[h].blocked == 1:
            node.msc_wake_ps[h] = min(node.msc_wake_ps[h], end_ps)


@compiled(inline=True)
def retry_cus(node, end_ps):
    """Load/store units that are blocked, by their port or by L1, try again in the next window.

    Reads: node.lsus. Writes: node.cu_wake_ps.
    """
    for c in range(len(node.cus)):
        lsu = node.lsus[c]
        if lsu.blocked_since_ps >= 0:
            node.cu_wake_ps[c] = min(node.cu_wake_ps[c], end_ps)
