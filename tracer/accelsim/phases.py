"""Transaction barriers (mbarriers) of a workgroup, in traces with register values (Accel-Sim's ALLOW_REG_VAL_TRACING).

    SYNCS.EXCH.64                     init: the second source is the number of arrivals of a phase, coded
    SYNCS.ARRIVE.TRANS64[.RED].A1T0   each active lane arrives once; ART0: as often as the second source says
    SYNCS.ARRIVE.TRANS64[.RED]        each active lane arrives once and announces the bytes in the second source
    SYNCS.PHASECHK.TRANS64.TRYWAIT    waits while the number of completed phases has the parity in its bit 31
    UTMALDG, UBLKCP                   names the barrier that its data tell

The machine has the same barriers (`sim.hw.barrier`), with three differences. A warp arrives after the copies that it
has announced: `tracer.accelsim.warp` moves the arrival behind them. An arrival is one event, so lanes count in units:
the greatest number that divides all arrivals at a barrier. A wait names the number of phases: a dry run of the
workgroup without times finds it.

A workgroup is not followed if a barrier belongs to another one (clusters), counts in another way, has no values, or
stands still in the dry run. Then warps wait for their own copies only (D47).
"""

import numpy as np

from tracer.accelsim.instruction import NO_VALUE
from tracer.accelsim.opcodes import Action
from tracer.coalesce import active_lanes
from tracer.compile.jit import compiled
from traces.schema import ARRIVE_ONLY, BARRIERS, MAX_WARPS, PHASE_ARRIVE, PHASE_WAIT, Kind

PHASE = np.dtype(
    [
        ("address", "u4"),
        ("arrivals", "i8"),  # of a phase, in units
        ("unit", "i8"),  # lanes that arrive together
    ]
)
DRY = np.dtype(
    [
        ("alive", "i8"),
        ("position", "i8", MAX_WARPS),  # event of each warp
        ("state", "i8", MAX_WARPS),
        ("at", "i8", MAX_WARPS),  # barrier at which a warp sleeps
        ("target", "i8", MAX_WARPS),  # phases for which a warp waits, 0 = none
        ("came", "i8", BARRIERS),  # warps at a barrier
        ("arrived", "i8", BARRIERS),  # at a transaction barrier, in this phase
        ("completed", "i8", BARRIERS),  # phases
    ]
)
"""State of a dry run."""
RUNS, SLEEPS, ENDED = 0, 1, 2
LANES = 32
INIT_BIAS, WORD = 0x100000, 0xFFFFFFFF
ARRIVALS_MAX = 1 << 10
"""Most arrivals of one instruction, in units."""
NO_VALUES, CLUSTER, UNUSUAL, STANDS_STILL = -1, -2, -3, -4
WHY = {
    NO_VALUES: "register values are missing: trace with ALLOW_REG_VAL_TRACING=1",
    CLUSTER: "they or their loads belong to several workgroups",
    UNUSUAL: "they count in an unusual way",
    STANDS_STILL: "their copies or arrivals do not fit together",
}
"""Why a workgroup is not followed."""
PHASE_INIT, WAIT_ALL, BULK_COPY = int(Action.PHASE_INIT), int(Action.WAIT_ALL), int(Action.BULK_COPY)
ARRIVE_ONCE, ARRIVE_COUNT, ANNOUNCE = int(Action.ARRIVE_ONCE), int(Action.ARRIVE_COUNT), int(Action.ANNOUNCE)
KIND_BARRIER, KIND_EXIT = int(Kind.BARRIER), int(Kind.EXIT)


@compiled
def find_phase(builder, address):
    """Number of the transaction barrier at an address of shared memory, -1 if there is none."""
    for number in range(builder.phase_count):
        if builder.phases[number].address == address:
            return number
    return -1


@compiled
def _greatest_divisor(one, other):
    while other:
        one, other = other, one % other
    return one


@compiled
def arrivals_of(instruction, action):
    """Arrivals of all lanes of an instruction."""
    return active_lanes(np.uint64(instruction.mask)) * (instruction.value if action == ARRIVE_COUNT else 1)


