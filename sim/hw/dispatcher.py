"""Workgroup dispatcher of one GPU: gives the workgroups of a kernel to the CUs as places become free.

A *dispatch queue* is one kernel in progress: the CUs that it may use, the workgroups that fit on a CU, and its
workgroups in launch order. Kernels have CUs of their own or share them (`sim.hw.residency`). The events of workgroups
are in the *trace window*, which the host fills ahead. If the next workgroup is not there yet, the dispatcher stops the
clock (`needs`) until the host has staged it. So the result does not depend on how far the host reads ahead.

A kernel may *keep* places (`keeps`), as a library's collective does with its channels. It takes them as CUs have room,
also for workgroups whose gates are closed. All its workgroups run in these places. It gives them back when its last
workgroup has one.

The workgroups of a *cluster* start together, on CUs of one group (GPC): only if all have room there (D48).

News takes the engine's lookahead to reach the dispatcher: that a workgroup has ended and its place is free (D7), and
that a gate has opened (D23).
"""

import numpy as np

from sim.hw.barrier import clear_phases
from sim.hw.bits import splitmix64
from sim.hw.cu_record import ARRAYS, MAX_WORKGROUPS, NOT_ASKED
from sim.hw.dispatch_cluster import cluster_cu, join_cluster
from sim.hw.request import NEVER
from sim.hw.residency import free_warps, give_turn, has_room, took_place, waits_for_turn
from sim.hw.warp import MAX_WARPS, warp_ready
from sim.spec import WorkgroupOrder
from tracer.compile.jit import compiled


@compiled
def _random_share(seed, tag):
    """A number uniform in [0, 1): a pure function of seed and workgroup."""
    return np.float64(splitmix64(seed, tag) >> np.uint64(11)) / 9007199254740992.0


@compiled
def free_places(dispatches, queue, cus, now_ps):
    """Free the places of workgroups that ended at least a lookahead ago, except kept ones.

    Returns:
        When the next workgroup has ended for that time, or NEVER.

    Reads: dispatches. Writes: cus.
    """
    dispatch = dispatches[queue]
    next_ps = NEVER
    for c in range(dispatch.first_cu, dispatch.last_cu):
        cu = cus[c]
        if cu.taken == cu.residents:
            continue
        for place in range(MAX_WORKGROUPS):
            resident = cu.resident[place]
            if resident.tag < 0 or resident.alive > 0:
                continue
            free_ps = resident.ended_ps + dispatch.lookahead_ps
            if free_ps > now_ps:
                next_ps = min(next_ps, free_ps)
            elif dispatches[resident.queue].keeps == 0:
                resident.tag = -1
                cu.taken -= 1
    return next_ps


@compiled
def choose_cu(dispatches, queue, cus):
    """CU for the next workgroup of a queue, -1 if none has room. Breadth-first: the CU with the fewest taken places.

    Slices of a collective's channel are workgroups here. They wait for no partition, as the channel stays on its CU.
    """
    dispatch = dispatches[queue]
    best = -1
    first, step = dispatch.first_cu, np.int64(1)
    if dispatch.order == WorkgroupOrder.BY_PARTITION and (dispatch.comm == 0 or dispatch.keeps > 0):
        step = dispatch.partitions
        first += ((dispatch.kept if dispatch.keeps > 0 else dispatch.taken) - first) % step
    for c in range(first, dispatch.last_cu, step):
        taken = cus[c].taken
        if best >= 0 and taken >= cus[best].taken:
            continue
        if has_room(dispatches, queue, cus[c]) if dispatch.shares == 1 else taken < dispatch.places:
            best = c
            if taken == 0 or dispatch.order == WorkgroupOrder.DEPTH_FIRST:
                break
    return best


@compiled
def _keep_place(dispatches, queue, cus, now_ps):
    """Take one more place to keep. Returns False if no CU has room. Writes: dispatches, cus."""
    c = choose_cu(dispatches, queue, cus)
    if c < 0:
        return False
    dispatch, place = dispatches[queue], _free_place(cus[c])
    resident = cus[c].resident[place]
    resident.tag, resident.alive = 0, 0
    resident.ended_ps = now_ps - dispatch.lookahead_ps
    resident.first_warp, resident.warps = free_warps(cus[c], dispatch.warps), dispatch.warps
    resident.queue = queue
    cus[c].taken += 1
    dispatch.kept += 1
    dispatch.kept_ps = now_ps
    dispatch.wake_ps = dispatch.next_ps = now_ps + dispatch.interval_ps
    took_place(dispatches, queue)
    if dispatch.kept == dispatch.keeps:
        give_turn(dispatches, queue, now_ps)
    return True


@compiled
def _leave_kept(dispatch, queue, cus, now_ps):
    """Free a kept place in which no workgroup runs, for the next one. Returns its CU, -1 if there is none.

    Writes: cus.
    """
    for c in range(dispatch.first_cu, dispatch.last_cu):
        cu = cus[c]
        if cu.taken == cu.residents:
            continue
        for place in range(MAX_WORKGROUPS):
            resident = cu.resident[place]
            ended = resident.alive == 0 and resident.ended_ps + dispatch.lookahead_ps <= now_ps
            if resident.tag >= 0 and resident.queue == queue and ended:
                resident.tag = -1
                cu.taken -= 1
                return c
    return -1


