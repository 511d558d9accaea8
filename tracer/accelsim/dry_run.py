"""Dry run of the barriers of a cluster: all its warps, without times. It finds the phases for which warps wait.

Copies arrive at once. Bytes that copies of other workgroups bring are counted as the trace announces them, with those
outside the tensor; the machine counts those that are moved. So the dry run also finds these for each phase.

Events as `tracer.accelsim.warp` writes them before the dry run:

    wait at a transaction barrier             `work`: parity
    arrival that announces bytes              `row_stride`: announced bytes that are not those of the warp's own copies
    copy to other workgroups                  `pad`: bytes that each of their barriers is told; in its last event
"""

import numpy as np

from tracer.accelsim.instruction import LANES
from tracer.compile.jit import compiled
from traces.schema import (
    ARRIVE_ONLY,
    BARRIERS,
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    MAX_CLUSTER,
    MAX_WARPS,
    PHASE_ARRIVE,
    PHASE_BARRIERS,
    PHASE_WAIT,
    Bulk,
    Kind,
)

PHASE_STATE = np.dtype(
    [
        ("arrived", "i8"),  # in this phase
        ("completed", "i8"),  # phases
        ("arrivals", "i8"),  # of a phase
        ("missing", "i8"),  # announced bytes that have not come
        ("moved", "i8"),  # bytes that other workgroups have moved in this phase
        ("teller", "i8"),  # event of the last arrival that announced bytes, -1 = none
    ]
)
MEMBER = np.dtype(
    [
        ("alive", "i8"),
        ("warps", "i8"),
        ("position", "i8", MAX_WARPS),  # event of each warp
        ("state", "i8", MAX_WARPS),
        ("at", "i8", MAX_WARPS),  # barrier at which a warp sleeps
        ("target", "i8", MAX_WARPS),  # phases for which a warp waits, 0 = none
        ("met", "i8", MAX_WARPS),  # 1 = the warp has arrived at the barrier of the cluster
        ("came", "i8", BARRIERS),  # warps at a barrier
        ("phases", PHASE_STATE, PHASE_BARRIERS),
    ]
)
DRY = np.dtype([("cluster", "i8"), ("alive", "i8"), ("met", "i8"), ("opened", "i8"), ("members", MEMBER, MAX_CLUSTER)])
"""State of a dry run; of the barrier of the cluster: warps that have arrived, and how often it has opened."""
RUNS, SLEEPS, ENDED = 0, 1, 2
KIND_BARRIER, KIND_EXIT, KIND_BULK, BULK_LOAD = int(Kind.BARRIER), int(Kind.EXIT), int(Kind.BULK), int(Bulk.LOAD)


@compiled
def dry_run(dry, first_event, warps, events):
    """Run the barriers of a cluster without times, and set the phases for which its warps wait.

    Args:
        dry: DRY record.
        first_event: i8 [cluster, MAX_WARPS + 1], first event of each warp of each workgroup, in order of rank.
        warps: i8 [cluster], warps of each workgroup.
        events: EVENT, changed: see above.

    Returns:
        True if all warps come to their end.
    """
    _start(dry, first_event, warps)
    moved = True
    while moved:
        moved = False
        for rank in range(dry.cluster):
            member = dry.members[rank]
            for w in range(member.warps):
                while member.state[w] == RUNS and _step(dry, member, rank, events, member.position[w], w):
                    member.position[w] += 1
                    moved = True
    return dry.alive == 0


@compiled
def _start(dry, first_event, warps):
    dry.cluster, dry.alive, dry.met, dry.opened = len(warps), 0, 0, 0
    for rank in range(dry.cluster):
        member = dry.members[rank]
        member.alive = member.warps = warps[rank]
        dry.alive += warps[rank]
        for w in range(member.warps):
            member.position[w], member.state[w], member.target[w] = first_event[rank, w], RUNS, 0
            member.met[w] = 0
        member.came[:] = 0
        for number in range(PHASE_BARRIERS):
            phase = member.phases[number]
            phase.arrived = phase.completed = phase.arrivals = phase.missing = phase.moved = 0
            phase.teller = -1


