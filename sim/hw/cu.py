"""Compute unit (SM): issues the warp events of its resident workgroups, oldest ready warp first.

Each warp scheduler has one issue slot and one pipe of each kind. Both are booked until a time. An event whose
scheduler is busy is tried again when the scheduler is free. Shared memory (LDS) has one port per CU. An arithmetic
event is a run of `count` instructions that occupies its pipe. A matrix event occupies the tensor pipe for work / rate.
Memory events go to the load/store unit. Barriers synchronise the warps of a workgroup. EXIT waits for all outstanding
events, or leaves those of one slot to the next warp in its place.

Left out: bank conflicts of shared memory (D3), instruction fetch (D4), register-file ports (D4).
"""

import numpy as np

from sim.hw.barrier import arrive, warp_exit
from sim.hw.bits import remainder
from sim.hw.bulk import bulk_advance, bulk_idle, bulk_left, bulk_start, bulk_wake_ps
from sim.hw.cu_memory import arrives_elsewhere, event_stores, is_memory, start_memory, takes_load
from sim.hw.cu_record import ASKS, GRANTED, NOT_ASKED
from sim.hw.fifo import fifo_fill, fifo_head, fifo_head_ps, fifo_pop, fifo_request
from sim.hw.l1 import l1_expect_answer
from sim.hw.lsu import (
    lsu_advance,
    lsu_answer,
    lsu_enqueue,
    lsu_idle,
    lsu_wake_ps,
)
from sim.hw.peers import mail_ps, read_mail
from sim.hw.pipes import access_shared, book_issue, compute
from sim.hw.prefetch import prefetch, prefetch_lines
from sim.hw.request import NEVER
from sim.hw.space import space_of, tile_of
from sim.hw.warp import (
    MAX_WARPS,
    ON_LSU,
    ON_SLOTS,
    ON_TRACKER,
    WARP_BITS,
    next_issue_ps,
    next_warp,
    slots_clear_ps,
    warp_ready,
    warp_sleep,
)
from tracer.compile.jit import compiled
from traces.schema import EVENT, NO_SLOT, Kind

EVENT_BYTES = EVENT.itemsize
CU_LINES, LSU_LINES, L1_LINES, KEY_LINES = 12, 5, 2, 9
"""The host's cache lines with the fields of CU, LSU, L1 and WARPS before their large tables."""
ANSWERS_AHEAD = 4
"""L1's state for an answer is prefetched on the host this many answers early."""
ALL_SLOTS = np.uint64(0xFFFFFFFFFFFFFFFF)


@compiled(inline=True)
def slots_needed(event):
    """Slots that must be clear before the event issues. An EXIT waits for all but its own (`Kind.EXIT`)."""
    if event.kind != Kind.EXIT:
        return event.wait
    return ALL_SLOTS if event.slot == NO_SLOT else ALL_SLOTS ^ (np.uint64(1) << np.uint64(event.slot))


@compiled(inline=True)
def _issue(cu, lsu, bulk, leaving, l1, sets, fifos, pool, warps, w, events, addresses, output, now_ps):
    """Warp w issues its next event at now_ps, or goes to sleep until it can."""
    warp = warps.warp[w]
    event = events[warp.slab, warp.event]
    wait = slots_needed(event)
    if warp.pending & wait != np.uint64(0):
        clear_ps = slots_clear_ps(warp, wait, now_ps)
        if clear_ps >= NEVER:
            warp.wait = wait
            warp_sleep(warps, w, ON_SLOTS, now_ps)
            return
        if clear_ps > now_ps:
            warp_ready(warps, w, clear_ps)
            return
    scheduler = remainder(w, cu.schedulers)
    if cu.issue_free_ps[scheduler] > now_ps:
        warp_ready(warps, w, cu.issue_free_ps[scheduler])
        return
    if event_stores(event):
        granted_ps = _granted_ps(cu, warp, event, output, now_ps)
        if granted_ps > now_ps:
            if granted_ps < NEVER:
                warp_ready(warps, w, granted_ps)
            else:
                warp_sleep(warps, w, ON_TRACKER, now_ps)
            return
    if takes_load(event) and (lsu.queue_head != lsu.queue_tail or not lsu_idle(lsu, now_ps)):
        lsu_enqueue(lsu, w)
        warp_sleep(warps, w, ON_LSU, now_ps)
        return
    _execute(cu, lsu, bulk, leaving, l1, sets, fifos, pool, warps, w, event, addresses, output, now_ps)


