"""The opcode column. A hash table in the scan record gives every opcode text a number."""

import numpy as np

from tracer.accelsim.instruction import (
    FORM_BULK,
    FORM_GMMA,
    FORM_LOCAL,
    FORM_MARKER,
    FORM_RESULT,
    FORM_SYNCS,
    OPCODE_BYTES_MAX,
    OPCODE_HASH_SLOTS,
    OPCODES_MAX,
    Trouble,
)
from tracer.accelsim.text import begins, skip_blanks, skip_word
from tracer.compile.jit import compiled

LETTER_A, LETTER_Z = ord("A"), ord("Z")
LOWER_FIRST, LOWER_LAST, DOT, UNDERSCORE = ord("a"), ord("z"), ord("."), ord("_")
DIGIT_0, DIGIT_9 = ord("0"), ord("9")
UTMA, UTMAC, UBLK, GMMA, LDL, STL, REPLAY, SYNCS = (
    np.frombuffer(name, np.uint8)
    for name in (b"UTMA", b"UTMAC", b"UBLK", b"GMMA", b"LDL", b"STL", b"REPLAY_", b"SYNCS.")
)
SHFL, ATOM, ATOMG, MATCH, LOP3 = (
    np.frombuffer(name, np.uint8) for name in (b"SHFL", b"ATOM", b"ATOMG", b"MATCH", b"LOP3")
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
def is_name(data, first, end, name):
    return end - first == len(name) and begins(data, first, end, name)


@compiled
def has_late_result(data, first, end):
    """True for names of which the first operand is a predicate or the result, and then the result is the second."""
    return (
        is_name(data, first, end, SHFL)
        or is_name(data, first, end, ATOM)
        or is_name(data, first, end, ATOMG)
        or is_name(data, first, end, MATCH)
        or is_name(data, first, end, LOP3)
    )


@compiled
def opcode_form(data, first, last):
    """A FORM or 0, from the name before the first dot."""
    longer = last - 1  # the name goes on behind these
    if begins(data, first, longer, UTMA) or begins(data, first, longer, UBLK):
        return 0 if begins(data, first, last, UTMAC) else FORM_BULK  # UTMACCTL and UTMACMDFLUSH move no data
    if begins(data, first, longer, REPLAY):
        return FORM_MARKER
    if begins(data, first, longer, SYNCS):
        return FORM_SYNCS
    end = first
    while end < last and data[end] != DOT:
        if begins(data, end, last, GMMA):
            return FORM_GMMA
        end += 1
    if is_name(data, first, end, LDL) or is_name(data, first, end, STL):
        return FORM_LOCAL
    return FORM_RESULT if has_late_result(data, first, end) else 0


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
        known = scan.opcode_text[start : scan.opcode_first[number + 1]]
        if len(known) == length and begins(data, first, pos, known):
            instruction.opcode = number
            return pos
        slot = (slot + 1) % OPCODE_HASH_SLOTS
    if scan.n_opcodes == OPCODES_MAX:
        return TOO_MANY_OPCODES
    instruction.opcode = add_opcode(data, first, pos, scan, slot)
    return pos
