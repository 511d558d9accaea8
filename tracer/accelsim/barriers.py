"""Events of barriers: of a workgroup (BAR), of a cluster (UCGABAR), and transaction barriers that are followed."""

import numpy as np

from tracer.accelsim.instruction import LANES, NO_REGISTER, NO_VALUE
from tracer.accelsim.issue import compute, start_event
from tracer.accelsim.opcodes import Action
from tracer.accelsim.phases import arrivals_of, find_phase, find_targets
from tracer.accelsim.section import U4_MAX, next_event
from tracer.coalesce import active_lanes
from tracer.compile.jit import compiled
from traces.schema import (
    ARRIVE_ONLY,
    BARRIERS,
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    NO_SLOT,
    PHASE_ARRIVE,
    PHASE_WAIT,
    Kind,
)

ARRIVE, WAIT_ALL, MEET = int(Action.ARRIVE), int(Action.WAIT_ALL), int(Action.CLUSTER_ARRIVE)
KIND_BARRIER = int(Kind.BARRIER)


@compiled
def barrier(builder, instruction, action, events):
    """Add a barrier with its number and the threads that it expects, as far as the trace tells them."""
    event = start_event(builder, instruction, action, events)
    if action == ARRIVE:
        event.space = ARRIVE_ONLY
    event.slot = 0
    named = instruction.imm2 == 0 and instruction.dst != NO_REGISTER  # by a register
    if instruction.imm2 != NO_VALUE and (not named or instruction.value != NO_VALUE):
        number, threads = (instruction.value, instruction.imm) if named else (instruction.imm, instruction.imm2)
        event.slot = number if 0 <= number < BARRIERS else NO_SLOT
        event.work = min(threads, U4_MAX)
    elif 0 < instruction.imm < BARRIERS:
        event.slot = instruction.imm
    elif instruction.imm >= BARRIERS:
        warps = (instruction.imm + LANES - 1) // LANES
        event.slot = 1 + (warps - 1) % (BARRIERS - 1)
        event.work = instruction.imm


@compiled
def wait_for_phase(builder, instruction, events):
    """Add a wait at a transaction barrier, with the parity of the phase. The dry run finds the number of phases."""
    event = start_event(builder, instruction, WAIT_ALL, events)
    event.kind = KIND_BARRIER
    event.space = PHASE_WAIT
    event.slot = find_phase(builder, instruction.barrier)
    event.work = (instruction.value >> 31) & 1


@compiled
def meet(builder, instruction, action, events):
    """Add an arrival at the barrier of the cluster, or a wait for the warp's last arrival.

    An arrival before that wait has no defined effect (PTX).
    """
    if action == MEET and builder.met:
        builder.failed = 1
    builder.met = action == MEET
    builder.meetings += action == MEET
    event = start_event(builder, instruction, action, events)
    event.space = CLUSTER_ARRIVE if action == MEET else CLUSTER_WAIT
    event.work = 0 if action == MEET else builder.meetings
    event.slot = 0


@compiled
def arrive_at(builder, instruction, ranks, number, arrivals, counted, events):
    """Add arrivals at a transaction barrier of a set of workgroups: one event each. Returns the row of the first.

    counted: warp instructions of the first.
    """
    rank = 0
    while (ranks >> rank) & 1 == 0:
        rank += 1
    event = start_event(builder, instruction, ARRIVE, events)
    row = builder.section.events - 1
    for k in range(arrivals):
        if k > 0:
            event = next_event(builder.section, events)
            event.kind = KIND_BARRIER
            event.pc = instruction.pc
        event.count = counted if k == 0 else 0
        event.space = PHASE_ARRIVE
        event.slot = number
        event.work = builder.phases[number].arrivals[rank]
        event.cycles = 0 if ranks == 1 << builder.rank else ranks
    return row


