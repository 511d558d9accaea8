"""Warps of one CU: their next events, what they wait for, and the calendar that selects the next warp to issue.

Scoreboard: each warp has 64 slots. A slot counts the memory events in flight that use it. It also stores when the last
finished event arrived (this time may be in the future: an L1 hit is known when it issues). An event may issue if every
slot of its `wait` mask has counter zero and its stored time is past.

Ready warps issue in the order of (time, warp number): among warps that became ready together, the lowest number first.
"""

import numpy as np

from sim.hw.bits import trailing_zeros
from sim.hw.request import NEVER
from tracer.compile.jit import compiled
from traces.schema import MAX_WARPS, NO_SLOT, SLOTS

WARP_BITS = 6
ASLEEP = (1 << 63) - 1

assert MAX_WARPS == 1 << WARP_BITS

# States of a warp (`state`).
IDLE = 0  # no program
READY = 1  # issues at its time in the warp calendar
ON_SLOTS = 2  # memory events in flight
ON_BARRIER = 3
ON_LSU = 4  # its memory event waits in the LSU's queue
ON_TRACKER = 5  # its store waits for a Tracker entry

SLOT = np.dtype([("done_ps", "i8"), ("count", "i8")])
"""When its last finished event arrived, and the number of events in flight."""

WARP = np.dtype(
    [
        ("event", "i8"),  # next event, index into its slab of the trace window
        ("pending", "u8"),  # slots that may not be clear yet
        ("wait", "u8"),  # ON_SLOTS: mask of the slots it waits for; ON_BARRIER: number of the barrier
        ("slab", "i8"),  # of the trace window: slab with its workgroup's events
        ("state", "i4"),
        ("workgroup", "i4"),  # resident-workgroup number in the CU
        ("slept_ps", "i8"),  # when it went to sleep (for the counters)
        ("pad", "i8", 2),  # fills whole cache lines of the host
        ("slot", SLOT, SLOTS),
    ],
    align=True,
)

WARPS = np.dtype(
    [
        ("key", "i8", MAX_WARPS),  # (ready time << 6) | warp, ASLEEP when not READY
        ("group_key", "i8", 4),  # smallest of 16 keys each
        ("next_key", "i8"),  # smallest of all
        ("pad", "i8", 3),
        ("warp", WARP, MAX_WARPS),
    ],
    align=True,
)
"""Warp table of a CU with its own small calendar: a key per warp, the smallest key of each group of 16, and of all."""


def clear_warps(warps):
    """Put an array of WARPS records to sleep."""
    warps["key"] = ASLEEP
    warps["group_key"] = warps["next_key"] = ASLEEP


@compiled(inline=True)
def _set_key(warps, w, key):
    group, before = w >> 4, warps.key[w]
    warps.key[w] = key
    if key < warps.group_key[group]:
        warps.group_key[group] = key
    elif before == warps.group_key[group]:
        best = key
        for k in range(group << 4, (group << 4) + 16):
            best = min(best, warps.key[k])
        warps.group_key[group] = best
    least = min(min(warps.group_key[0], warps.group_key[1]), min(warps.group_key[2], warps.group_key[3]))
    warps.next_key = least


@compiled(inline=True)
def warp_ready(warps, w, ready_ps):
    """Warp w issues its next event at ready_ps. Writes: warps."""
    warps.warp[w].state = READY
    _set_key(warps, w, (ready_ps << WARP_BITS) | w)


@compiled
def warp_sleep(warps, w, state, now_ps):
    """Warp w issues nothing until another unit wakes it. Writes: warps."""
    warps.warp[w].state = state
    warps.warp[w].slept_ps = now_ps
    _set_key(warps, w, ASLEEP)


@compiled(inline=True)
def next_warp(warps):
    """Key of the warp that issues next: time << WARP_BITS | warp; ASLEEP if none is ready. Reads: warps."""
    return warps.next_key


@compiled(inline=True)
def next_issue_ps(warps):
    """When the next warp issues, NEVER if none is ready. Reads: warps."""
    key = next_warp(warps)
    return key >> WARP_BITS if key != ASLEEP else NEVER


@compiled(inline=True)
def slots_clear_ps(warp, wait, now_ps):
    """When the slots of `wait` are all clear. now_ps or earlier: they are clear now. NEVER: answers are outstanding.

    Slots that are clear now are removed from `pending`, so the next check is fast.

    Writes: warp.
    """
    mask = warp.pending & wait
    clear_ps = np.int64(0)
    while mask != np.uint64(0):
        slot = trailing_zeros(mask)
        bit = np.uint64(1) << np.uint64(slot)
        mask &= ~bit
        if warp.slot[slot].count > 0:
            return NEVER
        if warp.slot[slot].done_ps > now_ps:
            clear_ps = max(clear_ps, warp.slot[slot].done_ps)
        else:
            warp.pending &= ~bit
    return clear_ps


@compiled(inline=True)
def slot_take(warp, slot):
    """A memory event with this slot was issued. Writes: warp."""
    if slot != NO_SLOT:
        if warp.slot[slot].count == 0 and (warp.pending >> np.uint64(slot)) & np.uint64(1) == np.uint64(0):
            warp.slot[slot].done_ps = 0
        warp.slot[slot].count += 1
        warp.pending |= np.uint64(1) << np.uint64(slot)


@compiled(inline=True)
def slot_done(warps, w, slot, done_ps):
    """The result of a memory event of warp w arrives at done_ps. Wakes the warp if it waits for nothing else.

    Returns:
        When the warp went to sleep (for the stall counter), or -1 if it was not woken.

    Writes: warps.
    """
    if slot == NO_SLOT:
        return -1
    warp = warps.warp[w]
    warp.slot[slot].count -= 1
    warp.slot[slot].done_ps = max(warp.slot[slot].done_ps, done_ps)
    if warp.state == ON_SLOTS and warp.slot[slot].count == 0:
        clear_ps = slots_clear_ps(warp, warp.wait, done_ps)
        if clear_ps < NEVER:
            warp_ready(warps, w, max(clear_ps, done_ps))
            return warp.slept_ps
    return -1
