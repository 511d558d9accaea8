"""Compute unit (SM): issues the warp events of its resident workgroups, oldest ready warp first.

Per warp scheduler there is one issue slot and one pipe of each kind; both are booked until a time, so an event that
finds its scheduler taken comes back when it is free. Shared memory (LDS) has one port per CU. Arithmetic is a run of
`count` instructions that occupies its pipe; a matrix event occupies the tensor pipe for work / rate. Memory events go
to the load/store unit, barriers hold the warps of a workgroup together, EXIT waits for everything outstanding.

Left out: bank conflicts of shared memory (D3), instruction fetch (D4), register-file ports (D4).
"""

import numpy as np

from sim.hw.fifo import fifo_fill, fifo_head, fifo_head_ps, fifo_pop, fifo_slot
from sim.hw.l1 import l1_expect
from sim.hw.lsu import lsu_advance, lsu_answer, lsu_enqueue, lsu_idle, lsu_start, lsu_wake_ps
from sim.hw.request import NEVER
from sim.hw.warp import (
    IDLE,
    MAX_WARPS,
    ON_BARRIER,
    ON_LSU,
    ON_SLOTS,
    WARP_BITS,
    next_issue_ps,
    next_warp,
    slot_done,
    slot_take,
    slots_clear_ps,
    warp_ready,
    warp_sleep,
)
from tracer.jit import kernel
from traces.schema import ARRIVE_ONLY, Kind, Pipe, Space

MAX_WORKGROUPS = 32
MAX_SCHEDULERS = 8
BARRIERS = 16
PIPES = len(Pipe)
ALL_SLOTS = np.uint64(0xFFFFFFFFFFFFFFFF)

RESIDENT = np.dtype(
    [
        ("tag", "i8"),  # workgroup number in the grid, -1 = free place
        ("started_ps", "i8"),
        ("slab", "i4"),  # of the trace window
        ("alive", "i4"),  # warps that have not exited
        ("first_warp", "i4"),
        ("warps", "i4"),
        ("queue", "i4"),  # dispatch queue that sent it
        ("comm", "i4"),  # 1: a collective's workgroup, its requests travel in the communication streams
        ("arrived", "i4", BARRIERS),
    ],
    align=True,
)

CU = np.dtype(
    [
        # constants
        ("period_ps", "i8"),
        ("issue_ps", "i8"),  # one warp instruction on a scheduler
        ("pipe_ps", "i8", PIPES),  # one warp instruction on a scheduler's pipe; 0 = paid by issue alone
        ("tensor_macs_per_clk", "i8"),  # per scheduler
        ("schedulers", "i8"),
        ("lanes", "i8"),
        ("shared_bytes_per_clk", "i8"),
        ("shared_latency_ps", "i8"),
        ("answers", "i8"),  # fifo with the answers to this CU's reads
        # state
        ("issue_free_ps", "i8", MAX_SCHEDULERS),
        ("pipe_free_ps", "i8", (MAX_SCHEDULERS, PIPES)),
        ("shared_free_ps", "i8"),
        ("residents", "i8"),
        ("resident", RESIDENT, MAX_WORKGROUPS),
        ("ended", "i8"),  # workgroups that ended and wait to be collected by the engine
        ("ended_slab", "i4", MAX_WORKGROUPS),
        ("ended_queue", "i4", MAX_WORKGROUPS),
        # counters
        ("warp_instructions", "i8"),
        ("events", "i8"),
        ("slot_stall_ps", "i8"),  # sum over warps: asleep until data came
        ("barrier_stall_ps", "i8"),
        ("issue_busy_ps", "i8"),  # sum over schedulers
        ("tensor_busy_ps", "i8"),  # sum over schedulers
        ("shared_busy_ps", "i8"),
        ("tensor_macs", "i8"),
        ("shared_bytes", "i8"),
        ("workgroups", "i8"),
        ("last_exit_ps", "i8"),
    ],
    align=True,
)


