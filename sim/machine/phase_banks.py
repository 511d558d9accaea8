"""Phase of the L2 banks."""

import numpy as np

from sim.hw.fifo import fifo_head_ps
from sim.hw.l2 import l2_step
from sim.hw.l2_expect import l2_expect_queue
from sim.hw.l2_record import BANK_LINES
from sim.hw.l2_wait import waits_for_room, waits_longer
from sim.hw.prefetch import prefetch_lines
from sim.hw.request import NEVER
from tracer.compile.jit import compiled


@compiled(apart=True)
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
    """Lower the wake times of a channel's banks (see `_next_bank`) to what other units have told.

    A `range` with a step costs a division, so the loops here and below add the step themselves.
    """
    first = lowest
    while first < len(node.banks):
        for b in range(first, first + slices):
            if node.bank_told_ps[b] < NEVER:
                node.bank_wake_ps[b] = min(node.bank_wake_ps[b], node.bank_told_ps[b])
                node.bank_told_ps[b] = NEVER
            if len(node.copy_told_ps) > 0 and node.copy_told_ps[b] < NEVER:
                node.bank_wake_ps[b] = min(node.bank_wake_ps[b], node.copy_told_ps[b])
                node.copy_told_ps[b] = NEVER
        first += spread


@compiled(inline=True)
def _expect_banks(node, lowest, behind, slices, spread):
    """Hint to the host: the banks of the channel whose first bank is `lowest` are next, then those behind them.

    behind: no bank from this one on is run.
    """
    first = 0
    while first < len(node.banks):
        for b in range(first + lowest, first + min(lowest + slices, behind)):
            l2_expect_queue(node.banks[b], node.l2_sets, node.waiters, node.fifos, node.pool)
        for b in range(first + lowest + slices, first + min(lowest + 2 * slices, behind)):
            prefetch_lines(node.banks[b], BANK_LINES)
        first += spread


@compiled(inline=True)
def _next_bank(node, lowest, slices, spread):
    """The bank of a channel that acts next: (bank, its time, the earliest time of another bank).

    The channel has `slices` banks from `lowest` on in each run of `spread` banks: in each private partition.
    """
    b = lowest
    now_ps = node.bank_wake_ps[lowest]
    other_ps = NEVER
    first, end = lowest + 1, lowest + slices
    while end <= len(node.banks):
        for k in range(first, end):
            wake_ps = node.bank_wake_ps[k]
            if wake_ps < now_ps or (wake_ps == now_ps and waits_longer(node.banks[k], node.banks[b])):
                b, now_ps, other_ps = k, wake_ps, now_ps
            else:
                other_ps = min(other_ps, wake_ps)
        end += spread
        first = end - slices
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
