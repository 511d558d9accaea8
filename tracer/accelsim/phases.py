"""Transaction barriers (mbarriers) of traces with register values (Accel-Sim's ALLOW_REG_VAL_TRACING).

    SYNCS.EXCH.64                     init: the second source is the number of arrivals of a phase, coded
    SYNCS.ARRIVE.TRANS64[.RED].A1T0   each active lane arrives once; ART0: as often as the second source says
    SYNCS.ARRIVE.TRANS64[.RED]        each active lane arrives once and announces the bytes in the second source
    SYNCS.ARRIVE.TRANS64.RED.A0TR     announces bytes without an arrival
    SYNCS.PHASECHK.TRANS64.TRYWAIT    waits while the number of completed phases has the parity in its bit 31
    UTMALDG, UBLKCP                   names the barrier that its data tell; of several workgroups, if it is a multicast

Addresses of shared memory are those of the cluster: rank of the workgroup, then 24 bits of its own memory. Barriers at
the same place in all workgroups have the same number.

The machine has the same barriers (`sim.hw.barrier`), with three differences. A warp arrives after the copies that it
has announced: `tracer.accelsim.warp` moves the arrival behind them. An arrival is one event, so lanes count in units:
the greatest number that divides all arrivals at a barrier. A wait names the number of phases: a dry run of the cluster
without times finds it (`tracer.accelsim.dry_run`).

A cluster is not followed if a barrier counts in another way, has no values, or stands still in the dry run. Then warps
wait for their own copies only (D47).
"""

import numpy as np

from tracer.accelsim.instruction import NO_VALUE
from tracer.accelsim.opcodes import Action
from tracer.coalesce import active_lanes, lane_address
from tracer.compile.jit import compiled
from traces.schema import BARRIERS, MAX_CLUSTER, PHASE_BARRIERS

PHASE = np.dtype(
    [
        ("place", "i8"),  # in shared memory
        ("arrivals", "i8", MAX_CLUSTER),  # of a phase, by rank, in units; 0 = the workgroup has no such barrier
        ("unit", "i8"),  # lanes that arrive together
        ("shared", "i8"),  # 1 = other workgroups signal it
    ]
)
INIT_BIAS, WORD = 0x100000, 0xFFFFFFFF
PLACE_BITS = 24
"""Bits of an address of shared memory below the rank."""
ARRIVALS_MAX = 1 << 10
"""Most arrivals of one instruction, in units."""
NO_VALUES, OUTSIDE, UNUSUAL, STANDS_STILL, INCOMPLETE = -1, -2, -3, -4, -5
WHY = {
    NO_VALUES: "register values are missing: trace with ALLOW_REG_VAL_TRACING=1",
    OUTSIDE: "they belong to other workgroups, and the trace does not tell the cluster",
    UNUSUAL: "they count in an unusual way",
    STANDS_STILL: "their copies or arrivals do not fit together",
    INCOMPLETE: "workgroups of the cluster are missing",
}
"""Why a cluster is not followed."""
PHASE_INIT, WAIT_ALL, BULK_COPY = int(Action.PHASE_INIT), int(Action.WAIT_ALL), int(Action.BULK_COPY)
ARRIVE_ONCE, ARRIVE_COUNT = int(Action.ARRIVE_ONCE), int(Action.ARRIVE_COUNT)
ANNOUNCE, EXPECT = int(Action.ANNOUNCE), int(Action.EXPECT)


@compiled
def find_phase(builder, address):
    """Number of the transaction barrier at an address of shared memory, -1 if there is none."""
    for number in range(builder.phase_count):
        if builder.phases[number].place == np.int64(address) & ((1 << PLACE_BITS) - 1):
            return number
    return -1


@compiled
def rank_of(address):
    """Rank of the workgroup to which an address of shared memory belongs."""
    return np.int64(np.uint64(address) >> np.uint64(PLACE_BITS))


@compiled
def ranks_of_copy(instruction):
    """Set of the workgroups that get the data of a TMA load."""
    if instruction.multicast:
        return np.int64(instruction.multicast)
    return 1 << min(rank_of(instruction.barrier), MAX_CLUSTER)


@compiled
def arrivals_of(instruction, action):
    """Arrivals of each lane of an instruction."""
    return instruction.value if action == ARRIVE_COUNT else 1


@compiled
def find_targets(builder, instruction, addresses):
    """Find the barriers at which the lanes of an instruction arrive. Writes: builder.target_*.

    Returns:
        Their number; OUTSIDE or UNUSUAL if a lane arrives at no barrier of the cluster.
    """
    count = 0
    for k in range(instruction.lanes):
        address = lane_address(instruction, np.int64(instruction.base), addresses, k)
        number, rank = find_phase(builder, address), rank_of(address)
        if rank >= builder.cluster:
            return OUTSIDE
        if number < 0 or builder.phases[number].arrivals[rank] == 0:
            return UNUSUAL
        target = 0
        while target < count and (builder.target_rank[target] != rank or builder.target_number[target] != number):
            target += 1
        if target == count:
            builder.target_rank[count], builder.target_number[count], builder.target_lanes[count] = rank, number, 0
            count += 1
        builder.target_lanes[target] += 1
    return count


@compiled
def start_phases(builder):
    """Begin with a new cluster."""
    builder.phase_count = 0
    for number in range(PHASE_BARRIERS):
        phase = builder.phases[number]
        phase.unit = phase.shared = 0
        phase.arrivals[:] = 0


