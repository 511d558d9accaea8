"""Workgroup barriers and transaction barriers of a CU, and the end of a warp, which can open a barrier.

A transaction barrier (mbarrier) counts phases. A phase is complete when all its arrivals have come and no bulk copy to
the barrier is under way. So a warp arrives after the copies that it started. Warps wait for a number of completed
phases; no warp waits for a phase that is over.
"""

import numpy as np

from sim.hw.warp import IDLE, ON_BARRIER, warp_ready, warp_sleep
from tracer.compile.jit import compiled
from traces.schema import ARRIVE_ONLY, BARRIERS, PHASE_WAIT


@compiled
def release_barrier(cu, warps, resident, number, now_ps):
    """Open barrier `number`: the warps that wait at it continue."""
    resident.arrived[number] = 0
    for w in range(resident.first_warp, resident.first_warp + resident.warps):
        warp = warps.warp[w]
        if warp.state == ON_BARRIER and warp.wait == np.uint64(number):
            cu.barrier_stall_ps += now_ps - warp.slept_ps
            warp_ready(warps, w, now_ps + cu.issue_ps)


@compiled
def arrive(cu, warps, w, event, now_ps):
    """Warp w arrives at a barrier and waits there, unless the event only arrives. The last arrival opens it.

    Reads: event. Writes: cu, warps.
    """
    warp = warps.warp[w]
    resident = cu.resident[warp.workgroup]
    number = event.slot & (BARRIERS - 1)
    if event.space > ARRIVE_ONLY:
        _at_phases(cu, warps, w, resident, number, event, now_ps)
        return
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
        release_barrier(cu, warps, resident, number, now_ps)


@compiled
def _at_phases(cu, warps, w, resident, number, event, now_ps):
    """Warp w arrives at transaction barrier `number`, or waits there until enough phases are complete."""
    phases = resident.phases[number]
    if event.space == PHASE_WAIT and phases.completed < event.work:
        warps.warp[w].wait = _phase_key(number, np.int64(event.work))
        warp_sleep(warps, w, ON_BARRIER, now_ps)
        return
    warp_ready(warps, w, now_ps + cu.issue_ps)
    if event.space != PHASE_WAIT:
        phases.arrived += 1
        phases.arrivals = event.work
        _end_phase(cu, warps, resident, number, now_ps)


@compiled(inline=True)
def _phase_key(number, completed):
    """`wait` of a warp at a transaction barrier: never the number of a workgroup barrier."""
    return np.uint64(completed * 2 * BARRIERS + BARRIERS + number)


@compiled
def _end_phase(cu, warps, resident, number, now_ps):
    """End the phase of a transaction barrier if it is complete: the warps that wait for it continue."""
    phases = resident.phases[number]
    if phases.copies > 0 or phases.arrived == 0 or phases.arrived < phases.arrivals:
        return
    phases.arrived = 0
    phases.completed += 1
    key = _phase_key(number, phases.completed)
    for w in range(resident.first_warp, resident.first_warp + resident.warps):
        warp = warps.warp[w]
        if warp.state == ON_BARRIER and warp.wait == key:
            cu.barrier_stall_ps += now_ps - warp.slept_ps
            warp_ready(warps, w, now_ps + cu.issue_ps)


@compiled
def copy_begins(cu, warps, w, number):
    """Warp w has started a bulk copy to transaction barrier `number` of its workgroup. Writes: cu."""
    cu.resident[warps.warp[w].workgroup].phases[number].copies += 1


@compiled
def copy_ends(cu, warps, w, number, now_ps):
    """All data of a bulk copy of warp w to transaction barrier `number` have arrived. Writes: cu, warps."""
    resident = cu.resident[warps.warp[w].workgroup]
    resident.phases[number].copies -= 1
    _end_phase(cu, warps, resident, number, now_ps)


@compiled
def clear_phases(resident):
    """A new workgroup: its transaction barriers begin with phase 0. Writes: resident."""
    for number in range(BARRIERS):
        phases = resident.phases[number]
        phases.arrived = phases.copies = phases.completed = phases.arrivals = 0


@compiled
def _waiting(warps, resident, number):
    """Number of warps that sleep at barrier `number`. Warps that only arrived do not sleep."""
    count = 0
    for w in range(resident.first_warp, resident.first_warp + resident.warps):
        warp = warps.warp[w]
        count += warp.state == ON_BARRIER and warp.wait == np.uint64(number)
    return count


@compiled
def warp_exit(cu, warps, w, now_ps):
    """Warp w ends. A barrier that waited only for it opens. With its last warp the workgroup ends.

    Writes: cu, warps.
    """
    warp = warps.warp[w]
    resident = cu.resident[warp.workgroup]
    warp_sleep(warps, w, IDLE, now_ps)
    resident.alive -= 1
    for number in range(BARRIERS):
        everybody = resident.alive > 0 and resident.arrived[number] >= resident.alive
        if everybody and _waiting(warps, resident, number) == resident.alive:
            release_barrier(cu, warps, resident, number, now_ps)
    if resident.alive == 0:
        cu.ended_tag[cu.ended] = resident.tag
        cu.ended_started_ps[cu.ended] = resident.started_ps
        cu.ended_ps[cu.ended] = resident.ended_ps = now_ps
        cu.residents -= 1
        cu.ended_slab[cu.ended] = resident.slab
        cu.ended_queue[cu.ended] = resident.queue
        cu.ended += 1
        cu.workgroups += 1
        cu.last_exit_ps = now_ps
