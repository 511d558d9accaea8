"""Workgroup barriers and transaction barriers of a CU, and the end of a warp, which can open a barrier.

A transaction barrier (mbarrier) counts phases. A phase is complete when all its arrivals have come, all bytes that its
arrivals expect from other workgroups of the cluster have come, and no bulk copy of the workgroup to the barrier is
under way. So a warp arrives after the copies that it started. Warps wait for a number of completed phases; no warp
waits for a phase that is over.

The barrier of a cluster opens when all warps of all its workgroups have arrived or ended (`sim.machine.clusters`).
"""

import numpy as np

from sim.hw.warp import IDLE, ON_BARRIER, warp_ready, warp_sleep
from tracer.compile.jit import compiled
from traces.schema import ARRIVE_ONLY, BARRIERS, CLUSTER_ARRIVE, CLUSTER_WAIT, PHASE_BARRIERS, PHASE_WAIT

CLUSTER_KEY = 1 << 62
"""`wait` of a warp at the barrier of its cluster, with the number of phases: never that of another barrier."""


@compiled(inline=True)
def _wake(cu, warps, resident, key, now_ps):
    """A barrier opens: the warps of a workgroup whose `wait` is `key` continue."""
    for w in range(resident.first_warp, resident.first_warp + resident.warps):
        warp = warps.warp[w]
        if warp.state == ON_BARRIER and warp.wait == key:
            cu.barrier_stall_ps += now_ps - warp.slept_ps
            warp_ready(warps, w, now_ps + cu.issue_ps)


@compiled
def release_barrier(cu, warps, resident, number, now_ps):
    """Open barrier `number`: the warps that wait at it continue."""
    resident.arrived[number] = 0
    _wake(cu, warps, resident, np.uint64(number), now_ps)


@compiled
def arrive(cu, warps, w, event, now_ps):
    """Warp w arrives at a barrier and waits there, unless the event only arrives. The last arrival opens it.

    Reads: event. Writes: cu, warps.
    """
    warp = warps.warp[w]
    resident = cu.resident[warp.workgroup]
    if event.space > ARRIVE_ONLY:
        if event.space >= CLUSTER_ARRIVE:
            _at_cluster(cu, warps, w, resident, event, now_ps)
        else:
            _at_phases(cu, warps, w, resident, event.slot & (PHASE_BARRIERS - 1), event, now_ps)
        return
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
    if resident.arrived[number] >= expected or _waits_for_nobody(warps, resident, number):
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
        phase_arrival(cu, warps, resident, number, np.int64(event.work), event.row_stride, now_ps)


@compiled
def phase_arrival(cu, warps, resident, number, arrivals, expected_bytes, now_ps):
    """A warp of the cluster arrives at transaction barrier `number`. Writes: cu, warps, resident.

    Args:
        arrivals: of a phase.
        expected_bytes: that copies of other workgroups bring in this phase.
    """
    phases = resident.phases[number]
    phases.arrived += 1
    phases.arrivals = arrivals
    phases.bytes += expected_bytes
    _end_phase(cu, warps, resident, number, now_ps)


@compiled
def data_came(cu, warps, resident, number, data_bytes, now_ps):
    """Bytes of another workgroup's copy came for transaction barrier `number`. Writes: cu, warps, resident."""
    resident.phases[number].bytes -= data_bytes
    _end_phase(cu, warps, resident, number, now_ps)


@compiled
def _at_cluster(cu, warps, w, resident, event, now_ps):
    """Warp w arrives at the barrier of its cluster, or waits there until enough phases are complete."""
    warp = warps.warp[w]
    if event.space == CLUSTER_WAIT and resident.cluster_phases < event.work:
        warp.wait = np.uint64(CLUSTER_KEY + np.int64(event.work))
        warp_sleep(warps, w, ON_BARRIER, now_ps)
        return
    warp_ready(warps, w, now_ps + cu.issue_ps)
    bit = np.uint64(1) << np.uint64(w - resident.first_warp)
    if event.space == CLUSTER_ARRIVE and resident.cluster_warps & bit == np.uint64(0):
        resident.cluster_warps |= bit
        resident.cluster_arrived += 1
        _tell_cluster(cu, resident, now_ps)


@compiled
def _tell_cluster(cu, resident, now_ps):
    """If all warps of a workgroup have arrived at the barrier of the cluster, or have ended: tell the others."""
    if resident.size > 1 and resident.cluster_arrived == resident.alive and resident.told_ps < 0:
        resident.told_ps = now_ps
        cu.tells += 1


@compiled
def cluster_opens(cu, warps, resident, now_ps):
    """The barrier of the cluster is open: the warps that wait at it continue. Writes: cu, warps, resident."""
    resident.cluster_phases += 1
    resident.cluster_warps = np.uint64(0)
    resident.cluster_arrived = 0
    resident.told_ps = -1
    _wake(cu, warps, resident, np.uint64(CLUSTER_KEY + np.int64(resident.cluster_phases)), now_ps)


@compiled(inline=True)
def _phase_key(number, completed):
    """`wait` of a warp for at least one phase of a transaction barrier: never the number of a workgroup barrier."""
    return np.uint64(completed * PHASE_BARRIERS + number)


@compiled
def _end_phase(cu, warps, resident, number, now_ps):
    """End the phase of a transaction barrier if it is complete: the warps that wait for it continue."""
    phases = resident.phases[number]
    if phases.copies > 0 or phases.bytes != 0 or phases.arrived == 0 or phases.arrived < phases.arrivals:
        return
    phases.arrived = 0
    phases.completed += 1
    _wake(cu, warps, resident, _phase_key(number, phases.completed), now_ps)


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
    for number in range(PHASE_BARRIERS):
        phases = resident.phases[number]
        phases.arrived = phases.copies = phases.bytes = phases.completed = phases.arrivals = 0


@compiled
def _waits_for_nobody(warps, resident, number):
    """Do all warps that have not ended sleep at barrier `number`? Warps that only arrived do not sleep."""
    if resident.arrived[number] < resident.alive:
        return False
    count = 0
    for w in range(resident.first_warp, resident.first_warp + resident.warps):
        warp = warps.warp[w]
        count += warp.state == ON_BARRIER and warp.wait == np.uint64(number)
    return count == resident.alive


@compiled
def _leave_cluster(cu, resident, warp, now_ps):
    """A warp has ended: the barrier of the cluster waits for the others only."""
    bit = np.uint64(1) << np.uint64(warp)
    if resident.cluster_warps & bit != np.uint64(0):
        resident.cluster_warps &= ~bit
        resident.cluster_arrived -= 1
    _tell_cluster(cu, resident, now_ps)


@compiled
def warp_exit(cu, warps, w, now_ps):
    """Warp w ends. A barrier that waited only for it opens. With its last warp the workgroup ends.

    Writes: cu, warps.
    """
    warp = warps.warp[w]
    resident = cu.resident[warp.workgroup]
    warp_sleep(warps, w, IDLE, now_ps)
    resident.alive -= 1
    if resident.size > 1:
        _leave_cluster(cu, resident, w - resident.first_warp, now_ps)
    for number in range(BARRIERS):
        if resident.alive > 0 and _waits_for_nobody(warps, resident, number):
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
