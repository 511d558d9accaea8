"""Turn the instructions of a warp into warp-level events.

Instruction -> event:

* loads, stores, atomics, reductions: one event each. Without an active lane (mask 0) or an address they make no request
  and only take an issue slot. They then count as ALU work.
* LDGSTS: ASYNC_COPY. LDGDEPBAR: a WAIT event that waits for nothing. DEPBAR: a WAIT for all groups except the latest,
  or ALU work if there is nothing to wait for.
* BAR: BARRIER. Tracers of 2026 write its number and the threads expected. Tracer 6 also writes the number if it is in a
  register. Else only the last immediate is known. One below 16 is the number of the barrier. A larger one is the
  threads expected, and the number is lost. Barriers of different counts get different numbers. Two of the same count at
  the same time become one (D20). BAR.ARV arrives without waiting.
* MEMBAR, but not within the workgroup (CTA): a WAIT for the stores since the last one, which get a slot (D10).
* the last EXIT: EXIT. An earlier one (some lanes leave) is a branch.
* all others: COMPUTE, by pipe (tracer.accelsim.section).

The sum of `count` over the events of a warp is its number of instructions in the trace.
"""

import numpy as np

from tracer.accelsim.barriers import (
    announce,
    arrive_at_phases,
    barrier,
    count_copy,
    end_copies,
    expect,
    meet,
    no_more_copies,
    wait_for_phase,
)
from tracer.accelsim.bulk import add_bulk_loads
from tracer.accelsim.instruction import HELPER, LANES, REPEAT
from tracer.accelsim.issue import compute, start_event
from tracer.accelsim.local import WINDOW_BYTES
from tracer.accelsim.opcodes import GENERIC, Action
from tracer.accelsim.phases import ranks_of_copy
from tracer.accelsim.scoreboard import (
    collect_waits,
    commit_group,
    free_waited,
    reset_scoreboard,
    slot_bit,
    take_copy_slot,
    take_load_slot,
    wait_for_groups,
)
from tracer.accelsim.section import close_section, next_event
from tracer.accelsim.unusual import Unusual, count_unusual
from tracer.coalesce import active_lanes
from tracer.compile.jit import compiled
from traces.schema import EXPLICIT, NO_SLOT, SECTOR_BYTES, SLOTS, Cache, Kind, Space

COMPUTE, LOAD, ATOMIC = (int(Action[n]) for n in ("COMPUTE", "LOAD", "ATOMIC"))
ASYNC_COPY, COMMIT, DEPBAR, BARRIER = (int(Action[n]) for n in ("ASYNC_COPY", "COMMIT", "DEPBAR", "BARRIER"))
EXIT, BULK_COPY, WAIT_ALL, ARRIVE = (int(Action[n]) for n in ("EXIT", "BULK_COPY", "WAIT_ALL", "ARRIVE"))
FENCE, MARKER, COPIES_ARRIVE = int(Action.FENCE), int(Action.MARKER), int(Action.COPIES_ARRIVE)
PHASE_INIT, ANNOUNCE, EXPECT = int(Action.PHASE_INIT), int(Action.ANNOUNCE), int(Action.EXPECT)
CLUSTER_ARRIVE, CLUSTER_WAIT = int(Action.CLUSTER_ARRIVE), int(Action.CLUSTER_WAIT)
ARRIVE_ONCE, ARRIVE_COUNT = int(Action.ARRIVE_ONCE), int(Action.ARRIVE_COUNT)
KIND_STORE, KIND_REDUCE = int(Kind.STORE), int(Kind.REDUCE)
STORE_SLOT = SLOTS - 1
"""Slot of stores that a fence waits for. Loads take it last."""
KIND_EXIT = int(Kind.EXIT)
SHARED, LOCAL, GLOBAL, REMOTE = (int(Space[n]) for n in ("SHARED", "LOCAL", "GLOBAL", "REMOTE"))
DEFAULT_CACHE = int(Cache.DEFAULT)


@compiled
def is_memory(action):
    return LOAD <= action <= ASYNC_COPY or action == BULK_COPY


