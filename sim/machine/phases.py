"""Phases of the units of one GPU in a time window, one phase per kind of unit.

A phase runs units alone through the window: the units `first` to `last` - 1 of its kind, or the one unit of its kind.
Requests to other units lower their wake times. After the last phase `retry_blocked` and `collect_ended` tell the rest.
`sim.machine.build` has the order of the phases and the connections of the units; `sim.machine.fabric` and
`sim.machine.tracking` have the phases of machines with links.
"""

import numpy as np

from sim.hw.bulk import bulk_retry_ps
from sim.hw.cu import cu_expect, cu_expect_work, cu_step
from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_pop, fifo_push_copy
from sim.hw.hbm.channel import channel_step
from sim.hw.l2 import l2_step
from sim.hw.l2_expect import l2_expect_data, l2_expect_queue
from sim.hw.l2_record import BANK_LINES
from sim.hw.l2_wait import l2_retry_ps, waits_for_room, waits_longer
from sim.hw.lsu import lsu_retry_ps
from sim.hw.mca import stage_ended
from sim.hw.msc import msc_expect, msc_retry_ps, msc_step
from sim.hw.noc import noc_requests, noc_wake_ps
from sim.hw.noc_answers import noc_answers
from sim.hw.prefetch import prefetch_lines
from sim.hw.request import NEVER
from sim.hw.spans import SpanKind, write_span
from sim.machine.engine_record import grid_end_ps
from tracer.compile.jit import compiled

# News of a CU after a window, as bits. Nobody needs to look at the records of a CU without news.
WORKGROUP_ASKS = 1  # a workgroup asks the Tracker for an entry
PORT_WAITS = 2  # its load/store unit, or its bulk copy unit, waits for a credit of unknown time


@compiled
def run_cus(node, first, last, end_ps):
    """Run CUs, each with its load/store unit and L1. Returns 1 if a workgroup has ended, else 0.

    Reads: node.addresses, node.events, node.mail. Writes: node.bulks, node.cu_told_ps, node.cu_wake_ps, node.cus,
    node.fifos, node.l1_sets, node.l1s, node.leaving, node.lsus, node.news, node.output, node.peers, node.pool,
    node.steps, node.warps.
    """
    ended = 0
    for c in range(first, last):
        _expect_cus(node, c, last, end_ps)
        now_ps = min(node.cu_wake_ps[c], node.cu_told_ps[c])
        if now_ps >= end_ps:
            continue
        node.cu_told_ps[c] = NEVER
        cu, lsu, l1, warps = node.cus[c], node.lsus[c], node.l1s[c], node.warps[c]
        bulk, leaving, peer = node.bulks[c], node.leaving[c], node.peers[c]
        steps = 0
        while now_ps < end_ps:
            steps += 1
            now_ps = cu_step(
                *(cu, lsu, bulk, leaving, l1, node.l1_sets, node.fifos, node.pool, warps, peer, node.mail),
                *(node.events, node.addresses, node.output, now_ps, end_ps),
            )
        node.steps[c] += steps
        node.cu_wake_ps[c] = now_ps
        if cu.collected < cu.ended:
            ended = 1
        waits = lsu.port_room_ps == NEVER or bulk.port_room_ps == NEVER
        waits |= bulk.leaving > 0 and leaving.port_room_ps == NEVER
        news = (WORKGROUP_ASKS if cu.asking > 0 else 0) | (PORT_WAITS if waits else 0)
        if node.news[c] != news:
            node.news[c] = news
    return ended


@compiled(inline=True)
def _expect_cus(node, c, last, end_ps):
    """Hint to the host: the CUs behind CU c act soon, those up to `last` - 1."""
    first_answers = node.noc[0].first_answer_fifo
    soon, later = c + 1, c + 2
    if later < last and node.cu_wake_ps[later] < end_ps:
        answers = node.fifos[first_answers + later]
        cu_expect(node.cus[later], node.lsus[later], node.l1s[later], node.warps[later], answers, node.pool)
    if soon < last and node.cu_wake_ps[soon] < end_ps:
        answers = node.fifos[first_answers + soon]
        cu_expect_work(node.lsus[soon], node.l1s[soon], node.l1_sets, node.warps[soon], answers, node.pool)


@compiled
def collect_ended(node):
    """Collect workgroups that have ended, in the order of time. The dispatcher sees it a lookahead later (D7).

    Writes: node.cus, node.dispatch, node.engine, node.freed, node.mca, node.spans.
    """
    while True:
        chosen, chosen_ps = -1, NEVER
        for c in range(len(node.cus)):
            cu = node.cus[c]
            if cu.collected < cu.ended and cu.ended_ps[cu.collected] < chosen_ps:
                chosen, chosen_ps = c, cu.ended_ps[cu.collected]
        if chosen < 0:
            return
        _collect(node, chosen, chosen_ps)


