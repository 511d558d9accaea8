"""Read the columns of one instruction line into an INSTRUCTION record.

    [x y z warp] [line] PC mask ndst [Rd] OPCODE nsrc [Rs ...] width [mode address ...] [imm [imm2]] [values] [extra]

Every function returns the position after the text that it read, or the negative number of a Trouble.
"""

import numpy as np

from tracer.accelsim.address_columns import read_addresses, read_bulk
from tracer.accelsim.instruction import (
    ACCELSIM_SOURCES,
    FORM_BULK,
    FORM_GMMA,
    FORM_LOCAL,
    FORM_MARKER,
    FORM_RESULT,
    FORM_SYNCS,
    LANES,
    NO_REGISTER,
    NO_VALUE,
    REPEAT,
    UNIFORM_BASE,
    Trouble,
)
from tracer.accelsim.local import spread_lanes
from tracer.accelsim.opcode_column import read_opcode
from tracer.accelsim.text import (
    numbers_ahead,
    read_after,
    read_decimal,
    read_hex,
    read_immediate,
    read_place,
    skip_blanks,
    skip_word,
)
from tracer.accelsim.unusual import Unusual, count_unusual
from tracer.compile.jit import compiled
from traces.schema import NO_SLOT, PLAIN_STRIDE, SLOTS, Cache

LETTER_R, LETTER_U, LETTER_P, LETTER_B, LETTER_T, LETTER_Z = (ord(letter) for letter in "RUPBTZ")
DIGIT_0 = ord("0")
MASK_DIGITS = 8
REGISTER_MAX = 255
UNIFORM_ZERO = 63
IMMEDIATE_VERSION = 5
CACHE_MAX = int(max(Cache))
NOTE_BYTES = 32
"""Longest note."""
NOTE, VALUES = np.frombuffer(b"T3", np.uint8), np.frombuffer(b"Val ", np.uint8)

BAD_PREFIX, BAD_PC, BAD_MASK = -int(Trouble.BAD_PREFIX), -int(Trouble.BAD_PC), -int(Trouble.BAD_MASK)
BAD_REGISTER_COUNT, BAD_REGISTER = -int(Trouble.BAD_REGISTER_COUNT), -int(Trouble.BAD_REGISTER)
NO_IMMEDIATE = -int(Trouble.NO_IMMEDIATE)
BAD_NOTE, OTHER_BLOCK, BAD_VALUES = -int(Trouble.BAD_NOTE), -int(Trouble.OTHER_BLOCK), -int(Trouble.BAD_VALUES)


@compiled
def read_prefix(data, pos, end, scan, warp_index):
    """Read the words before the program counter. With ids, the first four must name the current block and warp."""
    words = scan.prefix
    if scan.ids:
        x, y, z, w, pos = read_place(data, pos, end)
        if pos < 0:
            return BAD_PREFIX
        if x + scan.grid_x * (y + scan.grid_y * z) != scan.block or w != warp_index:
            return OTHER_BLOCK
        words -= 4
    for _ in range(words):
        pos = skip_blanks(data, pos, end)
        first = pos
        pos = skip_word(data, pos, end)
        if pos == first:
            return BAD_PREFIX
    return pos


@compiled
def read_register(data, pos, end):
    """Read R7 or UR4: (register number, position or BAD_REGISTER). R255 and predicates give NO_REGISTER."""
    pos = skip_blanks(data, pos, end)
    base, zero = 0, REGISTER_MAX
    tracked = True
    if pos < end and data[pos] == LETTER_U:
        pos += 1
        base, zero = UNIFORM_BASE, UNIFORM_ZERO
    if pos >= end:
        return 0, BAD_REGISTER
    if data[pos] == LETTER_P or data[pos] == LETTER_B:
        tracked = False
    elif data[pos] != LETTER_R:
        return 0, BAD_REGISTER
    pos += 1
    if pos < end and (data[pos] == LETTER_T or data[pos] == LETTER_Z):  # PT, RZ
        return NO_REGISTER, pos + 1
    number, after = read_decimal(data, pos, end)
    if after < 0 or number < 0 or number > REGISTER_MAX or data[pos] < DIGIT_0:
        return 0, BAD_REGISTER
    if not tracked or number == zero:
        return NO_REGISTER, after
    return base + number, after


@compiled
def read_registers(data, pos, end, instruction, scan, is_source):
    """Read a count and that number of registers into `src`, or the first of them that is no predicate into `dst`."""
    count, pos = read_decimal(data, pos, end)
    limit = len(instruction.src) if is_source else 2
    if pos < 0 or count < 0 or count > limit:
        return BAD_REGISTER_COUNT
    if is_source:
        instruction.sources = count
        if count > ACCELSIM_SOURCES:
            count_unusual(scan, Unusual.MANY_SOURCES, scan.line)
    else:
        instruction.dst = NO_REGISTER
    for k in range(count):
        register, pos = read_register(data, pos, end)
        if pos < 0:
            return pos
        if is_source:
            instruction.src[k] = register
        elif instruction.dst == NO_REGISTER:
            instruction.dst = register
    return pos


@compiled
def take_result(instruction):
    """Make the first source the destination. Tracers before 6 have a destination only if it is the first operand."""
    instruction.dst = instruction.src[0]
    instruction.sources -= 1
    for k in range(instruction.sources):
        instruction.src[k] = instruction.src[k + 1]