@compiled
def arrive_at_phases(builder, instruction, action, events, addresses):
    """Add the arrivals of an instruction that announces no bytes. They expect what was announced before, but not copied
    by the warp: other workgroups bring it. Equal arrivals at equal barriers are those of a set of workgroups."""
    targets = find_targets(builder, instruction, addresses)
    counted = 1
    for target in range(targets):
        if builder.target_lanes[target] == 0:  # in the set of an earlier one
            continue
        number, rank = builder.target_number[target], builder.target_rank[target]
        lanes = builder.target_lanes[target]
        announced = builder.copied_bytes[number] < 0
        ranks = 1 << rank if announced and rank == builder.rank else _equal_targets(builder, target, targets, announced)
        arrivals = lanes * arrivals_of(instruction, action) // builder.phases[number].unit
        row = arrive_at(builder, instruction, ranks, number, arrivals, counted, events)
        counted = 0
        if announced and rank == builder.rank:
            builder.failed |= builder.cluster == 1
            events[row].row_stride = -builder.copied_bytes[number]
            builder.copied_bytes[number] = 0


@compiled
def _equal_targets(builder, target, targets, announced):
    """Set of the workgroups at whose barriers an instruction arrives as at `target`. The others need no more events.

    announced: the own workgroup needs an event of its own, which expects bytes.
    """
    number, lanes = builder.target_number[target], builder.target_lanes[target]
    phase = builder.phases[number]
    arrivals = phase.arrivals[builder.target_rank[target]]
    ranks = 0
    for other in range(target, targets):
        rank = builder.target_rank[other]
        same = builder.target_number[other] == number and builder.target_lanes[other] == lanes
        if same and phase.arrivals[rank] == arrivals and not (announced and rank == builder.rank):
            ranks |= 1 << rank
            builder.target_lanes[other] = 0
    return ranks


@compiled
def announce(builder, instruction, opcode, events):
    """Keep an arrival that announces bytes until their copies are issued. Some may be issued already; in a cluster all
    are then, as they are in a text with notes."""
    number = find_phase(builder, instruction.barrier)
    lanes = active_lanes(np.uint64(instruction.mask))
    builder.announced = number
    builder.announced_bytes = lanes * instruction.value - builder.copied_bytes[number]
    builder.announced_arrivals = lanes // builder.phases[number].unit
    before = (builder.copied_bytes[number] > 0 or builder.noted) and builder.cluster > 1
    builder.copied_bytes[number] = 0
    if builder.announced_bytes == 0 or (before and builder.announced_bytes > 0):
        _end_announcement(builder, instruction, 1, events)
        return
    compute(builder, instruction, opcode, opcode.pipe, events)
    builder.failed |= builder.announced_bytes < 0


@compiled
def expect(builder, instruction):
    """Bytes are announced without an arrival."""
    lanes = active_lanes(np.uint64(instruction.mask))
    builder.copied_bytes[find_phase(builder, instruction.barrier)] -= lanes * instruction.value


@compiled
def count_copy(builder, instruction, events):
    """A copy is issued that brings its data to a barrier of the own workgroup."""
    number = find_phase(builder, instruction.barrier)
    if number == builder.announced:
        builder.announced_bytes -= instruction.bytes
        builder.failed |= builder.announced_bytes < 0
        if builder.announced_bytes == 0:
            _end_announcement(builder, instruction, 0, events)
    else:
        builder.copied_bytes[number] += instruction.bytes


@compiled
def _end_announcement(builder, instruction, counted, events):
    """All copies of the warp that it has announced are issued. Other workgroups bring the other announced bytes.

    counted: as `arrive_at`.
    """
    arrivals = builder.announced_arrivals
    row = arrive_at(builder, instruction, 1 << builder.rank, builder.announced, arrivals, counted, events)
    events[row].row_stride = builder.announced_bytes
    builder.announced = -1


@compiled
def no_more_copies(builder, instruction, events):
    """The warp copies no more of what it has announced: without a cluster that must have been all."""
    if builder.announced < 0:
        return
    if builder.cluster == 1:
        builder.failed = 1
        return
    wait = builder.board.wait
    builder.board.wait = np.uint64(0)
    _end_announcement(builder, instruction, 0, events)
    builder.board.wait = wait


@compiled
def end_copies(builder, instruction, events):
    """The warp ends. All bytes that it has copied must be announced."""
    no_more_copies(builder, instruction, events)
    for number in range(builder.phase_count):
        builder.failed |= builder.copied_bytes[number] != 0
        builder.copied_bytes[number] = 0
