"""Read numbers and words in a line of bytes. A read function returns (value, next position); -1 = not found.

Numbers can be read one after the other and checked once: a read from position -1 finds nothing.
"""

from tracer.compile.jit import compiled

BLANK, TAB, NEWLINE, RETURN = 32, 9, 10, 13
ZERO, NINE, LOWER_A, LOWER_F, UPPER_A, UPPER_F, LOWER_X, MINUS = 48, 57, 97, 102, 65, 70, 120, 45
DECIMAL_MAX = (1 << 63) // 10 - 1
HEX_DIGITS_MAX = 16


@compiled
def skip_blanks(data, pos, end):
    """Position of the next byte that is no blank and no tab; `end` if there is none."""
    while pos < end and (data[pos] == BLANK or data[pos] == TAB):
        pos += 1
    return pos


@compiled
def find_line_end(data, pos):
    """Position of the next newline. The data ends with a newline."""
    while data[pos] != NEWLINE:
        pos += 1
    return pos


@compiled
def skip_word(data, pos, end):
    """Position after the word that begins at `pos`."""
    while pos < end and data[pos] != BLANK and data[pos] != TAB:
        pos += 1
    return pos


@compiled
def at_word_end(data, pos, end):
    return pos >= end or data[pos] == BLANK or data[pos] == TAB


@compiled
def hex_digit(byte):
    """Value of a hexadecimal digit, -1 for any other byte."""
    if ZERO <= byte <= NINE:
        return byte - ZERO
    if LOWER_A <= byte <= LOWER_F:
        return byte - LOWER_A + 10
    if UPPER_A <= byte <= UPPER_F:
        return byte - UPPER_A + 10
    return -1


@compiled
def read_hex(data, pos, end):
    """Read a hexadecimal number of up to 16 digits, with or without 0x, as int64 (the same 64 bits)."""
    if pos < 0:
        return 0, -1
    pos = skip_blanks(data, pos, end)
    if pos + 1 < end and data[pos] == ZERO and data[pos + 1] == LOWER_X:
        pos += 2
    first = pos
    value = 0
    while pos < end:
        digit = hex_digit(data[pos])
        if digit < 0:
            break
        value = (value << 4) | digit
        pos += 1
    if pos == first or pos - first > HEX_DIGITS_MAX or not at_word_end(data, pos, end):
        return 0, -1
    return value, pos


@compiled
def read_address(data, pos, end):
    """Read a hexadecimal number that begins with 0x, as `read_hex`."""
    if pos < 0:
        return 0, -1
    pos = skip_blanks(data, pos, end)
    if pos + 1 >= end or data[pos] != ZERO or data[pos + 1] != LOWER_X:
        return 0, -1
    return read_hex(data, pos, end)


@compiled
def read_decimal(data, pos, end):
    """Read a signed decimal number with an absolute value below 2^63 / 10."""
    value, pos, whole = _read_digits(data, pos, end)
    return (value, pos) if whole else (0, -1)


@compiled
def read_immediate(data, pos, end):
    """Read a signed decimal number of any size. Large numbers saturate (only small ones have a meaning)."""
    value, pos, _ = _read_digits(data, pos, end)
    return value, pos


@compiled
def numbers_ahead(data, pos, end):
    """How many decimal numbers follow before the end or another word."""
    count = 0
    while True:
        _, pos, _ = _read_digits(data, pos, end)
        if pos < 0:
            return count
        count += 1


@compiled
def read_place(data, pos, end):
    """Read the four decimal numbers x y z warp. The position is -1 if there are fewer."""
    x, pos = read_decimal(data, pos, end)
    y, pos = read_decimal(data, pos, end)
    z, pos = read_decimal(data, pos, end)
    warp, pos = read_decimal(data, pos, end)
    return x, y, z, warp, pos


@compiled
def _read_digits(data, pos, end):
    """(number, position after it or -1, True if the number did not saturate)."""
    if pos < 0:
        return 0, -1, False
    pos = skip_blanks(data, pos, end)
    negative = pos < end and data[pos] == MINUS
    if negative:
        pos += 1
    first, value, whole = pos, 0, True
    while pos < end and ZERO <= data[pos] <= NINE:
        if value <= DECIMAL_MAX:
            value = value * 10 + (data[pos] - ZERO)
        else:
            whole = False
        pos += 1
    if pos == first or not at_word_end(data, pos, end):
        return 0, -1, False
    return (-value if negative else value), pos, whole


@compiled
def begins(data, pos, end, word):
    """True if data[pos:end] begins with `word` (bytes)."""
    same = 0
    while same < len(word) and pos + same < end and data[pos + same] == word[same]:
        same += 1
    return same == len(word)


@compiled
def read_after(data, pos, end, word):
    """Position after `word` (bytes) and the blanks that follow it, -1 if the text at `pos` does not begin with it."""
    return skip_blanks(data, pos + len(word), end) if begins(data, pos, end, word) else -1
