"""The opcode column. A hash table in the scan record gives every opcode text a number."""

import numpy as np

from tracer.accelsim.instruction import (
    FORM_BULK,
    FORM_GMMA,
    FORM_LOCAL,
    FORM_MARKER,
    FORM_SYNCS,
    OPCODE_BYTES_MAX,
    OPCODE_HASH_SLOTS,
    OPCODES_MAX,
    Trouble,
)
from tracer.accelsim.text import skip_blanks, skip_word
from tracer.compile.jit import compiled

LETTER_G, LETTER_M, LETTER_A, LETTER_Z = ord("G"), ord("M"), ord("A"), ord("Z")
LOWER_FIRST, LOWER_LAST, DOT, UNDERSCORE = ord("a"), ord("z"), ord("."), ord("_")
DIGIT_0, DIGIT_9 = ord("0"), ord("9")
UTMA, UTMAC, UBLK, LDL, STL, REPLAY, SYNCS = (
    np.frombuffer(name, np.uint8) for name in (b"UTMA", b"UTMAC", b"UBLK", b"LDL", b"STL", b"REPLAY_", b"SYNCS.")
)
BAD_OPCODE, TOO_MANY_OPCODES = -int(Trouble.BAD_OPCODE), -int(Trouble.TOO_MANY_OPCODES)


@compiled
def is_opcode_byte(byte):
    return (
        LETTER_A <= byte <= LETTER_Z
        or DIGIT_0 <= byte <= DIGIT_9
        or byte in (DOT, UNDERSCORE)
        or LOWER_FIRST <= byte <= LOWER_LAST
    )


@compiled
def same_text(data, first, length, text, start):
    k = 0
    while k < length and data[first + k] == text[start + k]:
        k += 1
    return k == length


@compiled
def opcode_form(data, first, last):
    """A FORM or 0, from the name before the first dot."""
    if last - first > 4 and (same_text(data, first, 4, UTMA, 0) or same_text(data, first, 4, UBLK, 0)):
        return 0 if same_text(data, first, 5, UTMAC, 0) else FORM_BULK  # UTMACCTL and UTMACMDFLUSH move no data
    if last - first > len(REPLAY) and same_text(data, first, len(REPLAY), REPLAY, 0):
        return FORM_MARKER
    if last - first > len(SYNCS) and same_text(data, first, len(SYNCS), SYNCS, 0):
        return FORM_SYNCS
    short = last - first == 3 or (last - first > 3 and data[first + 3] == DOT)
    if short and (same_text(data, first, 3, LDL, 0) or same_text(data, first, 3, STL, 0)):
        return FORM_LOCAL
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


@compiled
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


@compiled
def read_opcode(data, pos, end, instruction, scan):
    """Read the opcode's text and store its number."""
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