@compiled(inline=True)
def _granted_ps(cu, warp, event, output, now_ps):
    """From when on the warp may store into a tile: 0 if it needs no entry of the Tracker, NEVER if it is not known.

    The first store of a workgroup into a tile asks the Tracker for an entry (`sim.machine.tracking`).
    """
    resident = cu.resident[warp.workgroup]
    if resident.comm:
        return 0
    number = space_of(output.space, np.int64(event.base) + resident.shift_bytes[event.array])
    if number < 0:
        return 0
    tag, _ = tile_of(output.space[number], resident.tag)
    tile = output.tiles[tag]
    if tile.entry == 0:
        return 0
    if tile.begun == 1:
        return tile.granted_ps
    if resident.asks == GRANTED and output.tiles[resident.asked_tag].granted_ps > now_ps:
        return output.tiles[resident.asked_tag].granted_ps  # one question after the other
    if resident.asks == NOT_ASKED or resident.asks == GRANTED:
        resident.asks, resident.asked_ps, resident.asked_tag = ASKS, now_ps, tag
        cu.asking += 1
    return NEVER


@compiled
def wake_stores(cu, warps, place, granted_ps):
    """The workgroup in `place` has its Tracker entry at granted_ps: its warps that wait continue. Writes: warps."""
    resident = cu.resident[place]
    for w in range(resident.first_warp, resident.first_warp + resident.warps):
        if warps.warp[w].state == ON_TRACKER:
            warp_ready(warps, w, granted_ps)


@compiled(inline=True)
def _execute(cu, lsu, bulk, leaving, l1, sets, fifos, pool, warps, w, event, addresses, output, now_ps):
    """Execute the event. All resources that it needs are free."""
    warp = warps.warp[w]
    warp.event += 1
    prefetch(event, EVENT_BYTES)  # the next one
    kind = event.kind
    if kind == Kind.COMPUTE:
        warp_ready(warps, w, compute(cu, remainder(w, cu.schedulers), warps, w, event, now_ps))
        return
    free_ps = book_issue(cu, remainder(w, cu.schedulers), event, now_ps)
    if kind == Kind.EXIT:
        warp_exit(cu, warps, w, now_ps)
    elif kind == Kind.BARRIER and not arrives_elsewhere(event):
        arrive(cu, warps, w, event, now_ps)
    else:
        warp_ready(warps, w, free_ps)
        if is_memory(event) or kind == Kind.BARRIER:
            start_memory(cu, lsu, l1, sets, fifos, pool, warps, w, event, addresses, output, now_ps)
        elif kind == Kind.BULK:
            resident = cu.resident[warp.workgroup]
            base = np.int64(event.base) + resident.shift_bytes[event.array]
            bulk_start(
                *(bulk, leaving, cu, lsu, warps, w, event, base, resident.tag, w - resident.first_warp, output, now_ps)
            )
        elif kind <= Kind.ASYNC_COPY and event.mask != np.uint64(0):
            access_shared(cu, warps, w, event, now_ps)


@compiled(inline=True)
def _serve_lsu_queue(cu, lsu, bulk, leaving, l1, sets, fifos, pool, warps, events, addresses, output, now_ps):
    """Start queued memory events as the load/store unit becomes free."""
    while lsu.queue_head != lsu.queue_tail and lsu_idle(lsu, now_ps):
        w = np.int64(lsu.queue[lsu.queue_head & (MAX_WARPS - 1)])
        lsu.queue_head += 1
        event = events[warps.warp[w].slab, warps.warp[w].event]
        _execute(cu, lsu, bulk, leaving, l1, sets, fifos, pool, warps, w, event, addresses, output, now_ps)


@compiled(inline=True)
def _action_ps(cu, lsu, bulk, leaving, warps, peer, mail):
    """When the CU acts next without an answer. NEVER if it waits for an answer or for room in its port."""
    action_ps = min(next_issue_ps(warps), lsu_wake_ps(lsu))
    if not bulk_idle(bulk):
        action_ps = min(action_ps, bulk_wake_ps(bulk))
    if bulk.leaving > 0:
        action_ps = min(action_ps, bulk_wake_ps(leaving))
    if cu.clustered == 1:
        action_ps = min(action_ps, mail_ps(peer, mail))
    return action_ps


