"""Lists of queued atoms: four per bank, oldest first.

There is a list of reads and a list of writes (updates count as writes) that hit the bank's open row, and the same for
atoms that miss it. So the scheduler checks one oldest hit and one oldest miss per bank and direction, never the whole
queue (D16). `hit_bank` and `miss_bank` name the banks with non-empty lists, in no order. Atoms of one bank, row and
direction are served in order.
"""

import numpy as np

from tracer.compile.jit import compiled


@compiled
def append_hit(channel, bank_index, direction, slot):
    """Append an atom that hits the open row to its list. Writes: channel."""
    bank = channel.bank[bank_index]
    channel.atom[slot].next = -1
    if bank.hit_head[direction] < 0:
        bank.hit_head[direction] = slot
        place = channel.hit_banks[direction]
        channel.hit_bank[direction, place] = bank_index
        bank.hit_place[direction] = place
        channel.hit_banks[direction] = place + 1
    else:
        channel.atom[bank.hit_tail[direction]].next = slot
    bank.hit_tail[direction] = slot


@compiled
def append_miss(channel, bank_index, direction, slot):
    """Append an atom that misses the open row to its list. Writes: channel."""
    bank = channel.bank[bank_index]
    channel.atom[slot].next = -1
    if bank.miss_head[direction] < 0:
        bank.miss_head[direction] = slot
        place = channel.miss_banks[direction]
        channel.miss_bank[direction, place] = bank_index
        bank.miss_place[direction] = place
        channel.miss_banks[direction] = place + 1
    else:
        channel.atom[bank.miss_tail[direction]].next = slot
    bank.miss_tail[direction] = slot


@compiled
def strike_hits(channel, bank, direction):
    """The hit list of a bank is empty: remove the bank from `hit_bank` (the last entry takes its place).

    Writes: channel, bank.
    """
    bank.hit_head[direction] = -1
    channel.hit_banks[direction] -= 1
    last = channel.hit_bank[direction, channel.hit_banks[direction]]
    place = bank.hit_place[direction]
    channel.hit_bank[direction, place] = last
    channel.bank[last].hit_place[direction] = place


@compiled
def strike_misses(channel, bank, direction):
    """The miss list of a bank is empty: remove the bank from `miss_bank`."""
    bank.miss_head[direction] = -1
    channel.miss_banks[direction] -= 1
    last = channel.miss_bank[direction, channel.miss_banks[direction]]
    place = bank.miss_place[direction]
    channel.miss_bank[direction, place] = last
    channel.bank[last].miss_place[direction] = place


@compiled
def row_opened(channel, bank_index, row):
    """The bank now has `row` open: its misses on that row become hits, in both directions. Writes: channel."""
    bank = channel.bank[bank_index]
    for direction in range(2):
        slot = np.int64(bank.miss_head[direction])
        if slot < 0:
            continue
        kept = np.int64(0)  # not a literal: `_keep_miss` is compiled once
        while slot >= 0:
            atom = channel.atom[slot]
            following = np.int64(atom.next)
            if atom.row == row:
                append_hit(channel, bank_index, direction, slot)
            else:
                _keep_miss(channel, bank, direction, slot, kept)
                kept += 1
            slot = following
        if kept == 0:
            strike_misses(channel, bank, direction)


@compiled
def _keep_miss(channel, bank, direction, slot, kept):
    """Append a remaining miss to the misses that were kept before it."""
    channel.atom[slot].next = -1
    if kept == 0:
        bank.miss_head[direction] = slot
    else:
        channel.atom[bank.miss_tail[direction]].next = slot
    bank.miss_tail[direction] = slot


@compiled
def row_closed(channel, bank_index):
    """The bank closed its row: its remaining hits become misses again, in order of age. Writes: channel."""
    bank = channel.bank[bank_index]
    for direction in range(2):
        hit = np.int64(bank.hit_head[direction])
        if hit < 0:
            continue
        strike_hits(channel, bank, direction)
        miss = np.int64(bank.miss_head[direction])
        if miss >= 0:
            strike_misses(channel, bank, direction)
        while hit >= 0 or miss >= 0:
            if miss < 0 or (hit >= 0 and channel.atom[hit].order < channel.atom[miss].order):
                slot = hit
                hit = np.int64(channel.atom[hit].next)
            else:
                slot = miss
                miss = np.int64(channel.atom[miss].next)
            append_miss(channel, bank_index, direction, slot)
