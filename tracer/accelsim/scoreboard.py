"""Turn registers into scoreboard slots: find the pending loads that an instruction waits for.

Every load that writes registers takes a slot. An instruction that reads or overwrites one of these registers waits for
the slot and frees it. A load takes the lowest free slot. So slots depend only on the order of loads and waits, not on
register names: an exported trace with other registers gives the same slots when it is imported. If all slots are
pending, the event waits for the oldest slot and takes it. The copies of one LDGSTS group share a slot.

Instructions of fixed latency take no slot. The scoreboard keeps the time at which each register is ready.
"""

import numpy as np

from tracer.accelsim.instruction import NO_REGISTER, REGISTERS
from tracer.compile.jit import compiled
from traces.schema import NO_SLOT, SLOTS

SCOREBOARD = np.dtype(
    [
        ("register_slot", "u1", REGISTERS),  # slot of the last load into the register
        ("register_stamp", "u4", REGISTERS),  # and the number of that use of the slot
        ("ready", "i8", REGISTERS),  # clock at which a fixed-latency result is ready
        ("busy", "u1", SLOTS),  # 1 = may be pending
        ("stamp", "u4", SLOTS),  # uses of the slot so far
        ("age", "i8", SLOTS),  # value of `taken` when the slot was taken
        ("group", "i8", SLOTS),  # number of the committed copy group, -1 = none
        ("taken", "i8"),  # slots taken so far
        ("open_slot", "i8"),  # slot of the copy group being filled, -1 = none
        ("committed", "i8"),  # groups closed so far
        ("clock", "i8"),  # issue of the last instruction, if memory takes no time
        ("earliest", "i8"),  # first clock at which the current instruction can issue
        ("wait", "u8"),  # slots that the current instruction waits for
    ],
    align=True,
)
NO_BITS, ONE = np.uint64(0), np.uint64(1)


@compiled
def reset_scoreboard(board):
    """Reset the scoreboard at the start of a warp."""
    board.register_slot[:] = NO_SLOT
    board.register_stamp[:] = 0
    board.ready[:] = 0
    board.busy[:] = 0
    board.stamp[:] = 0
    board.group[:] = -1
    board.taken = 0
    board.open_slot = -1
    board.committed = 0
    board.clock = -1
    board.earliest = 0
    board.wait = NO_BITS


@compiled
def slot_bit(slot):
    return ONE << np.uint64(slot)


@compiled
def wait_for_register(board, register):
    """Add the slot of the register's pending load, if there is one, to the wait mask."""
    slot = board.register_slot[register]
    if slot != NO_SLOT and board.busy[slot] and board.register_stamp[register] == board.stamp[slot]:
        board.wait |= slot_bit(slot)


@compiled
def collect_waits(board, instruction, opcode):
    """Find wait mask and earliest issue of an instruction from the registers that it reads and writes."""
    board.wait = NO_BITS
    board.earliest = board.clock + 1
    for k in range(instruction.sources):
        first = instruction.src[k]
        if first != NO_REGISTER:
            for register in range(first, min(first + opcode.src_regs[k], REGISTERS)):
                wait_for_register(board, register)
                board.earliest = max(board.earliest, board.ready[register])
    if instruction.dst != NO_REGISTER:
        for register in range(instruction.dst, min(instruction.dst + opcode.dst_regs, REGISTERS)):
            wait_for_register(board, register)


@compiled
def wait_for_groups(board, latest):
    """Add all committed copy groups except the `latest` newest ones to the wait mask."""
    for slot in range(SLOTS):
        if board.busy[slot] and 0 <= board.group[slot] < board.committed - latest:
            board.wait |= slot_bit(slot)


@compiled
def free_waited(board):
    """Free the slots of the wait mask. They are empty when the instruction issues."""
    if board.wait == NO_BITS:
        return
    for slot in range(SLOTS):
        if board.wait & slot_bit(slot):
            board.busy[slot] = 0
            board.group[slot] = -1
            if board.open_slot == slot:
                board.open_slot = -1


@compiled
def oldest_slot(board):
    """The slot taken longest ago, except the slot of the open copy group."""
    oldest = -1
    for slot in range(SLOTS):
        if slot != board.open_slot and (oldest < 0 or board.age[slot] < board.age[oldest]):
            oldest = slot
    return oldest


@compiled
def take_slot(board):
    """Take a slot for the current instruction. The slots that it waits for must be free already."""
    slot = 0
    while slot < SLOTS and board.busy[slot]:
        slot += 1
    if slot == SLOTS:
        slot = oldest_slot(board)
        board.wait |= slot_bit(slot)
    board.busy[slot] = 1
    board.stamp[slot] += 1
    board.group[slot] = -1
    board.age[slot] = board.taken
    board.taken += 1
    return slot


@compiled
def take_load_slot(board, instruction, opcode):
    """Take a slot for a load and store it for its destination registers. NO_SLOT without a destination."""
    if instruction.dst == NO_REGISTER:
        return NO_SLOT
    slot = take_slot(board)
    for register in range(instruction.dst, min(instruction.dst + opcode.dst_regs, REGISTERS)):
        board.register_slot[register] = slot
        board.register_stamp[register] = board.stamp[slot]
        board.ready[register] = 0
    return slot


@compiled
def take_copy_slot(board):
    """The slot of the open copy group. Opens a group if there is none."""
    if board.open_slot < 0:
        board.open_slot = take_slot(board)
    return board.open_slot


@compiled
def commit_group(board):
    """Close the open copy group, which may be empty."""
    if board.open_slot >= 0:
        board.group[board.open_slot] = board.committed
    board.open_slot = -1
    board.committed += 1


@compiled
def write_result(board, instruction, opcode):
    """Store when the results of a fixed-latency instruction, issued at board.clock, are ready."""
    if instruction.dst == NO_REGISTER:
        return
    for register in range(instruction.dst, min(instruction.dst + opcode.dst_regs, REGISTERS)):
        board.ready[register] = board.clock + opcode.latency
