"""Residency of workgroups of several kernels on one CU: what each takes, and where its warps go.

A kernel that has its CUs for itself needs only a number of places (`sim.occupancy`). Kernels that share CUs take
amounts of each of RESOURCES. A workgroup gets a place on a CU that still has all of them. Its warps are adjacent.
Registers are counted for the whole CU, not for each scheduler (D19).

Which kernel gets a place that is free says `dispatch.kernels`:

in_order   the order of the queues: the first workgroup of a kernel waits until all workgroups of the kernels before it
           have places, or all places that they keep (the *leftover* rule of NVIDIA's distributor of workgroups)
in_turn    of the kernels that wait, the one that got its last place first (AMD: each queue has a dispatcher of its own)
"""

import numpy as np

from sim.hw.cu_record import MAX_WORKGROUPS
from sim.hw.warp import MAX_WARPS
from sim.spec import KernelOrder
from tracer.compile.jit import compiled

RESOURCES = ("workgroups", "warps", "threads", "registers", "shared_bytes", "barriers")


@compiled
def _overlap(dispatch, other):
    return dispatch.first_cu < other.last_cu and other.first_cu < dispatch.last_cu


@compiled
def waits_for_turn(dispatches, queue):
    """Must it wait for a kernel before this one, on CUs that they share? Reads: dispatches."""
    if dispatches[queue].kernels == KernelOrder.IN_TURN:
        return False
    for q in range(queue):
        other = dispatches[q]
        has_places = other.placed == 1 or 0 < other.keeps == other.kept
        if other.shares == 1 and not has_places and _overlap(dispatches[queue], other):
            return True
    return False


@compiled
def give_turn(dispatches, queue, now_ps):
    """A kernel wants no further places: the other kernels look for theirs. Writes: dispatches."""
    for q in range(len(dispatches)):
        other = dispatches[q]
        if q != queue and other.shares == 1 and other.taken < other.staged and _overlap(dispatches[queue], other):
            other.wake_ps = min(other.wake_ps, now_ps)


@compiled
def took_place(dispatches, queue):
    """A kernel got a place on shared CUs: its turn is after that of all others. Writes: dispatches."""
    if dispatches[queue].shares == 1 and dispatches[queue].kernels == KernelOrder.IN_TURN:
        last = np.int64(0)
        for q in range(len(dispatches)):
            last = max(last, dispatches[q].turn)
        dispatches[queue].turn = last + 1


@compiled
def has_room(dispatches, queue, cu):
    """May a CU that kernels share take a workgroup of this queue? Reads: dispatches, cu."""
    dispatch = dispatches[queue]
    own = np.int64(0)
    for place in range(MAX_WORKGROUPS):
        own += cu.resident[place].tag >= 0 and cu.resident[place].queue == queue
    if own >= dispatch.places:
        return False
    for k in range(len(RESOURCES)):
        used = dispatch.takes[k]
        for place in range(MAX_WORKGROUPS):
            if cu.resident[place].tag >= 0:
                used += dispatches[cu.resident[place].queue].takes[k]
        if used > dispatch.holds[k]:
            return False
    return free_warps(cu, dispatch.warps) >= 0


@compiled
def free_warps(cu, warps):
    """First of `warps` adjacent warps of a CU that no workgroup has; -1 if there are none. Reads: cu."""
    first = np.int64(0)
    while first + warps <= MAX_WARPS:
        end = np.int64(0)  # of a workgroup that is in the way
        for place in range(MAX_WORKGROUPS):
            resident = cu.resident[place]
            behind = np.int64(resident.first_warp) + resident.warps
            if resident.tag >= 0 and resident.first_warp < first + warps and first < behind:
                end = max(end, behind)
        if end == 0:
            return first
        first = end
    return np.int64(-1)
