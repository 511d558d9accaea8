"""One instruction line of a trace: columns to an INSTRUCTION record.

    [x y z warp] [line] PC mask ndst [Rd] OPCODE nsrc [Rs ...] width [mode address ...] [imm [imm2]] [extra ...]

Every function returns the position after what it read, or minus the Trouble that it met.
"""

import numpy as np

from tracer.accelsim.instruction import (
    BULK_LANES_MAX,
    FORM_BULK,
    FORM_GMMA,
    NO_REGISTER,
    OPCODE_BYTES_MAX,
    OPCODE_HASH_SLOTS,
    OPCODES_MAX,
    UNIFORM_BASE,
    Trouble,
)
from tracer.accelsim.lanes import find_pattern
from tracer.accelsim.text import read_after, read_decimal, read_hex, read_immediate, skip_blanks, skip_word
from tracer.coalesce import active_lanes
from tracer.jit import kernel
from traces.schema import EXPLICIT, NO_SLOT, PLAIN_STRIDE

LETTER_R, LETTER_U, LETTER_P, LETTER_B = ord("R"), ord("U"), ord("P"), ord("B")
LETTER_G, LETTER_M, LETTER_A, LETTER_Z = ord("G"), ord("M"), ord("A"), ord("Z")
LOWER_FIRST, LOWER_LAST, DOT, UNDERSCORE = ord("a"), ord("z"), ord("."), ord("_")
DIGIT_0, DIGIT_9 = ord("0"), ord("9")
MASK_DIGITS = 8
REGISTER_MAX = 255
UNIFORM_ZERO = 63
WIDTH_MAX = 1024
BULK_LANE_BYTES = 16
LIST, STRIDE, DELTA, BULK_LIST, BULK_DELTA = 0, 1, 2, 3, 4
IMMEDIATE_VERSION = 5
NOTE = np.frombuffer(b"T3", np.uint8)
UTMA, UBLK = np.frombuffer(b"UTMA", np.uint8), np.frombuffer(b"UBLK", np.uint8)

BAD_PREFIX, BAD_PC, BAD_MASK = -int(Trouble.BAD_PREFIX), -int(Trouble.BAD_PC), -int(Trouble.BAD_MASK)
BAD_REGISTER_COUNT, BAD_REGISTER = -int(Trouble.BAD_REGISTER_COUNT), -int(Trouble.BAD_REGISTER)
BAD_OPCODE, TOO_MANY_OPCODES = -int(Trouble.BAD_OPCODE), -int(Trouble.TOO_MANY_OPCODES)
BAD_WIDTH, BAD_MODE, BAD_ADDRESS = -int(Trouble.BAD_WIDTH), -int(Trouble.BAD_MODE), -int(Trouble.BAD_ADDRESS)
TOO_FEW_ADDRESSES, NO_IMMEDIATE = -int(Trouble.TOO_FEW_ADDRESSES), -int(Trouble.NO_IMMEDIATE)
BAD_NOTE, BAD_BULK, OTHER_BLOCK = -int(Trouble.BAD_NOTE), -int(Trouble.BAD_BULK), -int(Trouble.OTHER_BLOCK)


@kernel
def read_prefix(data, pos, end, scan, warp_index):
    """Words before the program counter; the first four must name the block and warp announced."""
    words = scan.prefix
    if scan.ids:
        x, pos = read_decimal(data, pos, end)
        y, z, w = 0, 0, 0
        if pos >= 0:
            y, pos = read_decimal(data, pos, end)
        if pos >= 0:
            z, pos = read_decimal(data, pos, end)
        if pos >= 0:
            w, pos = read_decimal(data, pos, end)
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


@kernel
def read_register(data, pos, end):
    """(register number or NO_REGISTER, position or BAD_REGISTER): R7, UR4; R255 and predicates are none."""
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
    if pos < end and (data[pos] == ord("T") or data[pos] == LETTER_Z):  # PT, RZ
        return NO_REGISTER, pos + 1
    number, after = read_decimal(data, pos, end)
    if after < 0 or number < 0 or number > REGISTER_MAX or data[pos] < DIGIT_0:
        return 0, BAD_REGISTER
    if not tracked or number == zero:
        return NO_REGISTER, after
    return base + number, after


@kernel
def read_registers(data, pos, end, instruction, is_source):
    """A count and as many registers, into `src` or (the first of them) `dst`."""
    count, pos = read_decimal(data, pos, end)
    limit = len(instruction.src) if is_source else 2
    if pos < 0 or count < 0 or count > limit:
        return BAD_REGISTER_COUNT
    if is_source:
        instruction.sources = count
    else:
        instruction.dst = NO_REGISTER
    for k in range(count):
        register, pos = read_register(data, pos, end)
        if pos < 0:
            return pos
        if is_source:
            instruction.src[k] = register
        elif k == 0:
            instruction.dst = register
    return pos


@kernel
def is_opcode_byte(byte):
    return (
        LETTER_A <= byte <= LETTER_Z
        or DIGIT_0 <= byte <= DIGIT_9
        or byte in (DOT, UNDERSCORE)
        or LOWER_FIRST <= byte <= LOWER_LAST
    )