def make_cus(spec, answers):
    """One CU record per fifo in `answers`. spec: sim.spec.ComputeUnit."""
    cus = np.zeros(len(answers), CU)
    period_ps = round(1e6 / spec.clock_MHz)
    cus["period_ps"] = period_ps
    cus["issue_ps"] = max(1, round(period_ps / spec.issue_per_clk))
    for pipe, rate in (
        (Pipe.ALU, spec.alu_warps_per_clk),
        (Pipe.FMA, spec.fma_warps_per_clk),
        (Pipe.FP64, spec.fp64_warps_per_clk),
        (Pipe.SFU, spec.sfu_warps_per_clk),
    ):
        cus["pipe_ps"][:, pipe] = round(period_ps / rate)
    cus["tensor_macs_per_clk"] = max(1, round(spec.tensor_macs_per_clk / spec.schedulers))
    cus["schedulers"], cus["lanes"] = spec.schedulers, spec.lanes_per_warp
    cus["shared_bytes_per_clk"] = spec.shared_bytes_per_clk
    cus["shared_latency_ps"] = spec.shared_latency_clk * period_ps
    cus["answers"] = answers
    cus["resident"]["tag"] = -1
    return cus


@kernel
def _book_issue(cu, scheduler, event, now_ps):
    """Occupy the issue slot for the instructions of the event. Returns when it is free again."""
    busy_ps = event.count * cu.issue_ps
    cu.issue_free_ps[scheduler] = now_ps + busy_ps
    cu.issue_busy_ps += busy_ps
    cu.warp_instructions += event.count
    cu.events += 1
    return now_ps + busy_ps


@kernel
def _compute(cu, scheduler, event, now_ps):
    """A run of arithmetic: book its pipe and return when the warp may go on."""
    pipe = event.pipe
    if pipe == Pipe.TENSOR and event.work > 0:
        rate = cu.tensor_macs_per_clk
        busy_ps = (event.work * cu.period_ps + rate - 1) // rate
        cu.tensor_busy_ps += busy_ps
        cu.tensor_macs += event.work
    else:
        busy_ps = event.count * cu.pipe_ps[pipe]
    start_ps = max(now_ps, cu.pipe_free_ps[scheduler, pipe])
    cu.pipe_free_ps[scheduler, pipe] = start_ps + busy_ps
    free_ps = _book_issue(cu, scheduler, event, now_ps)
    return max(free_ps, start_ps + max(busy_ps, event.cycles * cu.period_ps))


@kernel
def _lanes_in(mask):
    lanes = 0
    while mask != np.uint64(0):
        mask &= mask - np.uint64(1)
        lanes += 1
    return lanes


@kernel
def _shared(cu, warps, w, event, now_ps):
    """Shared-memory access of `count` instructions: book the LDS port; the slot clears a latency later."""
    volume = np.int64(event.count) * _lanes_in(event.mask) * np.int64(event.width_bytes)
    clocks = (volume + cu.shared_bytes_per_clk - 1) // cu.shared_bytes_per_clk
    busy_ps = max(clocks, np.int64(event.count)) * cu.period_ps
    cu.shared_free_ps = max(cu.shared_free_ps, now_ps) + busy_ps
    cu.shared_busy_ps += busy_ps
    cu.shared_bytes += volume
    warp = warps.warp[w]
    slot_take(warp, event.slot)
    slot_done(warps, w, event.slot, cu.shared_free_ps + cu.shared_latency_ps)


@kernel
def _release_barrier(cu, warps, resident, number, now_ps):
    """Everybody is here: the warps that wait at barrier `number` go on."""
    resident.arrived[number] = 0
    for w in range(resident.first_warp, resident.first_warp + resident.warps):
        warp = warps.warp[w]
        if warp.state == ON_BARRIER and warp.wait == np.uint64(number):
            cu.barrier_stall_ps += now_ps - warp.slept_ps
            warp_ready(warps, w, now_ps + cu.issue_ps)