@compiled
def _collect(node, c, ended_ps):
    """Collect the workgroup of CU c that ended first."""
    engine, cu = node.engine[0], node.cus[c]
    i = cu.collected
    write_span(
        *(node.spans, engine, SpanKind.WORKGROUP, c, cu.ended_queue[i], cu.ended_tag[i]),
        *(cu.ended_started_ps[i], ended_ps),
    )
    node.freed[engine.freed] = cu.ended_slab[i]
    engine.freed += 1
    own = node.dispatch[cu.ended_queue[i]]
    own.finished += 1
    own.last_exit_ps = max(own.last_exit_ps, ended_ps)
    seen_ps = ended_ps + engine.lookahead_ps
    for queue in range(len(node.dispatch)):
        dispatch = node.dispatch[queue]
        if dispatch.first_cu <= c < dispatch.last_cu:
            dispatch.wake_ps = min(dispatch.wake_ps, seen_ps)
    if cu.ended_queue[i] == 0:
        stage_ended(node.mca[0], node.dispatch[0].finished, grid_end_ps(engine, seen_ps))
    cu.collected += 1
    if cu.collected == cu.ended:
        cu.collected = cu.ended = 0


@compiled
def run_requests(node, begin_ps, end_ps):
    """Carry requests over the NoC. Writes: node.bank_wake_ps, node.fifos, node.noc, node.pool."""
    noc = node.noc[0]
    noc.requests_ps = noc_requests(noc, node.fifos, node.pool, begin_ps, end_ps, node.bank_wake_ps)


@compiled
def run_answers(node, begin_ps, end_ps):
    """Carry answers over the NoC.

    Reads: node.cus. Writes: node.copy_told_ps, node.cu_wake_ps, node.fifos, node.mail, node.noc, node.peers, node.pool.
    """
    noc = node.noc[0]
    clusters = node.cus, node.peers, node.mail
    noc.answers_ps = noc_answers(
        noc, node.fifos, node.pool, begin_ps, end_ps, clusters, node.copy_told_ps, node.cu_wake_ps
    )


@compiled
def run_banks(node, first, last, end_ps):
    """Run the L2 banks of groups of channels, of the groups `first` to `last` - 1 that there are.

    Banks of one channel share its fifos, so they act in the order of time. At equal times the bank that is blocked goes
    first, then the lower one. Requests to memory wake the channel or its memory-side cache. If there is no room for the
    request of one bank, there is none for the others that wait for room. Only banks of one group ask each other for
    copies.

    Reads: node.noc. Writes: node.bank_told_ps, node.bank_wake_ps, node.banks, node.copy_told_ps, node.fifos,
    node.l2_sets, node.memory_wake_ps, node.pool, node.steps, node.waiters.
    """
    spread, groups = node.noc[0].home_banks, node.noc[0].channel_groups
    slices = spread // len(node.channels)
    last = min(last, groups)
    for group in range(first, last):
        for h in range(group, len(node.channels), groups):
            behind = (h - group + last) * slices
            _tell_banks(node, h * slices, slices, spread)
            _expect_banks(node, (h + 1) * slices, behind, slices, spread)
            room_ps = np.int64(0)
            while True:
                b, now_ps, other_ps = _next_bank(node, h * slices, slices, spread)
                if now_ps >= end_ps:
                    break
                bank = node.banks[b]
                if room_ps > now_ps and waits_for_room(bank, node.fifos, node.pool, now_ps):
                    node.bank_wake_ps[b] = min(room_ps, fifo_head_ps(node.fifos[bank.fills], node.pool))
                else:
                    _run_bank(node, h, b, now_ps, min(other_ps, end_ps))
                    room_ps = bank.room_ps if waits_for_room(bank, node.fifos, node.pool, now_ps) else 0


@compiled(inline=True)
def _tell_banks(node, lowest, slices, spread):
    """Lower the wake times of a channel's banks (see `_next_bank`) to what other units have told."""
    for first in range(lowest, len(node.banks), spread):
        for b in range(first, first + slices):
            if node.bank_told_ps[b] < NEVER:
                node.bank_wake_ps[b] = min(node.bank_wake_ps[b], node.bank_told_ps[b])
                node.bank_told_ps[b] = NEVER
            if len(node.copy_told_ps) > 0 and node.copy_told_ps[b] < NEVER:
                node.bank_wake_ps[b] = min(node.bank_wake_ps[b], node.copy_told_ps[b])
                node.copy_told_ps[b] = NEVER


