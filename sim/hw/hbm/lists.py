"""Lists of queued atoms: four per bank, oldest first.

There is a list of reads and a list of writes (updates count as writes) that hit the bank's open row, and the same for
atoms that miss it. So the scheduler checks one oldest hit and one oldest miss per bank and direction, never the whole
queue (D16). `listed_bank` names the banks in which a list is not empty, in no order. Atoms of one bank, row and
direction are served in order.
"""

import numpy as np

from tracer.compile.jit import compiled

HITS, MISSES = 0, 2
"""First list of each kind. The number of a list is this plus the direction."""
LISTS = 4


@compiled
def append(channel, bank_index, which, slot):
    """Append an atom to a list of its bank. which: number of the list. Writes: channel."""
    bank = channel.bank[bank_index]
    channel.atom[slot].next = -1
    if bank.head[which] < 0:
        bank.head[which] = slot
        place = channel.listed[which]
        channel.listed_bank[which, place] = bank_index
        bank.place[which] = place
        channel.listed[which] = place + 1
    else:
        channel.atom[bank.tail[which]].next = slot
    bank.tail[which] = slot


@compiled
def strike(channel, bank, which):
    """A list of a bank is empty: remove the bank from `listed_bank` (the last entry takes its place).

    Writes: channel, bank.
    """
    bank.head[which] = -1
    channel.listed[which] -= 1
    last = channel.listed_bank[which, channel.listed[which]]
    place = bank.place[which]
    channel.listed_bank[which, place] = last
    channel.bank[last].place[which] = place


@compiled
def row_opened(channel, bank_index, row):
    """The bank now has `row` open: its misses on that row become hits, in both directions. Writes: channel."""
    bank = channel.bank[bank_index]
    for direction in range(2):
        slot = np.int64(bank.head[MISSES + direction])
        if slot < 0:
            continue
        kept = np.int64(0)  # not a literal: `_keep_miss` is compiled once
        while slot >= 0:
            atom = channel.atom[slot]
            following = np.int64(atom.next)
            if atom.row == row:
                append(channel, bank_index, HITS + direction, slot)
            else:
                _keep_miss(channel, bank, direction, slot, kept)
                kept += 1
            slot = following
        if kept == 0:
            strike(channel, bank, MISSES + direction)


@compiled
def _keep_miss(channel, bank, direction, slot, kept):
    """Append a remaining miss to the misses that were kept before it."""
    channel.atom[slot].next = -1
    if kept == 0:
        bank.head[MISSES + direction] = slot
    else:
        channel.atom[bank.tail[MISSES + direction]].next = slot
    bank.tail[MISSES + direction] = slot


@compiled
def row_closed(channel, bank_index):
    """The bank closed its row: its remaining hits become misses again, in order of age. Writes: channel."""
    bank = channel.bank[bank_index]
    for direction in range(2):
        hit = np.int64(bank.head[HITS + direction])
        if hit < 0:
            continue
        strike(channel, bank, HITS + direction)
        miss = np.int64(bank.head[MISSES + direction])
        if miss >= 0:
            strike(channel, bank, MISSES + direction)
        while hit >= 0 or miss >= 0:
            if miss < 0 or (hit >= 0 and channel.atom[hit].order < channel.atom[miss].order):
                slot = hit
                hit = np.int64(channel.atom[hit].next)
            else:
                slot = miss
                miss = np.int64(channel.atom[miss].next)
            append(channel, bank_index, MISSES + direction, slot)