@compiled
def _step(dry, member, rank, events, row, w):
    """Warp w of a workgroup does the event of this row. False if it must wait for a phase first."""
    event = events[row]
    if event.kind == KIND_EXIT:
        _ends(dry, member, w)
    elif event.pad > 0 or (event.kind == KIND_BULK and event.space == BULK_LOAD and event.cycles > 0):
        _copies(dry, rank, event, events)
    elif event.kind != KIND_BARRIER:
        pass
    elif event.space == PHASE_WAIT:
        return _passes(member, event, w)
    elif event.space == CLUSTER_WAIT:
        return dry.opened >= np.int64(event.work)
    elif event.space == PHASE_ARRIVE:
        _arrives(dry, rank, events, row)
    elif event.space == CLUSTER_ARRIVE:
        dry.met += 1 - member.met[w]
        member.met[w] = 1
        _meet(dry)
    else:
        _comes(member, event, w)
    return True


@compiled
def _ends(dry, member, w):
    """Warp w ends: barriers do not wait for it any more."""
    member.state[w] = ENDED
    member.alive -= 1
    dry.alive -= 1
    dry.met -= member.met[w]
    for number in range(BARRIERS):
        if member.alive > 0 and _waits_for_nobody(member, number):
            _open(member, number)
    _meet(dry)


@compiled
def _meet(dry):
    """Open the barrier of the cluster if all warps have arrived."""
    if dry.met < dry.alive:
        return
    dry.opened += 1
    dry.met = 0
    for rank in range(dry.cluster):
        dry.members[rank].met[:] = 0


@compiled
def _copies(dry, rank, event, events):
    """A copy of a workgroup brings its data to the others of its set."""
    for other in range(dry.cluster):
        if other == rank or (np.int64(event.cycles) >> other) & 1 == 0:
            continue
        phase = dry.members[other].phases[event.inner]
        phase.missing -= np.int64(event.pad)
        if event.kind == KIND_BULK:
            phase.moved += np.int64(event.stride) * np.int64(event.work)
        _end_phase(phase, events)


@compiled
def _arrives(dry, rank, events, row):
    """An arrival at a transaction barrier: the own one, or those of the workgroups in its set."""
    event = events[row]
    ranks = np.int64(event.cycles) if event.cycles > 0 else 1 << rank
    for other in range(dry.cluster):
        if (ranks >> other) & 1 == 0:
            continue
        phase = dry.members[other].phases[event.slot]
        phase.arrived += 1
        phase.arrivals = np.int64(event.work)
        if event.row_stride > 0:
            if phase.teller >= 0:
                events[phase.teller].row_stride = 0
            phase.missing += event.row_stride
            phase.teller = row
        _end_phase(phase, events)


@compiled
def _end_phase(phase, events):
    """End a phase that is complete. The last arrival that announced bytes expects those that came."""
    if phase.arrived == 0 or phase.arrived < phase.arrivals or phase.missing != 0:
        return
    if phase.teller >= 0:
        events[phase.teller].row_stride = phase.moved
    phase.arrived = phase.moved = 0
    phase.teller = -1
    phase.completed += 1


@compiled
def _passes(member, event, w):
    """True if the phase of the parity in event.work is complete. Then event.work is the number of phases."""
    completed = member.phases[event.slot].completed
    if member.target[w] == 0:
        member.target[w] = completed + 1 if completed & 1 == event.work else completed
    if completed < member.target[w]:
        return False
    event.work = member.target[w]
    member.target[w] = 0
    return True


@compiled
def _comes(member, event, w):
    """Warp w comes to a barrier, and sleeps there unless it only arrives. The last one opens it."""
    number = event.slot & (BARRIERS - 1)
    member.came[number] += 1
    if event.space != ARRIVE_ONLY:
        member.state[w], member.at[w] = SLEEPS, number
    expected = (np.int64(event.work) + LANES - 1) // LANES if event.work > 0 else member.alive
    if member.came[number] >= expected or _waits_for_nobody(member, number):
        _open(member, number)


@compiled
def _waits_for_nobody(member, number):
    """Do all warps that have not ended sleep at barrier `number`?"""
    if member.came[number] < member.alive:
        return False
    count = 0
    for w in range(member.warps):
        count += member.state[w] == SLEEPS and member.at[w] == number
    return count == member.alive


@compiled
def _open(member, number):
    member.came[number] = 0
    for w in range(member.warps):
        if member.state[w] == SLEEPS and member.at[w] == number:
            member.state[w] = RUNS