@kernel
def _barrier(cu, warps, w, event, now_ps):
    """Arrive at a barrier, and wait there unless the event only arrives; the last one to arrive lets all go."""
    warp = warps.warp[w]
    resident = cu.resident[warp.workgroup]
    number = event.slot & (BARRIERS - 1)
    resident.arrived[number] += 1
    if event.space == ARRIVE_ONLY:
        warp_ready(warps, w, now_ps + cu.issue_ps)
    else:
        warp.wait = np.uint64(number)
        warp_sleep(warps, w, ON_BARRIER, now_ps)
    expected = np.int64(resident.alive)
    if event.work > 0:
        expected = (np.int64(event.work) + cu.lanes - 1) // cu.lanes
    if resident.arrived[number] >= expected:
        _release_barrier(cu, warps, resident, number, now_ps)


@kernel
def _waiting(warps, resident, number):
    """Warps that sleep at barrier `number`; those that only arrived do not."""
    count = 0
    for w in range(resident.first_warp, resident.first_warp + resident.warps):
        warp = warps.warp[w]
        count += warp.state == ON_BARRIER and warp.wait == np.uint64(number)
    return count


@kernel
def _exit(cu, warps, w, now_ps):
    """The warp ends; a barrier that waited only for it opens; the last warp frees the workgroup's place."""
    warp = warps.warp[w]
    resident = cu.resident[warp.workgroup]
    warp_sleep(warps, w, IDLE, now_ps)
    resident.alive -= 1
    for number in range(BARRIERS):
        everybody = resident.alive > 0 and resident.arrived[number] >= resident.alive
        if everybody and _waiting(warps, resident, number) == resident.alive:
            _release_barrier(cu, warps, resident, number, now_ps)
    if resident.alive == 0:
        resident.tag = -1
        cu.residents -= 1
        cu.ended_slab[cu.ended] = resident.slab
        cu.ended_queue[cu.ended] = resident.queue
        cu.ended += 1
        cu.workgroups += 1
        cu.last_exit_ps = now_ps


@kernel
def _is_memory(event):
    """Does the event go to the load/store unit?"""
    return event.kind <= Kind.ASYNC_COPY and event.space != Space.SHARED and event.mask != np.uint64(0)


@kernel
def _start_memory(cu, lsu, l1, sets, fifos, pool, warps, w, event, addresses, now_ps):
    warp = warps.warp[w]
    resident = cu.resident[warp.workgroup]
    lsu_start(lsu, warps, w, event, addresses[warp.slab], resident.tag, resident.comm, now_ps)
    cu.slot_stall_ps += lsu_advance(lsu, l1, sets, fifos, pool, warps, now_ps)


@kernel
def _issue(cu, lsu, l1, sets, fifos, pool, warps, w, events, addresses, now_ps):
    """Warp w issues its next event at now_ps, or is put where it must wait."""
    warp = warps.warp[w]
    event = events[warp.slab, warp.event]
    wait = ALL_SLOTS if event.kind == Kind.EXIT else event.wait
    if warp.pending & wait != np.uint64(0):
        clear_ps = slots_clear_ps(warp, wait, now_ps)
        if clear_ps >= NEVER:
            warp.wait = wait
            warp_sleep(warps, w, ON_SLOTS, now_ps)
            return
        if clear_ps > now_ps:
            warp_ready(warps, w, clear_ps)
            return
    scheduler = w % cu.schedulers
    if cu.issue_free_ps[scheduler] > now_ps:
        warp_ready(warps, w, cu.issue_free_ps[scheduler])
        return
    if _is_memory(event) and (lsu.queue_head != lsu.queue_tail or not lsu_idle(lsu, now_ps)):
        lsu_enqueue(lsu, w)
        warp_sleep(warps, w, ON_LSU, now_ps)
        return
    _execute(cu, lsu, l1, sets, fifos, pool, warps, w, event, addresses, now_ps)


