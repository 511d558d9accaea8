"""The clock: which unit acts when, and who is connected to whom. The only file that knows both.

Time advances in windows no longer than the shortest latency between two units, so within a window no unit can feel
what another does in it: each unit is run alone through the window, at exactly the times at which it can act, and what
it sends arrives in a later window. Only back-pressure is coarser: room made in a fifo is seen by its producer in the
next window (D6). The order of the units is fixed, so a run is a function of its input alone.

    dispatcher -> CUs -> NoC requests -> L2 banks -> NoC answers -> arrivals -> DMA -> HBM channels -> Tracker -> links

GPUs feel each other only over wires, whose latency is far longer than a window: `horizon_ps` ends a run before what
another GPU might send could arrive (sim.host.cluster).
"""

from enum import IntEnum

import numpy as np

from sim.hw.cu import cu_step
from sim.hw.dispatcher import dispatch_step
from sim.hw.fifo import fifo_head, fifo_pop, fifo_push_copy
from sim.hw.hbm.channel import channel_settle, channel_step
from sim.hw.l2 import l2_expect, l2_expect_queue, l2_prefill, l2_step
from sim.hw.noc import home_bank, home_set, noc_answers, noc_requests
from sim.hw.request import LINE_BYTES, NEVER, STREAMS
from sim.hw.spans import SpanKind, write_span
from sim.machine.fabric import (
    count_notes,
    dma_data,
    end_of_first_stage,
    fabric_moves,
    next_arrival_ps,
    retry_fabric,
    run_arrivals,
    run_dmas,
    run_links,
)
from sim.machine.series import close_interval
from tracer.compile.jit import compiled


class Status(IntEnum):
    """Why the engine came back."""

    IDLE = 0  # nothing will ever happen again by itself
    UNTIL = 1  # reached the time that was asked for
    NEEDS_WORKGROUPS = 2  # a dispatch queue waits for the host
    SERIES_FULL = 3  # the host must take the rows of the time series
    STUCK = 4  # requests wait for each other, or for another GPU
    HORIZON = 5  # reached the time up to which the other GPUs are known


@compiled
def _earliest(wake_ps):
    first = NEVER
    for k in range(len(wake_ps)):
        first = min(first, wake_ps[k])
    return first


@compiled
def _unit_wake_ps(node):
    """When a unit or a dispatcher acts of its own accord."""
    wake_ps = min(_earliest(node.cu_wake_ps), _earliest(node.bank_wake_ps), _earliest(node.channel_wake_ps))
    for queue in range(len(node.dispatch)):
        wake_ps = min(wake_ps, node.dispatch[queue].wake_ps)
    return min(wake_ps, node.engine[0].fabric_ps)


@compiled
def _next_begin_ps(node):
    """Begin of the next window: the earliest time at which anything can happen."""
    begin_ps = min(_unit_wake_ps(node), node.engine[0].noc_ps, next_arrival_ps(node))
    return max(begin_ps, node.engine[0].now_ps) if begin_ps < NEVER else NEVER


@compiled
def _run_dispatchers(node, end_ps):
    """Place workgroups whose time comes before end_ps. Returns False if a queue waits for the host."""
    for queue in range(len(node.dispatch)):
        dispatch = node.dispatch[queue]
        while dispatch.wake_ps < end_ps:
            c, start_ps = dispatch_step(dispatch, queue, node.cus, 0, node.warps, node.staged[queue], node.output.gates)
            if dispatch.needs == 1:
                return False
            if c >= 0:
                node.cu_wake_ps[c] = min(node.cu_wake_ps[c], start_ps)
    return True


@compiled
def _run_cus(node, end_ps):
    engine = node.engine[0]
    for c in range(engine.cus):
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
def _run_requests(node, begin_ps, end_ps):
    """Requests cross the NoC. Returns when the next one can leave."""
    return noc_requests(node.noc[0], node.fifos, node.pool, begin_ps, end_ps, node.bank_wake_ps)


@compiled
def _retry_blocked(node, end_ps):
    """A load/store unit that was blocked, by its port or by L1, tries again in the next window."""
    for c in range(node.engine[0].cus):
        lsu = node.lsus[c]
        if lsu.blocked_since_ps >= 0:
            node.cu_wake_ps[c] = min(node.cu_wake_ps[c], end_ps)


