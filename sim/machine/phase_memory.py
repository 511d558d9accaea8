"""Phases of the memory-side cache and the HBM channels, and what waits for room in them."""

import numpy as np

from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_pop, fifo_push_copy
from sim.hw.hbm.channel import channel_step
from sim.hw.l2_expect import l2_expect_data
from sim.hw.l2_wait import l2_retry_ps
from sim.hw.msc import msc_expect, msc_retry_ps, msc_step
from sim.hw.request import NEVER
from tracer.compile.jit import compiled


@compiled(apart=True)
def run_channels(node, first, last, end_ps):
    """Run HBM channels. Then return the data that they have read.

    Writes: node.bank_told_ps, node.channel_wake_ps, node.channels, node.fifos, node.log, node.msc_wake_ps, node.pool,
    node.steps.
    """
    place = len(node.cus) + len(node.banks) + len(node.mscs)
    for h in range(first, last):
        now_ps = node.channel_wake_ps[h]
        if now_ps >= end_ps:
            continue
        channel = node.channels[h]
        steps = 0
        while now_ps < end_ps:
            steps += 1
            now_ps = channel_step(channel, node.fifos, node.pool, now_ps, node.log)
        node.steps[place + h] += steps
        node.channel_wake_ps[h] = now_ps
        if len(node.msc_sets) > 0:  # the memory-side cache takes the data
            node.msc_wake_ps[h] = min(node.msc_wake_ps[h], fifo_head_ps(node.fifos[channel.out_fifo], node.pool))
        else:
            _return_data(node, channel.out_fifo)


@compiled(inline=True)
def _return_data(node, number):
    """Put data from memory, in fifo `number`, into the fill fifos of their banks."""
    out = node.fifos[number]
    while out.head != out.tail:
        data = fifo_head(out, node.pool)
        b = np.int64(data.bank)
        node.bank_told_ps[b] = min(node.bank_told_ps[b], data.ready_ps)
        l2_expect_data(node.banks[b], node.l2_sets, node.waiters, data)
        fifo_push_copy(node.fifos[node.banks[b].fills], node.pool, data, data.ready_ps)
        fifo_pop(out)


@compiled(apart=True)
def run_mscs(node, first, last, end_ps):
    """Run slices of the memory-side cache. Return data, wake channels.

    Writes: node.bank_told_ps, node.channel_wake_ps, node.fifos, node.msc_sets, node.msc_waiters, node.msc_wake_ps,
    node.mscs, node.pool.
    """
    for h in range(first, last):
        now_ps = node.msc_wake_ps[h]
        if now_ps >= end_ps:
            continue
        msc = node.mscs[h]
        if len(node.msc_sets) > 0 and h + 1 < last and node.msc_wake_ps[h + 1] < end_ps:
            msc_expect(node.mscs[h + 1], node.msc_sets, node.fifos, node.pool)
        while now_ps < end_ps:
            now_ps = msc_step(msc, node.msc_sets, node.msc_waiters, node.fifos, node.pool, now_ps)
        node.msc_wake_ps[h] = now_ps
        if msc.sets > 0:
            _return_data(node, msc.answers)
        if msc.sent_ps < NEVER:
            node.channel_wake_ps[h] = min(node.channel_wake_ps[h], msc.sent_ps)
            msc.sent_ps = NEVER


@compiled
def retry_memory(node, first, last, end_ps):
    """Banks and memory-side caches of channels that wait for room continue when their credits come.

    All units that take from their fifos have run.

    Reads: node.fifos, node.mscs, node.noc, node.pool. Writes: node.bank_told_ps, node.banks, node.msc_wake_ps.
    """
    spread = node.noc[0].home_banks
    slices = spread // len(node.channels)
    for lowest in range(first * slices, len(node.banks), spread):
        for b in range(lowest, lowest + (last - first) * slices):
            if node.banks[b].blocked != 0:
                retry_ps = l2_retry_ps(node.banks[b], node.fifos, node.pool)
                node.bank_told_ps[b] = min(node.bank_told_ps[b], retry_ps)
    if len(node.mscs) > 0:
        for h in range(first, last):
            if node.mscs[h].blocked == 1:
                node.msc_wake_ps[h] = min(node.msc_wake_ps[h], msc_retry_ps(node.mscs[h], node.fifos, node.pool))