@compiled
def find_phases(builder, instructions, count, opcodes, threads):
    """Find the transaction barriers of the first `count` instructions, a workgroup of `threads`. Writes: builder.

    Returns:
        Number of events that all arrivals take; a key of WHY if the workgroup cannot be followed.
    """
    builder.phase_count = 0
    for k in range(count):
        instruction = instructions[k]
        if opcodes[instruction.opcode].action != PHASE_INIT or instruction.mask == 0:
            continue
        arrivals = -((instruction.value >> 1) - INIT_BIAS) & WORD
        if instruction.value == NO_VALUE:
            return NO_VALUES
        known = find_phase(builder, instruction.barrier) >= 0
        if known or instruction.barrier == 0 or arrivals == 0 or builder.phase_count == BARRIERS:
            return UNUSUAL
        phase = builder.phases[builder.phase_count]
        phase.address, phase.arrivals, phase.unit = instruction.barrier, arrivals, arrivals
        builder.phase_count += 1
    for k in range(count):
        instruction = instructions[k]
        action = opcodes[instruction.opcode].action
        copies = action == BULK_COPY and instruction.barrier != 0
        if instruction.mask == 0 or not (copies or action == WAIT_ALL or action >= ARRIVE_ONCE):
            continue
        number = find_phase(builder, instruction.barrier)
        if action > ANNOUNCE or (instruction.barrier == 0 and not copies):
            return UNUSUAL
        if number < 0 or instruction.multicast:
            return CLUSTER
        if instruction.value == NO_VALUE and action in (WAIT_ALL, ARRIVE_COUNT, ANNOUNCE):
            return NO_VALUES
        if action >= ARRIVE_ONCE:
            phase = builder.phases[number]
            phase.unit = _greatest_divisor(phase.unit, arrivals_of(instruction, action))
    return _in_units(builder, instructions, count, opcodes, threads)


@compiled
def _in_units(builder, instructions, count, opcodes, threads):
    """Count the arrivals of a phase in units. Returns as `find_phases`."""
    for number in range(builder.phase_count):
        builder.phases[number].arrivals //= builder.phases[number].unit
        if builder.phases[number].arrivals > threads:
            return UNUSUAL
    total = 0
    for k in range(count):
        instruction = instructions[k]
        action = opcodes[instruction.opcode].action
        if instruction.mask != 0 and action >= ARRIVE_ONCE:
            unit = builder.phases[find_phase(builder, instruction.barrier)].unit
            arrivals = arrivals_of(instruction, action) // unit
            if not 1 <= arrivals <= ARRIVALS_MAX:
                return UNUSUAL
            total += arrivals
    return total


@compiled
def dry_run(dry, first_event, n_warps, events):
    """Run the barriers of a workgroup without times, and set the phases for which its warps wait.

    Args:
        dry: DRY record.
        first_event: i8 [n_warps + 1].
        events: EVENT. PHASE_WAIT has the parity in `work`, and gets the number of phases.

    Returns:
        True if all warps come to their end.
    """
    dry.alive = n_warps
    for w in range(n_warps):
        dry.position[w], dry.state[w], dry.target[w] = first_event[w], RUNS, 0
    for number in range(BARRIERS):
        dry.came[number] = dry.arrived[number] = dry.completed[number] = 0
    moved = True
    while moved:
        moved = False
        for w in range(n_warps):
            while dry.state[w] == RUNS and _step(dry, events[dry.position[w]], w, n_warps):
                dry.position[w] += 1
                moved = True
    return dry.alive == 0


@compiled
def _step(dry, event, w, n_warps):
    """Warp w does one event. False if it must wait for a phase first."""
    if event.kind == KIND_EXIT:
        dry.state[w] = ENDED
        dry.alive -= 1
        for number in range(BARRIERS):
            if 0 < dry.alive <= dry.came[number] and _sleepers(dry, number, n_warps) == dry.alive:
                _open(dry, number, n_warps)
    elif event.kind == KIND_BARRIER and event.space == PHASE_WAIT:
        return _passes(dry, event, w)
    elif event.kind == KIND_BARRIER and event.space == PHASE_ARRIVE:
        dry.arrived[event.slot] += 1
        if dry.arrived[event.slot] == event.work:
            dry.arrived[event.slot] = 0
            dry.completed[event.slot] += 1
    elif event.kind == KIND_BARRIER:
        _comes(dry, event, w, n_warps)
    return True


@compiled
def _passes(dry, event, w):
    """True if the phase of the parity in event.work is complete. Then event.work is the number of phases."""
    completed = dry.completed[event.slot]
    if dry.target[w] == 0:
        dry.target[w] = completed + 1 if completed & 1 == event.work else completed
    if completed < dry.target[w]:
        return False
    event.work = dry.target[w]
    dry.target[w] = 0
    return True


@compiled
def _comes(dry, event, w, n_warps):
    """Warp w comes to a barrier, and sleeps there unless it only arrives. The last one opens it."""
    number = event.slot & (BARRIERS - 1)
    dry.came[number] += 1
    if event.space != ARRIVE_ONLY:
        dry.state[w], dry.at[w] = SLEEPS, number
    expected = (np.int64(event.work) + LANES - 1) // LANES if event.work > 0 else dry.alive
    if dry.came[number] >= expected:
        _open(dry, number, n_warps)


@compiled
def _sleepers(dry, number, n_warps):
    count = 0
    for w in range(n_warps):
        count += dry.state[w] == SLEEPS and dry.at[w] == number
    return count


@compiled
def _open(dry, number, n_warps):
    dry.came[number] = 0
    for w in range(n_warps):
        if dry.state[w] == SLEEPS and dry.at[w] == number:
            dry.state[w] = RUNS
