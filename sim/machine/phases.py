"""What the units of one GPU do in a time window, kind by kind, and whom they wake with it.

Each phase is called with (node, begin_ps, end_ps) and runs all units of its kind alone through the window. What it
sends to others lowers their wake times. The order of the phases, and who is connected to whom, is `sim.machine.build`;
what happens between GPUs is `sim.machine.fabric`.
"""

import numpy as np

from sim.hw.cu import cu_step
from sim.hw.fifo import fifo_head, fifo_pop, fifo_push_copy
from sim.hw.hbm.channel import channel_step
from sim.hw.l2 import l2_expect, l2_expect_queue, l2_retry, l2_step
from sim.hw.noc import noc_answers, noc_requests
from sim.hw.request import NEVER, STREAMS
from sim.hw.spans import SpanKind, write_span
from sim.machine.fabric import count_notes, dma_data
from tracer.compile.jit import compiled


@compiled
def run_cus(node, begin_ps, end_ps):
    """CUs, each with its load/store unit and L1."""
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
    """Workgroups of the CU ended: their places are free from the next window on (D7)."""
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
    """Requests cross the NoC."""
    noc = node.noc[0]
    noc.requests_ps = noc_requests(noc, node.fifos, node.pool, begin_ps, end_ps, node.bank_wake_ps)


@compiled
def run_answers(node, begin_ps, end_ps):
    """Answers cross the NoC."""
    noc = node.noc[0]
    noc.answers_ps = noc_answers(noc, node.fifos, node.pool, begin_ps, end_ps, node.cu_wake_ps)


@compiled
def run_banks(node, begin_ps, end_ps):
    """Banks of L2. What they send to memory wakes whoever takes it there."""
    engine = node.engine[0]
    slices = len(node.banks) // len(node.channels)
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
        channel = b // slices
        node.memory_wake_ps[channel] = min(node.memory_wake_ps[channel], bank.sent_ps)
        bank.sent_ps = NEVER


@compiled(inline=True)
def _taken(node, channel):
    """Requests that the channel has taken from its stream fifos so far."""
    taken = 0
    for stream in range(STREAMS):
        taken += node.fifos[channel.in_fifo[stream]].head
    return taken


@compiled
def run_channels(node, begin_ps, end_ps):
    """HBM channels. Data that were read go on, the Tracker hears of updates, banks that wait for room try again."""
    engine = node.engine[0]
    slices = len(node.banks) // len(node.channels)
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
        _return_data(node, channel)
        if channel.note_fifo >= 0:
            count_notes(node, channel, end_ps)
        if _taken(node, channel) != taken:
            l2_retry(node.banks, node.bank_wake_ps, h * slices, (h + 1) * slices, end_ps)


@compiled(inline=True)
def _return_data(node, channel):
    """Data read from DRAM go to the fill fifos of their banks."""
    out = node.fifos[channel.out_fifo]
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


@compiled(inline=True)
def retry_cus(node, end_ps):
    """A load/store unit that was blocked, by its port or by L1, tries again in the next window."""
    for c in range(len(node.cus)):
        lsu = node.lsus[c]
        if lsu.blocked_since_ps >= 0:
            node.cu_wake_ps[c] = min(node.cu_wake_ps[c], end_ps)