@kernel
def same_text(data, first, length, text, start):
    k = 0
    while k < length and data[first + k] == text[start + k]:
        k += 1
    return k == length


@kernel
def opcode_form(data, first, last):
    """FORM_GMMA, FORM_BULK or 0 by the name before the first dot."""
    if last - first >= 4 and (same_text(data, first, 4, UTMA, 0) or same_text(data, first, 4, UBLK, 0)):
        return FORM_BULK
    pos = first
    while pos + 3 < last and data[pos] != DOT:
        if (
            data[pos] == LETTER_G
            and data[pos + 1] == LETTER_M
            and data[pos + 2] == LETTER_M
            and data[pos + 3] == LETTER_A
        ):
            return FORM_GMMA
        pos += 1
    return 0


@kernel
def add_opcode(data, first, last, scan, slot):
    """Give the text data[first:last] the next opcode number."""
    number = scan.n_opcodes
    start = scan.opcode_bytes
    for k in range(last - first):
        scan.opcode_text[start + k] = data[first + k]
    scan.opcode_bytes = start + last - first
    scan.n_opcodes = number + 1
    scan.opcode_first[number + 1] = scan.opcode_bytes
    scan.opcode_form[number] = opcode_form(data, first, last)
    scan.opcode_hash[slot] = number + 1
    return number


@kernel
def read_opcode(data, pos, end, instruction, scan):
    """The opcode's text to its number."""
    pos = skip_blanks(data, pos, end)
    first = pos
    value = 5381
    while pos < end and is_opcode_byte(data[pos]):
        value = (value * 33 + data[pos]) & 0x7FFFFFFF
        pos += 1
    length = pos - first
    ended = pos >= end or skip_word(data, pos, end) == pos
    if length == 0 or length > OPCODE_BYTES_MAX or not ended or not LETTER_A <= data[first] <= LETTER_Z:
        return BAD_OPCODE
    slot = value % OPCODE_HASH_SLOTS
    while scan.opcode_hash[slot] != 0:
        number = scan.opcode_hash[slot] - 1
        start = scan.opcode_first[number]
        if scan.opcode_first[number + 1] - start == length and same_text(data, first, length, scan.opcode_text, start):
            instruction.opcode = number
            return pos
        slot = (slot + 1) % OPCODE_HASH_SLOTS
    if scan.n_opcodes == OPCODES_MAX:
        return TOO_MANY_OPCODES
    instruction.opcode = add_opcode(data, first, pos, scan, slot)
    return pos


@kernel
def store_pattern(instruction, n, scan):
    """Pattern of the first n scratch lanes. The scanner stores those of an explicit list and sets its base."""
    inner, stride, row_stride = find_pattern(scan.lanes, n)
    instruction.inner = inner
    instruction.stride = stride
    instruction.row_stride = row_stride
    instruction.lanes = n
    instruction.base = scan.lanes[0]


@kernel
def is_contiguous(mask):
    """True if the active lanes follow each other."""
    low = np.int64(mask) & 0xFFFFFFFF
    if low == 0:
        return True
    while low & 1 == 0:
        low >>= 1
    return low & (low + 1) == 0


@kernel
def read_stride(data, pos, end, instruction, n, scan):
    """Base and stride."""
    base, pos = read_hex(data, pos, end)
    if pos < 0:
        return BAD_ADDRESS
    stride, pos = read_decimal(data, pos, end)
    if pos < 0 or stride >= 1 << 31 or stride < -(1 << 31):
        return BAD_ADDRESS
    instruction.base = np.uint64(base)
    instruction.stride = stride if n > 1 else 0
    instruction.row_stride = 0
    instruction.inner = PLAIN_STRIDE
    instruction.lanes = n
    if n > 1 and stride != 0 and not is_contiguous(instruction.mask):
        if scan.gap_strides == 0:
            scan.gap_strides_line = scan.line
        scan.gap_strides += 1
    return pos


@kernel
def read_list(data, pos, end, instruction, n, scan):
    """One address per active lane."""
    for k in range(n):
        address, pos = read_hex(data, pos, end)
        if pos < 0:
            return TOO_FEW_ADDRESSES
        scan.lanes[k] = np.uint64(address)
    store_pattern(instruction, n, scan)
    return pos


@kernel
def read_deltas(data, pos, end, instruction, n, scan):
    """Base, then for each further active lane the difference from the one before."""
    base, pos = read_hex(data, pos, end)
    if pos < 0:
        return BAD_ADDRESS
    scan.lanes[0] = np.uint64(base)
    for k in range(1, n):
        delta, pos = read_decimal(data, pos, end)
        if pos < 0:
            return TOO_FEW_ADDRESSES
        scan.lanes[k] = scan.lanes[k - 1] + np.uint64(delta)
    store_pattern(instruction, n, scan)
    return pos