@compiled
def read_note(data, pos, end, instruction):
    """Read a note `T3 slot wait cache`. The writer adds it if registers cannot express the event, last in the line."""
    slot, pos = read_decimal(data, pos, end)
    wait, pos = read_hex(data, pos, end)
    cache, pos = read_decimal(data, pos, end)
    known = 0 <= slot < SLOTS or REPEAT <= slot <= NO_SLOT
    if pos < 0 or not known or cache < 0 or cache > CACHE_MAX:
        return BAD_NOTE
    instruction.noted = 1
    instruction.note_slot = slot
    instruction.note_wait = np.uint64(wait)
    instruction.note_cache = cache
    return pos


@compiled
def find_note(data, pos, end):
    """Position behind the beginning of a note between pos and end, -1 if there is none."""
    while pos < end and data[pos] != LETTER_T:
        pos += 1
    return read_after(data, pos, end, NOTE)


@compiled
def first_lane(mask):
    """Number of the first active lane; 0 if there is none."""
    lane = 0
    while lane < LANES - 1 and (mask >> lane) & 1 == 0:
        lane += 1
    return lane if mask else 0


@compiled
def read_values(data, pos, end, instruction, wanted, registers):
    """Read what tracer 6 writes at the end: `Val n hex*n ...` or `NoVal`.

    `Val` gives values of all registers, destinations first: one for all lanes (n = 1), or of each lane. Of register
    `wanted` (from 0), the first active lane's is kept.
    """
    pos = read_after(data, skip_blanks(data, pos, end), end, VALUES)
    if pos < 0 or wanted >= registers:
        return end
    for register in range(wanted + 1):
        count, pos = read_decimal(data, pos, end)
        if pos < 0 or count < 1 or count > LANES:
            return BAD_VALUES
        chosen = first_lane(np.int64(instruction.mask)) if count > 1 else 0
        for lane in range(count):
            value, pos = read_hex(data, pos, end)
            if pos < 0:
                return BAD_VALUES
            if register == wanted and lane == chosen:
                instruction.value = value & 0xFFFFFFFF
    return end


@compiled
def read_tail(data, pos, end, instruction, scan, wanted, registers):
    """Read the immediates (version 5 and later; tracers of 2026 write two) and the columns after them."""
    instruction.imm = 0
    instruction.imm2 = instruction.value = NO_VALUE
    instruction.noted = 0
    if scan.version >= IMMEDIATE_VERSION:
        instruction.imm, pos = read_immediate(data, pos, end)
        if pos < 0:
            return NO_IMMEDIATE
        second, after = read_immediate(data, pos, end)
        if after >= 0:
            instruction.imm2, pos = max(second, 0), after
        elif scan.version > IMMEDIATE_VERSION and skip_blanks(data, pos, end) < end:
            return NO_IMMEDIATE  # values follow: one of the columns before them is missing
    if scan.version > IMMEDIATE_VERSION:
        after = read_values(data, pos, end, instruction, wanted, registers)
        note = find_note(data, max(pos, end - NOTE_BYTES), end)
        return read_note(data, note, end, instruction) if after >= 0 and note >= 0 else after
    pos = skip_blanks(data, pos, end)
    if pos >= end:
        return pos
    note = read_after(data, pos, end, NOTE)
    if note >= 0:
        return read_note(data, note, end, instruction)
    count_unusual(scan, Unusual.EXTRA_COLUMNS, scan.line)
    return pos


@compiled
def read_instruction(data, pos, end, instruction, scan, warp_index):
    """Fill `instruction` from the line data[pos:end]."""
    pos = read_prefix(data, pos, end, scan, warp_index)
    if pos < 0:
        return pos
    pc, pos = read_hex(data, pos, end)
    if pos < 0:
        return BAD_PC
    pos = skip_blanks(data, pos, end)
    mask, after = read_hex(data, pos, end)
    if after < 0 or after - pos != MASK_DIGITS:
        return BAD_MASK
    instruction.pc = pc & 0xFFFFFFFF
    instruction.mask = mask
    instruction.line = scan.line
    destinations, _ = read_decimal(data, after, end)
    pos = read_registers(data, after, end, instruction, scan, False)
    if pos < 0:
        return pos
    pos = read_opcode(data, pos, end, instruction, scan)
    if pos < 0:
        return pos
    form = scan.opcode_form[instruction.opcode]
    if form == FORM_MARKER:  # its other columns mean nothing
        instruction.noted = instruction.lanes = 0
        return end
    pos = read_registers(data, pos, end, instruction, scan, True)
    if pos < 0:
        return pos
    if form == FORM_RESULT and destinations == 0 and instruction.sources > 0:
        take_result(instruction)
    if (
        form == FORM_GMMA and numbers_ahead(data, pos, end) > 2
    ):  # tracers of 2026 put a flag before width and immediates
        _, pos = read_decimal(data, pos, end)
    if form == FORM_BULK:
        pos = read_bulk(data, pos, end, instruction, scan)
    else:
        width_at = pos
        pos = read_addresses(data, pos, end, instruction, scan)
        if form == FORM_LOCAL and pos >= 0:
            width, _ = read_decimal(data, width_at, end)
            spread_lanes(instruction, width, scan, warp_index)
        instruction.barrier = instruction.multicast = 0
        one_address = instruction.inner == PLAIN_STRIDE and instruction.stride == 0
        if form == FORM_SYNCS and instruction.lanes > 0 and one_address:
            instruction.barrier = instruction.base & np.uint64(0xFFFFFFFF)
    if pos < 0:
        return pos
    if form == FORM_SYNCS:
        return read_tail(data, pos, end, instruction, scan, destinations + 1, destinations + instruction.sources)
    return read_tail(data, pos, end, instruction, scan, 0, destinations)