@compiled
def find_inits(builder, instructions, count, opcodes, _addresses):
    """Find the transaction barriers that workgroup `builder.rank` makes in its `count` instructions. Writes: builder.

    Returns:
        0, or a key of WHY if the cluster cannot be followed.
    """
    for k in range(count):
        instruction = instructions[k]
        if opcodes[instruction.opcode].action != PHASE_INIT or instruction.mask == 0:
            continue
        if instruction.value == NO_VALUE:
            return NO_VALUES
        arrivals = -((instruction.value >> 1) - INIT_BIAS) & WORD
        number = find_phase(builder, instruction.barrier)
        if number < 0:
            number = builder.phase_count
            if number == PHASE_BARRIERS:
                return UNUSUAL
            builder.phase_count += 1
            builder.phases[number].place = instruction.barrier & ((1 << PLACE_BITS) - 1)
        known = builder.phases[number].arrivals[builder.rank] > 0
        if known or instruction.barrier == 0 or arrivals == 0 or rank_of(instruction.barrier) != builder.rank:
            return UNUSUAL
        builder.phases[number].arrivals[builder.rank] = arrivals
        builder.phases[number].unit = _greatest_divisor(arrivals, builder.phases[number].unit)
    return 0


@compiled
def _greatest_divisor(one, other):
    while other:
        one, other = other, one % other
    return one


@compiled
def find_uses(builder, instructions, count, opcodes, addresses):
    """Find how workgroup `builder.rank` uses the transaction barriers of the cluster. Writes: builder.

    Returns: as `find_inits`.
    """
    for k in range(count):
        instruction = instructions[k]
        action = opcodes[instruction.opcode].action
        copies = action == BULK_COPY and instruction.barrier != 0
        if instruction.mask == 0 or not (copies or action == WAIT_ALL or action >= ARRIVE_ONCE):
            continue
        why = UNUSUAL
        if action in (ARRIVE_ONCE, ARRIVE_COUNT):
            why = _use_arrival(builder, instruction, action, addresses)
        elif copies:
            why = _use_copy(builder, instruction)
        elif action <= EXPECT:
            why = _use_own(builder, instruction, action)
        if why < 0:
            return why
    return 0


@compiled
def _use_arrival(builder, instruction, action, addresses):
    targets = find_targets(builder, instruction, addresses)
    if action == ARRIVE_COUNT and instruction.value == NO_VALUE:
        return NO_VALUES
    for target in range(targets):
        phase = builder.phases[builder.target_number[target]]
        arrivals = builder.target_lanes[target] * arrivals_of(instruction, action)
        phase.unit = _greatest_divisor(phase.unit, arrivals)
        phase.shared |= builder.target_rank[target] != builder.rank
    return UNUSUAL if targets == 0 else targets


@compiled
def _use_copy(builder, instruction):
    number, ranks = find_phase(builder, instruction.barrier), ranks_of_copy(instruction)
    if ranks >> builder.cluster != 0:
        return OUTSIDE
    for rank in range(builder.cluster):
        if (ranks >> rank) & 1 == 1 and (number < 0 or builder.phases[number].arrivals[rank] == 0):
            return UNUSUAL
    builder.phases[number].shared |= ranks != 1 << builder.rank
    return 0


@compiled
def _use_own(builder, instruction, action):
    """A wait, or what announces bytes: at an own barrier."""
    number, rank = find_phase(builder, instruction.barrier), rank_of(instruction.barrier)
    if rank >= builder.cluster:
        return OUTSIDE
    if rank != builder.rank or number < 0 or builder.phases[number].arrivals[rank] == 0:
        return UNUSUAL
    if instruction.value == NO_VALUE:
        return NO_VALUES
    if action == ANNOUNCE:
        phase = builder.phases[number]
        phase.unit = _greatest_divisor(phase.unit, active_lanes(np.uint64(instruction.mask)))
    return 0


@compiled
def number_phases(builder, threads):
    """Give barriers that other workgroups signal numbers that they can signal, and count arrivals in units.

    Writes: builder.

    Args:
        threads: of the cluster.

    Returns: as `find_inits`.
    """
    free = 0
    for number in range(BARRIERS, builder.phase_count):
        if not builder.phases[number].shared:
            continue
        while free < BARRIERS and builder.phases[free].shared:
            free += 1
        if free == BARRIERS:
            return UNUSUAL
        _exchange(builder.phases, number, free)
    for number in range(builder.phase_count):
        phase = builder.phases[number]
        for rank in range(builder.cluster):
            phase.arrivals[rank] //= phase.unit
            if phase.arrivals[rank] > threads:
                return UNUSUAL
    return 0


@compiled
def _exchange(phases, one, other):
    """Exchange two barriers."""
    for rank in range(MAX_CLUSTER):
        held = phases[one].arrivals[rank]
        phases[one].arrivals[rank], phases[other].arrivals[rank] = phases[other].arrivals[rank], held
    phases[one].place, phases[other].place = phases[other].place, phases[one].place
    phases[one].unit, phases[other].unit = phases[other].unit, phases[one].unit
    phases[one].shared, phases[other].shared = phases[other].shared, phases[one].shared


@compiled
def count_arrivals(builder, instructions, count, opcodes, addresses):
    """Number of events that all arrivals of workgroup `builder.rank` take; UNUSUAL if one takes too many."""
    total = 0
    for k in range(count):
        instruction = instructions[k]
        action = opcodes[instruction.opcode].action
        if instruction.mask == 0 or action < ARRIVE_ONCE or action == EXPECT:
            continue
        if action == ANNOUNCE:
            total += active_lanes(np.uint64(instruction.mask))
            continue
        for target in range(find_targets(builder, instruction, addresses)):
            lanes = builder.target_lanes[target] * arrivals_of(instruction, action)
            arrivals = lanes // builder.phases[builder.target_number[target]].unit
            if not 1 <= arrivals <= ARRIVALS_MAX:
                return UNUSUAL
            total += arrivals
    return total