@compiled(inline=True)
def _free_place(cu):
    place = 0
    while cu.resident[place].tag >= 0:
        place += 1
    return place


@compiled
def _settle(dispatch, queue, cu, warps, staged, start_ps):
    """Give the staged workgroup a place in the CU; its warps issue from start_ps on. Returns the place."""
    place = _free_place(cu)
    first_warp = place * dispatch.warps if dispatch.shares == 0 else free_warps(cu, dispatch.warps)
    resident = cu.resident[place]
    resident.tag = staged.tag
    resident.started_ps = start_ps
    resident.slab = staged.slab
    resident.alive = staged.warps
    resident.first_warp = first_warp
    resident.warps = dispatch.warps
    resident.queue = queue
    resident.comm = dispatch.comm
    resident.asks = NOT_ASKED
    resident.cluster, resident.rank, resident.size, resident.told_ps = -1, 0, 1, -1
    resident.cluster_warps, resident.cluster_arrived, resident.cluster_phases = 0, 0, 0
    resident.arrived[:] = 0
    clear_phases(resident)
    for array in range(ARRAYS):
        resident.shift_bytes[array] = staged.shift_bytes[array]
    cu.residents += 1
    cu.taken += 1
    for i in range(staged.warps):
        w = resident.first_warp + np.int64(staged.warp[i])
        warp = warps.warp[w]
        warp.event = staged.first_event[i]
        warp.slab = staged.slab
        warp.workgroup = place
        warp_ready(warps, w, start_ps)
    return place


@compiled(inline=True)
def _gate_ps(dispatch, staged, gates, number):
    """When the dispatcher sees that the gate of a staged workgroup is open; 0 without a gate, NEVER if it is closed."""
    workgroup = staged[number & (len(staged) - 1)]
    if workgroup.gate == 0:
        return 0
    gate = gates[workgroup.gate - 1]
    return gate.open_ps + dispatch.lookahead_ps + gate.delay_ps if gate.open_ps < NEVER else NEVER


@compiled
def dispatch_step(dispatches, queue, cus, warps, staged, gates, end_ps):
    """Dispatch one workgroup of a queue at its wake_ps if one is staged and a place is free. Sets the next wake_ps.

    Args:
        dispatches: DISPATCH, one per queue.
        staged: ring of STAGED, a power of two long.
        gates: GATE records that workgroups may wait for.
        end_ps: end of the time window.

    Returns:
        (cu, start_ps): the CU that got a workgroup, and when its warps can issue; cu = -1 if no CU got one.

    Reads: staged, gates. Writes: dispatches, cus, warps.
    """
    dispatch = dispatches[queue]
    dispatch.wake_ps = now_ps = max(dispatch.wake_ps, dispatch.next_ps)
    if now_ps >= end_ps:
        return -1, NEVER
    dispatch.needs = 0
    if dispatch.shares == 1 and waits_for_turn(dispatches, queue):
        dispatch.wake_ps = NEVER
        return -1, NEVER
    rank = dispatch.taken % dispatch.cluster
    whole = dispatch.taken + dispatch.cluster - rank <= dispatch.staged
    if not whole and dispatch.ended == 0:
        dispatch.needs = 1
        return -1, NEVER
    dispatch.wake_ps = NEVER
    if not whole:
        dispatch.placed, dispatch.keeps = 1, 0
        if dispatch.shares == 1:
            give_turn(dispatches, queue, now_ps)
        return -1, NEVER
    free_ps = NEVER
    if dispatch.kept < dispatch.keeps:
        free_ps = free_places(dispatches, queue, cus, now_ps)
        if _keep_place(dispatches, queue, cus, now_ps):
            return -1, NEVER
    workgroup = staged[dispatch.taken & (len(staged) - 1)]
    dispatch.gated = 0
    for number in range(dispatch.taken, dispatch.taken + dispatch.cluster - rank):
        seen_ps = _gate_ps(dispatch, staged, gates, number)
        if seen_ps > now_ps:
            dispatch.gated = 1
            dispatch.wake_ps = min(seen_ps, free_ps)
            return -1, NEVER
    free_ps = free_places(dispatches, queue, cus, now_ps)
    if dispatch.keeps > 0:
        c = _leave_kept(dispatch, queue, cus, now_ps)
    else:
        c = choose_cu(dispatches, queue, cus) if dispatch.cluster == 1 else cluster_cu(dispatch, cus)
    if c < 0:
        dispatch.wake_ps = free_ps
        return -1, NEVER
    if rank == 0:
        dispatch.start_ps = now_ps
        if dispatch.jitter_ps > 0:
            dispatch.start_ps += np.int64(_random_share(dispatch.seed, workgroup.tag) * dispatch.jitter_ps)
    place = _settle(dispatch, queue, cus[c], warps[c], workgroup, dispatch.start_ps)
    if dispatch.cluster > 1:
        join_cluster(dispatch, queue, cus, c, place)
    dispatch.taken += 1
    if dispatch.keeps == 0:
        took_place(dispatches, queue)
    dispatch.next_ps = now_ps + dispatch.interval_ps * dispatch.cluster if rank == dispatch.cluster - 1 else now_ps
    dispatch.wake_ps = dispatch.next_ps
    return c, dispatch.start_ps


assert MAX_WORKGROUPS <= MAX_WARPS