@compiled
def resolve_space(builder, instruction, addresses):
    """(space, rank) of a generic access, from the window of its first lane's address. SHARED if a window is unknown.

    The windows of the workgroups of a cluster follow each other. rank: of the workgroup to which shared memory belongs.
    """
    if builder.shared_base == 0 or builder.local_base == 0:
        count_unusual(builder, Unusual.NO_WINDOW, instruction.line)
        return SHARED, builder.rank
    address = instruction.base
    if instruction.inner == EXPLICIT:
        address = addresses[np.int64(instruction.base)]
    if builder.local_base <= address < builder.local_base + WINDOW_BYTES:
        return LOCAL, builder.rank
    if builder.shared_base <= address < builder.shared_base + WINDOW_BYTES * np.uint64(builder.cluster):
        rank = np.int64((address - builder.shared_base) // WINDOW_BYTES)
        other = builder.cluster > 1 and rank != builder.rank and instruction.inner != EXPLICIT
        return (REMOTE if other else SHARED), rank
    return GLOBAL, builder.rank


@compiled
def find_waits(builder, instruction, opcode, action):
    """Find wait mask and earliest issue of an instruction. The slots that it waits for become free."""
    board = builder.board
    if builder.noted:
        board.wait = instruction.note_wait if instruction.noted else np.uint64(0)
        board.earliest = board.clock + 1
        return
    collect_waits(board, instruction, opcode)
    if action == DEPBAR:
        wait_for_groups(board, max(instruction.imm, 0))
    elif action == WAIT_ALL and not builder.followed:
        wait_for_groups(board, 0)
    free_waited(board)


@compiled
def memory_slot(builder, instruction, opcode, action):
    """Take the slot of a memory event. This may add the slot to the wait mask."""
    if builder.noted:
        return instruction.note_slot
    board = builder.board
    if action == ASYNC_COPY:
        return take_copy_slot(board)
    if action == BULK_COPY:
        slot = take_copy_slot(board)
        commit_group(board)
        return slot
    if action in (LOAD, ATOMIC):
        return take_load_slot(board, instruction, opcode)
    return NO_SLOT


@compiled
def fill_access(event, instruction, opcode, space, slot):
    """Fill the address columns of a memory event."""
    event.space = space
    event.cache = opcode.cache if space == GLOBAL else DEFAULT_CACHE
    if instruction.noted:
        event.cache = instruction.note_cache
    event.width_bytes = opcode.width_bytes
    event.slot = slot
    event.inner = instruction.inner
    event.stride = instruction.stride
    event.row_stride = instruction.row_stride
    event.base = instruction.base


@compiled
def lanes_of_event(addresses, first, lanes):
    """How many of the `lanes` listed lanes from `first` on are one event: up to 32, but no sector in two events."""
    if lanes <= LANES:
        return lanes
    last = first + LANES - 1
    same_sector = addresses[last] // np.uint64(SECTOR_BYTES) == addresses[last + 1] // np.uint64(SECTOR_BYTES)
    return LANES - 1 if same_sector else LANES


@compiled
def access(builder, instruction, opcode, action, events, addresses):
    """Add a load, store, atomic, reduction or copy. A bulk copy of more than 32 lanes gives several events."""
    space, rank = np.int64(opcode.space), builder.rank
    if space == GENERIC:
        space, rank = resolve_space(builder, instruction, addresses)
    slot = memory_slot(builder, instruction, opcode, action)
    event = start_event(builder, instruction, action, events)
    fill_access(event, instruction, opcode, space, slot)
    if space == REMOTE:
        event.cycles = 1 << rank
    lanes = instruction.lanes
    if lanes == active_lanes(np.uint64(instruction.mask)):
        return
    first = np.int64(instruction.base)
    done = lanes_of_event(addresses, first, lanes)
    event.mask = (1 << done) - 1
    while done < lanes:
        more = next_event(builder.section, events)
        more.kind = event.kind
        more.pc = event.pc
        more.count = 0
        fill_access(more, instruction, opcode, space, slot)
        more.base = instruction.base + np.uint64(done)
        taken = lanes_of_event(addresses, first + done, lanes - done)
        more.mask = (1 << taken) - 1
        done += taken


@compiled
def stores_before(builder, events):
    """Give the warp's stores since its last fence a slot. Returns the mask to wait for, 0 without a store."""
    wait = np.uint64(0)
    for k in range(builder.fenced, builder.section.events):
        event = events[k]
        if (event.kind == KIND_STORE or event.kind == KIND_REDUCE) and event.space == GLOBAL:
            event.slot = STORE_SLOT
            wait = slot_bit(STORE_SLOT)
    builder.fenced = builder.section.events
    return wait


@compiled
def effective_action(builder, instruction, opcode, is_last):
    """Action of an instruction. Without active lanes or addresses it only takes an issue slot (COMPUTE)."""
    action = opcode.action
    if action == EXIT:
        return EXIT if is_last else COMPUTE
    if action == COPIES_ARRIVE:
        action = COMMIT
    elif action >= CLUSTER_ARRIVE and not (builder.meets if action <= CLUSTER_WAIT else builder.followed):
        return COMPUTE
    if action == PHASE_INIT or instruction.mask == 0 or (is_memory(action) and instruction.lanes == 0):
        return COMPUTE
    return action


@compiled
def add_instruction(builder, instruction, opcode, is_last, events, addresses):
    """Add one instruction of a warp."""
    action = effective_action(builder, instruction, opcode, is_last)
    idle = instruction.mask == 0 and action == COMPUTE
    if idle:  # no lane reads or writes a register
        instruction.sources = 0
        instruction.dst = -1
    find_waits(builder, instruction, opcode, action)
    if action == FENCE and not builder.noted:
        builder.board.wait |= stores_before(builder, events)
    copies = builder.followed and opcode.action == BULK_COPY and instruction.mask != 0 and instruction.barrier != 0
    if builder.followed and follow(builder, instruction, opcode, action, events, addresses):
        return
    if action in (DEPBAR, WAIT_ALL, FENCE) and builder.board.wait == 0:
        action = COMPUTE
    if copies and (instruction.lanes > 0 or ranks_of_copy(instruction) != 1 << builder.rank):
        slot = memory_slot(builder, instruction, opcode, BULK_COPY) if instruction.lanes > 0 else NO_SLOT
        add_bulk_loads(builder, instruction, slot, events, addresses)
    elif action == COMPUTE:
        compute(builder, instruction, opcode, opcode.pipe, events)
    elif action in (BARRIER, ARRIVE):
        barrier(builder, instruction, action, events)
    elif action in (CLUSTER_ARRIVE, CLUSTER_WAIT):
        meet(builder, instruction, action, events)
    elif is_memory(action):
        access(builder, instruction, opcode, action, events, addresses)
    else:
        start_event(builder, instruction, action, events)
        if action == COMMIT:
            commit_group(builder.board)
    if copies and (ranks_of_copy(instruction) >> builder.rank) & 1 == 1:
        count_copy(builder, instruction, events)


@compiled
def follow(builder, instruction, opcode, action, events, addresses):
    """Add an instruction of a transaction barrier. True if it needs nothing more.

    Own copies that an arrival announces are issued before it, or after it until the warp synchronises again.
    """
    synchronises = action in (BARRIER, ARRIVE, EXIT, WAIT_ALL, CLUSTER_ARRIVE, CLUSTER_WAIT) or action > PHASE_INIT
    if synchronises:
        no_more_copies(builder, instruction, events)
    if builder.failed:
        return True
    if action == WAIT_ALL:
        wait_for_phase(builder, instruction, events)
    elif action in (ARRIVE_ONCE, ARRIVE_COUNT):
        arrive_at_phases(builder, instruction, action, events, addresses)
    elif action == ANNOUNCE:
        announce(builder, instruction, opcode, events)
    elif action == EXPECT:
        compute(builder, instruction, opcode, opcode.pipe, events)
        expect(builder, instruction)
    else:
        return False
    return True


@compiled
def is_left_out(builder, instruction, opcode):
    """True for lines that a writer or tracer added, and for the first of the two lines of a copy in a raw trace."""
    if opcode.action == MARKER:
        return True
    if instruction.noted and instruction.note_slot == HELPER:
        return True
    if opcode.action != ASYNC_COPY or not builder.halve_copies:
        return False
    if builder.half_pc == instruction.pc:
        builder.half_pc = -1
        return False
    end_copy(builder)
    builder.half_pc = instruction.pc
    builder.half_line = instruction.line
    return True


@compiled
def end_copy(builder):
    """Count an LDGSTS of a raw trace whose second line has not come."""
    if builder.half_pc >= 0:
        count_unusual(builder, Unusual.HALF_COPY, builder.half_line)
    builder.half_pc = -1


@compiled
def end_warp(builder, is_empty, last_line, events):
    """Add an EXIT event with count 0 to a warp without EXIT."""
    section = builder.section
    if section.pipes:
        close_section(section, events, builder.board.clock + 1)
    event = next_event(section, events)
    event.kind = KIND_EXIT
    event.count = 0
    count_unusual(builder, Unusual.EMPTY_WARP if is_empty else Unusual.NO_EXIT, last_line)


@compiled
def build_warp(builder, instructions, first, last, line, opcodes, events, addresses):
    """Write the events of instructions [first, last) of one warp. `line` is the line where the warp begins."""
    reset_scoreboard(builder.board)
    builder.section.pipes = 0
    builder.section.last = -1
    builder.half_pc = -1
    builder.fenced = builder.section.events
    builder.announced = -1
    builder.meetings = builder.met = 0
    exited = False
    while last > first and opcodes[instructions[last - 1].opcode].action == MARKER:
        last -= 1
    for k in range(first, last):
        instruction = instructions[k]
        opcode = opcodes[instruction.opcode]
        if is_left_out(builder, instruction, opcode):
            continue
        if instruction.noted and instruction.note_slot == REPEAT and builder.section.events > 0:
            events[builder.section.events - 1].count += 1
            continue
        add_instruction(builder, instruction, opcode, k == last - 1, events, addresses)
        line = instruction.line
        exited = opcode.action == EXIT
    end_copy(builder)
    if builder.followed and last > first:
        end_copies(builder, instructions[last - 1], events)
    if not exited:
        end_warp(builder, first == last, line, events)


@compiled
def build_workgroup(builder, tables, n_warps, n_instructions, opcodes, events, first_event):
    """Write the events of all warps of the workgroup in `tables`, in the order of the file, behind those there are.

    Args:
        builder: BUILDER record.
        tables: tracer.accelsim.instruction.Tables.
        n_warps, n_instructions: number of rows in use.
        opcodes: OPCODE per opcode number.
        events: EVENT, long enough for every instruction, an EXIT per warp and the rows of bulk copies.
        first_event: i8 [n_warps + 1], filled.
    """
    builder.noted = n_instructions > 0 and tables.instructions[0].noted
    for w in range(n_warps):
        warp = tables.warps[w]
        last = tables.warps[w + 1].first if w + 1 < n_warps else n_instructions
        first_event[w] = builder.section.events
        build_warp(builder, tables.instructions, warp.first, last, warp.line, opcodes, events, tables.addresses)
    first_event[n_warps] = builder.section.events