@compiled(inline=True)
def _take_answers(cu, lsu, bulk, leaving, l1, sets, fifos, pool, warps, peer, mail, now_ps, end_ps):
    """Take answers from now_ps on, each at its time, while no other action of the CU is due earlier.

    Returns:
        Time of the first action that is not an answer, or of the answer that unblocked the load/store unit. At least
        now_ps; NEVER if there is none.
    """
    answers = fifos[cu.answers]
    other_ps = _action_ps(cu, lsu, bulk, leaving, warps, peer, mail)
    while True:
        answer_ps = fifo_head_ps(answers, pool)
        if answer_ps > other_ps or answer_ps >= end_ps:
            return min(max(other_ps, now_ps), answer_ps)
        entry = np.int64(fifo_head(answers, pool).load)
        fifo_pop(answers)
        if fifo_fill(answers) >= ANSWERS_AHEAD:
            following = fifo_request(answers, pool, answers.head + ANSWERS_AHEAD - 1)
            l1_expect_answer(l1, sets, following.line, np.int64(following.load))
        full = lsu.loads_used == lsu.loads
        cu.slot_stall_ps += lsu_answer(cu, lsu, l1, sets, warps, entry, answer_ps)
        freed = full and lsu.loads_used < lsu.loads  # by more than one if loads had joined
        if lsu.blocked_since_ps >= 0 or freed or bulk.blocked_since_ps >= 0:
            return answer_ps
        other_ps = min(other_ps, next_issue_ps(warps))


@compiled(inline=True)
def cu_expect(cu, lsu, l1, warps, answers, pool):
    """Hint to the host: the CU acts soon. Loads its state and its first answers. Reads: answers."""
    prefetch_lines(cu, CU_LINES)
    prefetch_lines(lsu, LSU_LINES)
    prefetch_lines(l1, L1_LINES)
    prefetch_lines(warps, KEY_LINES)
    for number in range(answers.head, min(answers.tail, answers.head + ANSWERS_AHEAD)):
        prefetch(fifo_request(answers, pool, number), 0)


@compiled(inline=True)
def cu_expect_work(lsu, l1, sets, warps, answers, pool):
    """Hint to the host: the CU acts next. Loads what its state and its first answers name. Reads: all."""
    for number in range(answers.head, min(answers.tail, answers.head + ANSWERS_AHEAD)):
        answer = fifo_request(answers, pool, number)
        l1_expect_answer(l1, sets, answer.line, np.int64(answer.load))
    prefetch_lines(warps.warp[next_warp(warps) & (MAX_WARPS - 1)], 2)
    prefetch_lines(warps.warp[lsu.queue[lsu.queue_head & (MAX_WARPS - 1)]], 2)


@compiled(inline=True)
def cu_step(
    cu, lsu, bulk, leaving, l1, sets, fifos, pool, warps, peer, mail, events, addresses, output, now_ps, end_ps
):
    """Take the answers that come first, then do all other actions of the CU that are due at that time.

    Args:
        now_ps: when the CU asked to be called, or when another unit gave it work.
        end_ps: end of the time window. The CU does nothing at or after end_ps.

    Returns:
        When the CU can act next. NEVER if it waits for an answer or for room in its port.

    Reads: events, addresses, mail, output.sends, output.space. Writes: cu, lsu, bulk, leaving, l1, sets, fifos,
    pool, warps, peer, output.tiles.
    """
    if lsu.blocked_since_ps < 0:
        now_ps = _take_answers(cu, lsu, bulk, leaving, l1, sets, fifos, pool, warps, peer, mail, now_ps, end_ps)
        if now_ps >= end_ps:
            return now_ps
    answers = fifos[cu.answers]
    while fifo_head_ps(answers, pool) <= now_ps:
        entry = np.int64(fifo_head(answers, pool).load)
        fifo_pop(answers)
        cu.slot_stall_ps += lsu_answer(cu, lsu, l1, sets, warps, entry, now_ps)
    if cu.clustered == 1:
        cu.slot_stall_ps += read_mail(cu, lsu, l1, sets, warps, peer, mail, now_ps)
    cu.slot_stall_ps += lsu_advance(lsu, l1, sets, fifos, pool, warps, now_ps)
    if not bulk_idle(bulk) and bulk_advance(bulk, lsu, l1, fifos, pool, now_ps):
        cu.slot_stall_ps += bulk_left(bulk, lsu, warps)
    if bulk.leaving > 0 and bulk_advance(leaving, lsu, l1, fifos, pool, now_ps):
        cu.slot_stall_ps += bulk_left(leaving, lsu, warps)
        bulk.leaving -= 1
    _serve_lsu_queue(cu, lsu, bulk, leaving, l1, sets, fifos, pool, warps, events, addresses, output, now_ps)
    key = next_warp(warps)
    while key >> WARP_BITS <= now_ps:
        w = key & (MAX_WARPS - 1)
        _issue(cu, lsu, bulk, leaving, l1, sets, fifos, pool, warps, w, events, addresses, output, now_ps)
        key = next_warp(warps)
    return min(fifo_head_ps(answers, pool), _action_ps(cu, lsu, bulk, leaving, warps, peer, mail))
