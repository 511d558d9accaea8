"""Events of barriers: of a workgroup (BAR), of a cluster (UCGABAR), and transaction barriers that are followed."""

import numpy as np

from tracer.accelsim.instruction import NO_REGISTER, NO_VALUE
from tracer.accelsim.issue import start_event
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

LANES = 32
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
    """Add an arrival at the barrier of the cluster, or a wait for the warp's last arrival."""
    builder.meetings += action == MEET
    event = start_event(builder, instruction, action, events)
    event.space = CLUSTER_ARRIVE if action == MEET else CLUSTER_WAIT
    event.work = 0 if action == MEET else builder.meetings


@compiled
def arrive_at(builder, instruction, rank, number, arrivals, counted, events):
    """Add arrivals at a transaction barrier of a workgroup: one event each. Returns the row of the first.

    counted: warp instructions of the first.
    """
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
        event.cycles = 0 if rank == builder.rank else 1 << rank
    return row


@compiled
def arrive_at_phases(builder, instruction, action, events, addresses):
    """Add the arrivals of an instruction that announces no bytes. They expect what was announced before, but not copied
    by the warp: other workgroups bring it."""
    for target in range(find_targets(builder, instruction, addresses)):
        number, rank = builder.target_number[target], builder.target_rank[target]
        arrivals = builder.target_lanes[target] * arrivals_of(instruction, action) // builder.phases[number].unit
        row = arrive_at(builder, instruction, rank, number, arrivals, target == 0, events)
        if rank == builder.rank and builder.copied_bytes[number] < 0:
            builder.failed |= builder.cluster == 1
            events[row].row_stride = -builder.copied_bytes[number]
            builder.copied_bytes[number] = 0


@compiled
def announce(builder, instruction, events):
    """Keep an arrival that announces bytes until their copies are issued. Some may be issued already."""
    number = find_phase(builder, instruction.barrier)
    lanes = active_lanes(np.uint64(instruction.mask))
    builder.announced = number
    builder.announced_bytes = lanes * instruction.value
    builder.announced_arrivals = lanes // builder.phases[number].unit
    copied_bytes = builder.copied_bytes[number]
    builder.copied_bytes[number] = 0
    _keep_announcement(builder, instruction, copied_bytes, events)


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
        _keep_announcement(builder, instruction, instruction.bytes, events)
    else:
        builder.copied_bytes[number] += instruction.bytes


@compiled
def _keep_announcement(builder, instruction, data_bytes, events):
    """Announced bytes are copied. The arrival follows the last of their copies."""
    builder.announced_bytes -= data_bytes
    if builder.announced_bytes == 0:
        _end_announcement(builder, instruction, events)
    elif builder.announced_bytes < 0:
        builder.failed = 1


@compiled
def _end_announcement(builder, instruction, events):
    """All copies of the warp that it has announced are issued. Other workgroups bring the other announced bytes."""
    arrivals = builder.announced_arrivals
    row = arrive_at(builder, instruction, builder.rank, builder.announced, arrivals, 0, events)
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
    _end_announcement(builder, instruction, events)
    builder.board.wait = wait


@compiled
def end_copies(builder, instruction, events):
    """The warp ends. All bytes that it has copied must be announced."""
    no_more_copies(builder, instruction, events)
    for number in range(builder.phase_count):
        builder.failed |= builder.copied_bytes[number] != 0
        builder.copied_bytes[number] = 0