@kernel
def read_addresses(data, pos, end, instruction, scan):
    """Memory width, and where it is not zero the lanes' addresses."""
    width, pos = read_decimal(data, pos, end)
    if pos < 0 or width < 0 or width > WIDTH_MAX:
        return BAD_WIDTH
    instruction.lanes = 0
    if width == 0:
        return pos
    mode, pos = read_decimal(data, pos, end)
    if pos < 0:
        return BAD_MODE
    n = active_lanes(np.uint64(instruction.mask))
    if mode == STRIDE:
        return read_stride(data, pos, end, instruction, n, scan)
    if mode == DELTA:
        return read_deltas(data, pos, end, instruction, n, scan)
    if mode == LIST:
        return read_list(data, pos, end, instruction, n, scan)
    return BAD_MODE


@kernel
def add_bulk_row(instruction, address, row_bytes, scan):
    """One row of a bulk copy as lanes of 16 bytes."""
    for offset in range(0, row_bytes, BULK_LANE_BYTES):
        scan.lanes[instruction.lanes] = address + np.uint64(offset)
        instruction.lanes += 1


@kernel
def read_bulk(data, pos, end, instruction, scan):
    """Columns of a bulk copy (tracer 6): width, barrier, multicast [CTAs], bytes, bytes outside, mode, addresses."""
    width, pos = read_decimal(data, pos, end)
    if pos < 0:
        return BAD_WIDTH
    instruction.lanes = 0
    if width == 0:
        return pos
    _, pos = read_hex(data, pos, end)
    multicast, total, outside, mode = 0, 0, 0, 0
    if pos >= 0:
        multicast, pos = read_decimal(data, pos, end)
    if pos >= 0 and multicast:
        _, pos = read_hex(data, pos, end)
    if pos >= 0:
        total, pos = read_decimal(data, pos, end)
    if pos >= 0:
        outside, pos = read_decimal(data, pos, end)
    if pos >= 0:
        mode, pos = read_decimal(data, pos, end)
    if pos < 0 or (mode != BULK_LIST and mode != BULK_DELTA) or total < 0 or outside < 0:
        return BAD_BULK
    address, count = 0, 0
    if mode == BULK_DELTA:
        address, pos = read_hex(data, pos, end)
    if pos >= 0:
        count, pos = read_decimal(data, pos, end)
    if pos < 0 or count < 0 or count > BULK_LANES_MAX:
        return BAD_BULK
    row_bytes = max(total // max(count, 1), 1)
    if count * ((row_bytes + BULK_LANE_BYTES - 1) // BULK_LANE_BYTES) > BULK_LANES_MAX:
        return BAD_BULK
    instruction.inner = EXPLICIT
    for k in range(count):
        if mode == BULK_LIST:
            address, pos = read_hex(data, pos, end)
        elif k > 0:
            delta, pos = read_decimal(data, pos, end)
            address += delta
        if pos < 0:
            return TOO_FEW_ADDRESSES
        add_bulk_row(instruction, np.uint64(address), row_bytes, scan)
    return pos


@kernel
def read_note(data, pos, end, instruction):
    """`T3 slot wait cache`, which the writer adds where registers cannot say it."""
    slot, pos = read_decimal(data, pos, end)
    wait, cache = 0, 0
    if pos >= 0:
        wait, pos = read_hex(data, pos, end)
    if pos >= 0:
        cache, pos = read_decimal(data, pos, end)
    if pos < 0 or slot < 0 or slot > NO_SLOT or cache < 0 or cache > 3:
        return BAD_NOTE
    instruction.noted = 1
    instruction.note_slot = slot
    instruction.note_wait = np.uint64(wait)
    instruction.note_cache = cache
    return pos


@kernel
def read_tail(data, pos, end, instruction, scan):
    """Immediate (from version 5 on) and whatever extensions follow it."""
    instruction.imm = 0
    instruction.noted = 0
    if scan.version >= IMMEDIATE_VERSION:
        instruction.imm, pos = read_immediate(data, pos, end)
        if pos < 0:
            return NO_IMMEDIATE
    pos = skip_blanks(data, pos, end)
    if pos >= end or scan.version > IMMEDIATE_VERSION:
        return pos
    note = read_after(data, pos, end, NOTE)
    if note >= 0:
        return read_note(data, note, end, instruction)
    if scan.extra_columns == 0:
        scan.extra_columns_line = scan.line
    scan.extra_columns += 1
    return pos


@kernel
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
    pos = read_registers(data, after, end, instruction, False)
    if pos < 0:
        return pos
    pos = read_opcode(data, pos, end, instruction, scan)
    if pos < 0:
        return pos
    pos = read_registers(data, pos, end, instruction, True)
    if pos < 0:
        return pos
    form = scan.opcode_form[instruction.opcode]
    if form == FORM_GMMA and scan.version > IMMEDIATE_VERSION:
        _, pos = read_decimal(data, pos, end)
        if pos < 0:
            return BAD_WIDTH
    if form == FORM_BULK:
        pos = read_bulk(data, pos, end, instruction, scan)
    else:
        pos = read_addresses(data, pos, end, instruction, scan)
    if pos < 0:
        return pos
    return read_tail(data, pos, end, instruction, scan)
