"""The state of the line scanner, the tables that it fills for one workgroup, and its errors."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tracer.accelsim.opcodes import MAX_SOURCES
from tracer.accelsim.unusual import COUNTS

LANES = 32
"""Lanes of a warp."""
NO_REGISTER = -1
NO_VALUE = -1
UNIFORM_BASE = 256
"""Number of UR0; R0 is 0."""
REGISTERS = 512
HELPER, REPEAT = 254, 253
"""Slots in the writer's notes. HELPER: a line that the writer added. REPEAT: one more instruction of the last event."""
WARPS_MAX = 1024
ACCELSIM_SOURCES = 4
"""Most sources of an instruction in Accel-Sim. Its tracer writes up to five."""
OPCODES_MAX = 4096
OPCODE_BYTES_MAX = 128
OPCODE_HASH_SLOTS = 4 * OPCODES_MAX
FORM_GMMA, FORM_BULK, FORM_LOCAL, FORM_MARKER, FORM_SYNCS, FORM_RESULT = 1, 2, 3, 4, 5, 6
"""FORM_RESULT: the result may be the second operand, behind a predicate."""
BULK_LANES_MAX = 1 << 14
"""Most lanes of 16 bytes that one bulk copy moves."""

INSTRUCTION = np.dtype(
    [
        ("line", "i8"),
        ("imm", "i8"),
        ("imm2", "i8"),  # of tracers of 2026; NO_VALUE = an earlier tracer
        ("value", "i8"),  # of the first destination (SYNCS: second source); NO_VALUE = not in the trace
        ("bytes", "i8"),  # TMA: that its barrier is told
        ("barrier", "u4"),  # TMA, SYNCS: address of the transaction barrier, with the rank; 0 = none or several
        ("base", "u8"),  # lane pattern as in traces.schema.EVENT
        ("row_stride", "i8"),
        ("note_wait", "u8"),  # the writer's note: slots to wait for
        ("pc", "u4"),
        ("mask", "u4"),
        ("stride", "i4"),
        ("opcode", "i4"),  # number of the opcode's text
        ("lanes", "i4"),  # addresses given; 0 = no address
        ("dst", "i2"),  # NO_REGISTER = none
        ("src", "i2", MAX_SOURCES),
        ("multicast", "u4"),  # TMA: set of the workgroups that get the data; 0 = those of the barrier
        ("inner", "u1"),
        ("sources", "u1"),
        ("noted", "u1"),  # 1 = the line has the writer's note
        ("note_slot", "u1"),
        ("note_cache", "u1"),
    ],
    align=True,
)
"""One line of the trace."""

WARP = np.dtype([("index", "i8"), ("first", "i8"), ("declared", "i8"), ("line", "i8")])
"""Header of a warp: index in the workgroup, first instruction in the table, declared number of instructions, line."""

SCAN = np.dtype(
    [
        # constants of the file
        ("version", "i8"),
        ("prefix", "i8"),  # words before the program counter on every line
        ("ids", "i8"),  # 1 = the first four of them are block x y z and warp
        ("grid_x", "i8"),
        ("grid_y", "i8"),
        ("grid_z", "i8"),
        ("warps", "i8"),  # of a workgroup, from the size of the block
        # position
        ("pos", "i8"),
        ("line", "i8"),  # lines read so far
        # the workgroup being read
        ("in_block", "i8"),
        ("block", "i8"),  # linear index, -1 = not yet given
        ("block_line", "i8"),
        ("rank", "i8"),  # in its cluster, -1 = not given
        ("open_warp", "i8"),  # 1 = instructions may follow
        ("n_warps", "i8"),
        ("n_instructions", "i8"),
        ("n_addresses", "i8"),
        # opcodes seen
        ("n_opcodes", "i8"),
        ("opcode_bytes", "i8"),
        ("opcode_hash", "i4", OPCODE_HASH_SLOTS),  # opcode number + 1, 0 = free
        ("opcode_first", "i8", OPCODES_MAX + 1),  # first byte of each opcode's text
        ("opcode_text", "u1", OPCODES_MAX * OPCODE_BYTES_MAX),
        ("opcode_form", "u1", OPCODES_MAX),  # FORM_GMMA: an extra column; FORM_BULK: TMA; ...; 0
        # errors and warnings
        ("error", "i8"),
        ("error_line", "i8"),
        ("error_pos", "i8"),  # offset of the line's text in the data
        ("unusual", COUNTS),
        # the line being read
        ("lanes", "u8", BULK_LANES_MAX),  # addresses
    ]
)


class Outcome(IntEnum):
    """Reason why the scanner returned."""

    MORE = 0  # all data read
    WORKGROUP = 1  # a workgroup is complete
    GROW = 2  # a table is nearly full
    ERROR = 3  # see SCAN.error; scanning may continue


