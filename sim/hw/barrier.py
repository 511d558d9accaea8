"""Workgroup barriers of a CU, and the end of a warp, which can open a barrier."""

import numpy as np

from sim.hw.warp import IDLE, ON_BARRIER, warp_ready, warp_sleep
from tracer.compile.jit import compiled
from traces.schema import ARRIVE_ONLY, BARRIERS


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