@kernel
def _execute(cu, lsu, l1, sets, fifos, pool, warps, w, event, addresses, now_ps):
    """All that the event needs is there: do it."""
    warp = warps.warp[w]
    warp.event += 1
    kind = event.kind
    if kind == Kind.COMPUTE:
        warp_ready(warps, w, _compute(cu, w % cu.schedulers, event, now_ps))
        return
    free_ps = _book_issue(cu, w % cu.schedulers, event, now_ps)
    if kind == Kind.EXIT:
        _exit(cu, warps, w, now_ps)
    elif kind == Kind.BARRIER:
        _barrier(cu, warps, w, event, now_ps)
    else:
        warp_ready(warps, w, free_ps)
        if _is_memory(event):
            _start_memory(cu, lsu, l1, sets, fifos, pool, warps, w, event, addresses, now_ps)
        elif kind <= Kind.ASYNC_COPY and event.mask != np.uint64(0):
            _shared(cu, warps, w, event, now_ps)


@kernel
def _serve_lsu_queue(cu, lsu, l1, sets, fifos, pool, warps, events, addresses, now_ps):
    """Memory events that queued for the load/store unit start as it becomes free."""
    while lsu.queue_head != lsu.queue_tail and lsu_idle(lsu, now_ps):
        w = np.int64(lsu.queue[lsu.queue_head & (MAX_WARPS - 1)])
        lsu.queue_head += 1
        event = events[warps.warp[w].slab, warps.warp[w].event]
        _execute(cu, lsu, l1, sets, fifos, pool, warps, w, event, addresses, now_ps)


@kernel
def _take_answers(cu, lsu, l1, sets, fifos, pool, warps, now_ps, end_ps):
    """Answers from now_ps on, each at its time, as long as they come before anything else the CU could do.

    Returns:
        Time of the first thing that is not an answer, or of the answer that unblocked the load/store unit; at least
        now_ps, NEVER when there is none.
    """
    answers = fifos[cu.answers]
    other_ps = min(next_issue_ps(warps), lsu_wake_ps(lsu))
    while True:
        answer_ps = fifo_head_ps(answers, pool)
        if answer_ps > other_ps or answer_ps >= end_ps:
            return min(max(other_ps, now_ps), answer_ps)
        entry = np.int64(fifo_head(answers, pool).load)
        fifo_pop(answers)
        if fifo_fill(answers) > 1:
            l1_expect(l1, sets, pool[fifo_slot(answers, answers.head + 1)].line)
        cu.slot_stall_ps += lsu_answer(lsu, l1, sets, warps, entry, answer_ps)
        if lsu.blocked_since_ps >= 0 or lsu.loads_used + 1 == lsu.loads:
            return answer_ps
        other_ps = min(other_ps, next_issue_ps(warps))


@kernel
def cu_step(cu, lsu, l1, sets, fifos, pool, warps, events, addresses, now_ps, end_ps):
    """Take the answers that come first, then do everything else that the CU can do at the time it is due.

    Args:
        now_ps: when the CU asked to be called, or when it was given something.
        end_ps: end of the time window; nothing from end_ps on is done.

    Returns:
        When it can do something next, NEVER if only an answer or a free port can help.
    """
    if lsu.blocked_since_ps < 0:
        now_ps = _take_answers(cu, lsu, l1, sets, fifos, pool, warps, now_ps, end_ps)
        if now_ps >= end_ps:
            return now_ps
    answers = fifos[cu.answers]
    while fifo_head_ps(answers, pool) <= now_ps:
        entry = np.int64(fifo_head(answers, pool).load)
        fifo_pop(answers)
        cu.slot_stall_ps += lsu_answer(lsu, l1, sets, warps, entry, now_ps)
    cu.slot_stall_ps += lsu_advance(lsu, l1, sets, fifos, pool, warps, now_ps)
    _serve_lsu_queue(cu, lsu, l1, sets, fifos, pool, warps, events, addresses, now_ps)
    key = next_warp(warps)
    while key >> WARP_BITS <= now_ps:
        _issue(cu, lsu, l1, sets, fifos, pool, warps, key & (MAX_WARPS - 1), events, addresses, now_ps)
        key = next_warp(warps)
    return min(fifo_head_ps(answers, pool), lsu_wake_ps(lsu), next_issue_ps(warps))