@compiled(inline=True)
def _expect_banks(node, lowest, behind, slices, spread):
    """Hint to the host: the banks of the channel whose first bank is `lowest` are next, then those behind them.

    behind: no bank from this one on is run.
    """
    for first in range(0, len(node.banks), spread):
        for b in range(first + lowest, first + min(lowest + slices, behind)):
            l2_expect_queue(node.banks[b], node.l2_sets, node.waiters, node.fifos, node.pool)
        for b in range(first + lowest + slices, first + min(lowest + 2 * slices, behind)):
            prefetch_lines(node.banks[b], BANK_LINES)


@compiled(inline=True)
def _next_bank(node, lowest, slices, spread):
    """The bank of a channel that acts next: (bank, its time, the earliest time of another bank).

    The channel has `slices` banks from `lowest` on in each run of `spread` banks: in each private partition.
    """
    b = lowest
    now_ps = node.bank_wake_ps[lowest]
    other_ps = NEVER
    for first in range(lowest, len(node.banks), spread):
        for k in range(first, first + slices):
            if k == lowest:
                continue
            wake_ps = node.bank_wake_ps[k]
            if wake_ps < now_ps or (wake_ps == now_ps and waits_longer(node.banks[k], node.banks[b])):
                b, now_ps, other_ps = k, wake_ps, now_ps
            else:
                other_ps = min(other_ps, wake_ps)
    return b, now_ps, other_ps


@compiled(inline=True)
def _run_bank(node, h, b, now_ps, end_ps):
    """Run a bank for at least one step, up to end_ps."""
    bank, number = node.banks[b], len(node.cus) + b
    steps = 0
    while True:
        steps += 1
        now_ps = l2_step(bank, node.l2_sets, node.waiters, node.fifos, node.pool, now_ps)
        if now_ps >= end_ps:
            break
    node.steps[number] += steps
    node.bank_wake_ps[b] = now_ps
    node.memory_wake_ps[h] = min(node.memory_wake_ps[h], bank.sent_ps)
    bank.sent_ps = NEVER
    if bank.asked_ps < NEVER:
        node.bank_wake_ps[bank.other] = min(node.bank_wake_ps[bank.other], bank.asked_ps)
        bank.asked_ps = NEVER


@compiled
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
        channel.window_end_ps = end_ps
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


@compiled
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

    Reads: node.banks, node.fifos, node.mscs, node.noc, node.pool. Writes: node.bank_told_ps, node.msc_wake_ps.
    """
    spread = node.noc[0].home_banks
    slices = spread // len(node.channels)
    for lowest in range(first * slices, len(node.banks), spread):
        for b in range(lowest, lowest + (last - first) * slices):
            if node.banks[b].blocked == 1:
                retry_ps = l2_retry_ps(node.banks[b], node.fifos, node.pool)
                node.bank_told_ps[b] = min(node.bank_told_ps[b], retry_ps)
    if len(node.mscs) > 0:
        for h in range(first, last):
            if node.mscs[h].blocked == 1:
                node.msc_wake_ps[h] = min(node.msc_wake_ps[h], msc_retry_ps(node.mscs[h], node.fifos, node.pool))


@compiled
def retry_blocked(node):
    """CUs and requests at the crossbar that wait for room continue when their credits come.

    Reads: node.fifos, node.news, node.pool. Writes: node.bulks, node.cu_wake_ps, node.leaving,
    node.lsus, node.noc.
    """
    for c in range(len(node.cus)):
        if node.news[c] & PORT_WAITS != 0:
            if node.lsus[c].port_room_ps == NEVER:
                retry_ps = lsu_retry_ps(node.lsus[c], node.fifos, node.pool)
                node.cu_wake_ps[c] = min(node.cu_wake_ps[c], retry_ps)
            if node.bulks[c].port_room_ps == NEVER:
                retry_ps = bulk_retry_ps(node.bulks[c], node.fifos, node.pool)
                node.cu_wake_ps[c] = min(node.cu_wake_ps[c], retry_ps)
            if node.bulks[c].leaving > 0 and node.leaving[c].port_room_ps == NEVER:
                retry_ps = bulk_retry_ps(node.leaving[c], node.fifos, node.pool)
                node.cu_wake_ps[c] = min(node.cu_wake_ps[c], retry_ps)
    noc = node.noc[0]
    noc.requests_ps = min(noc.requests_ps, noc_wake_ps(noc, node.fifos, node.pool))