@compiled
def _run_banks(node, end_ps):
    engine = node.engine[0]
    slices = engine.banks // engine.channels
    for b in range(engine.banks):
        now_ps = node.bank_wake_ps[b]
        if now_ps >= end_ps:
            continue
        bank = node.banks[b]
        if b + 1 < engine.banks:
            l2_expect_queue(node.banks[b + 1], node.l2_sets, node.fifos, node.pool)
        while now_ps < end_ps:
            engine.bank_steps += 1
            now_ps = l2_step(bank, node.l2_sets, node.waiters, node.fifos, node.pool, now_ps)
        node.bank_wake_ps[b] = now_ps
        channel = b // slices
        node.channel_wake_ps[channel] = min(node.channel_wake_ps[channel], bank.sent_ps)
        bank.sent_ps = NEVER


@compiled(inline=True)
def _taken(node, channel):
    """Requests that the channel has taken from its stream fifos so far."""
    taken = 0
    for stream in range(STREAMS):
        taken += node.fifos[channel.in_fifo[stream]].head
    return taken


@compiled
def _run_channels(node, end_ps):
    engine = node.engine[0]
    slices = engine.banks // engine.channels
    for h in range(engine.channels):
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
            for b in range(h * slices, (h + 1) * slices):
                if node.banks[b].blocked == 1:
                    node.bank_wake_ps[b] = min(node.bank_wake_ps[b], end_ps)


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


@compiled
def settle(node):
    """Bring counters that are integrals over time up to now."""
    for h in range(len(node.channels)):
        channel_settle(node.channels[h], node.engine[0].now_ps, node.log)


@compiled
def prefill_l2(node, first_line, end):
    """Put the lines from first_line up to the address `end` into L2, clean."""
    noc = node.noc[0]
    for number in range((end - first_line + LINE_BYTES - 1) // LINE_BYTES):
        line = first_line + number * LINE_BYTES
        l2_prefill(node.banks[home_bank(noc, line)], node.l2_sets, home_set(noc, line), line)


@compiled
def _run_window(node, begin_ps, end_ps):
    """Run all units but the dispatcher through a window.

    Returns:
        False if no packet moved, and those that wait for room (in a port, a bank, L1) can wait for ever, because no
        unit will act of its own accord.
    """
    engine, noc = node.engine[0], node.noc[0]
    before = noc.request_packets + noc.answer_packets + fabric_moves(node)
    _run_cus(node, end_ps)
    requests_ps = _run_requests(node, begin_ps, end_ps)
    _run_banks(node, end_ps)
    answers_ps = noc_answers(noc, node.fifos, node.pool, begin_ps, end_ps, node.cu_wake_ps)
    if engine.ports > 0:
        run_arrivals(node, begin_ps, end_ps)
        run_dmas(node, begin_ps, end_ps)
    _run_channels(node, end_ps)
    if engine.ports > 0:
        run_links(node, end_ps)
        end_of_first_stage(node)
    engine.noc_ps = min(requests_ps, answers_ps)
    engine.windows += 1
    moves = noc.request_packets + noc.answer_packets + fabric_moves(node) != before
    coming = min(_unit_wake_ps(node), next_arrival_ps(node), answers_ps) < NEVER or end_ps < requests_ps < NEVER
    _retry_blocked(node, end_ps)
    if engine.ports > 0:
        retry_fabric(node, end_ps)
    return moves or coming


@compiled
def run_engine(node, until_ps):
    """Advance the machine until nothing is left to do, or a window ends past until_ps, or the host must help.

    Returns:
        A Status. `engine.now_ps` is the end of the last window.
    """
    engine = node.engine[0]
    idle_windows, engine.idle_windows = engine.idle_windows, 0
    while True:
        begin_ps = engine.resume_ps if engine.resume_ps >= 0 else _next_begin_ps(node)
        engine.resume_ps = -1
        if begin_ps == NEVER:
            return Status.IDLE
        if begin_ps >= engine.horizon_ps:
            return Status.HORIZON
        if engine.interval_ps > 0 and begin_ps >= engine.next_sample_ps:
            if not close_interval(node):
                return Status.SERIES_FULL
            continue
        end_ps = min(begin_ps + engine.window_ps, engine.horizon_ps)
        if not _run_dispatchers(node, end_ps):
            engine.resume_ps = begin_ps  # the same window, however often the host is asked
            return Status.NEEDS_WORKGROUPS
        engine.now_ps = end_ps
        if _run_window(node, begin_ps, end_ps):
            idle_windows = 0
        else:
            idle_windows += 1
            if idle_windows > 2:
                return Status.STUCK
        if end_ps > until_ps:
            engine.idle_windows = idle_windows  # a line trace asks window by window
            return Status.UNTIL