class Trouble(IntEnum):
    """Values of SCAN.error."""

    NONE = 0
    NOT_A_LINE = 1
    OUTSIDE_BLOCK = 2
    NO_WARP = 3
    BEGIN_IN_BLOCK = 4
    END_OUTSIDE = 5
    BAD_BLOCK = 6
    BLOCK_OUTSIDE_GRID = 7
    BAD_WARP = 8
    WARP_TOO_HIGH = 9
    WARP_TWICE = 10
    BAD_COUNT = 11
    WRONG_COUNT = 12
    BAD_PREFIX = 13
    BAD_PC = 14
    BAD_MASK = 15
    BAD_REGISTER_COUNT = 16
    BAD_REGISTER = 17
    BAD_OPCODE = 18
    TOO_MANY_OPCODES = 19
    BAD_WIDTH = 20
    BAD_MODE = 21
    BAD_ADDRESS = 22
    TOO_FEW_ADDRESSES = 23
    NO_IMMEDIATE = 24
    BAD_NOTE = 25
    NO_BLOCK = 26
    OTHER_BLOCK = 27
    BULK_BARRIER = 28
    SECOND_BLOCK = 29
    BAD_VALUES = 30
    BULK_MULTICAST = 31
    BULK_BYTES = 32
    BULK_MODE = 33
    BULK_COUNT = 34
    BULK_SIZE = 35


MEANING: dict[Trouble, str] = {
    Trouble.NOT_A_LINE: "neither an instruction nor a block or warp header",
    Trouble.OUTSIDE_BLOCK: "an instruction or warp outside #BEGIN_TB ... #END_TB",
    Trouble.NO_WARP: "an instruction before `warp =` and `insts =`",
    Trouble.BEGIN_IN_BLOCK: "#BEGIN_TB before the previous block's #END_TB",
    Trouble.END_OUTSIDE: "#END_TB without #BEGIN_TB",
    Trouble.BAD_BLOCK: "`thread block =` needs three numbers x,y,z",
    Trouble.BLOCK_OUTSIDE_GRID: "thread block is outside the grid",
    Trouble.BAD_WARP: "`warp =` needs a number",
    Trouble.WARP_TOO_HIGH: "warp number is beyond the block's warps",
    Trouble.WARP_TWICE: "a warp that this block already had",
    Trouble.BAD_COUNT: "`insts =` needs a number, once per warp",
    Trouble.WRONG_COUNT: "the number of instructions of the warp is not that of `insts =`",
    Trouble.BAD_PREFIX: "the words before the program counter are incomplete or no numbers",
    Trouble.BAD_PC: "program counter is no hexadecimal number",
    Trouble.BAD_MASK: "mask is not 8 hexadecimal digits",
    Trouble.BAD_REGISTER_COUNT: "number of registers: allowed 0 to 2 destinations, 0 to 8 sources",
    Trouble.BAD_REGISTER: "not a register: allowed R0-R255, UR0-UR255, P, UP or B with a number",
    Trouble.BAD_OPCODE: "not an opcode",
    Trouble.TOO_MANY_OPCODES: f"more than {OPCODES_MAX} different opcodes",
    Trouble.BAD_WIDTH: "memory width is no number from 0 to 1024",
    Trouble.BAD_MODE: "address mode: allowed 0, 1, 2",
    Trouble.BAD_ADDRESS: "bad or missing address or stride",
    Trouble.TOO_FEW_ADDRESSES: "fewer addresses or deltas than active lanes",
    Trouble.NO_IMMEDIATE: "the line ends before its immediates (tracer 6: two), or lacks an address or delta",
    Trouble.BAD_NOTE: "bad T3 note",
    Trouble.NO_BLOCK: "a warp before `thread block =`",
    Trouble.OTHER_BLOCK: "the line's block or warp is not the one announced",
    Trouble.BULK_BARRIER: "bulk copy: barrier: allowed is an address",
    Trouble.BULK_MULTICAST: "bulk copy: multicast: allowed 0, or 1 and the set of CTAs in hexadecimal",
    Trouble.BULK_BYTES: "bulk copy: bytes and bytes outside: allowed are two decimal numbers",
    Trouble.BULK_MODE: "bulk copy: address mode: allowed 3, 4",
    Trouble.BULK_COUNT: "bulk copy: number of transfers (mode 4: behind a base address): allowed 0 and more",
    Trouble.BULK_SIZE: f"bulk copy: transfers: allowed are up to {BULK_LANES_MAX} pieces of 16 bytes",
    Trouble.BAD_VALUES: "bad register values after `Val`",
    Trouble.SECOND_BLOCK: "a second `thread block =` before the block's #END_TB",
}


class Tables(NamedTuple):
    """Arrays that the scanner fills. `grown` makes larger ones."""

    instructions: np.ndarray  # INSTRUCTION
    warps: np.ndarray  # WARP
    addresses: np.ndarray  # u8, explicit lane addresses


def new_tables() -> Tables:
    """Empty tables."""
    return Tables(np.zeros(1 << 14, INSTRUCTION), np.zeros(WARPS_MAX, WARP), np.zeros(1 << 16, np.uint64))


def grown(tables: Tables) -> Tables:
    """The same tables with twice as many rows for instructions and addresses."""
    return tables._replace(
        instructions=np.concatenate([tables.instructions, np.zeros_like(tables.instructions)]),
        addresses=np.concatenate([tables.addresses, np.zeros_like(tables.addresses)]),
    )
