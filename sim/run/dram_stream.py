"""Request streams for one DRAM channel alone: text lines `R|W|U address [earliest_ns]`, plain, gzip or xz.

R is a read, W a write, U a near-memory update, each of 64 bytes. The address is decimal or 0x-hexadecimal. The request
does not enter before `earliest_ns` (default 0). Empty lines, and text after a `#`, are skipped.
"""

import gzip
import lzma
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tracer.compile.jit import compiled
from traces.bounds import Bound
from traces.errors import UserError

GZIP_MAGIC = b"\x1f\x8b"
XZ_MAGIC = b"\xfd7zXZ\x00"
NEWLINE, CARRIAGE_RETURN, TAB, SPACE, HASH = ord("\n"), ord("\r"), ord("\t"), ord(" "), ord("#")
ZERO, NINE, LOWER_A, LOWER_F, LOWER_X = ord("0"), ord("9"), ord("a"), ord("f"), ord("x")
CASE_BIT = 0x20
LETTERS = (ord("R"), ord("W"), ord("U"))
"""In the order of sim.hw.request.Op: READ, WRITE, UPDATE."""
LIMIT = 1 << 58
"""Numbers must be below this."""
EARLIEST = Bound(0, 10_000_000_000, "10 s; every refresh until then is simulated")
NO_OPERATION, NO_NUMBER, TOO_MUCH = 1, 2, 3


class Stream(NamedTuple):
    """Requests in order: `op` (u1, sim.hw.request.Op), `address` (i8, bytes), `earliest_ns` (i8)."""

    op: np.ndarray
    address: np.ndarray
    earliest_ns: np.ndarray


def read_stream(path: str | Path) -> Stream:
    """The requests of a stream file.

    Raises:
        UserError: file missing or damaged, or a line that is not a request; names file and line.
    """
    try:
        text = Path(path).read_bytes()
        if text.startswith(GZIP_MAGIC):
            text = gzip.decompress(text)
        elif text.startswith(XZ_MAGIC):
            text = lzma.decompress(text)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged compressed file: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    lines = text.count(b"\n") + 1
    stream = Stream(np.zeros(lines, np.uint8), np.zeros(lines, np.int64), np.zeros(lines, np.int64))
    buffer = np.frombuffer(text + b"\n", np.uint8)
    requests, line, fault = _parse(buffer, *stream)
    if fault:
        content = text.split(b"\n")[line - 1][:60].decode(errors="replace").strip()
        wanted = {
            NO_OPERATION: "a request starts with R, W or U",
            NO_NUMBER: "expected `R|W|U address [earliest_ns]`, numbers decimal or 0x-hexadecimal",
            TOO_MUCH: "expected `R|W|U address [earliest_ns]` and nothing after it",
        }[fault]
        raise UserError(f"{path}:{line}: {content!r}: {wanted}")
    if requests == 0:
        raise UserError(f"{path}: no requests (lines `R|W|U address [earliest_ns]`)")
    stream = Stream(*(column[:requests] for column in stream))
    latest = int(stream.earliest_ns.max())
    if not EARLIEST.holds(latest):
        raise UserError(f"{path}: earliest_ns: found {latest}, allowed is {EARLIEST.allowed}")
    return stream


@compiled
def _skip_blanks(text, at):
    while text[at] == SPACE or text[at] == TAB or text[at] == CARRIAGE_RETURN:
        at += 1
    return at


@compiled
def _number(text, at):
    """Returns (value, index after it); the value is -1 if there is no number at `at`."""
    base = 10
    if text[at] == ZERO and (text[at + 1] | CASE_BIT) == LOWER_X:
        base = 16
        at += 2
    value = 0
    start = at
    while True:
        letter = text[at] | CASE_BIT
        if ZERO <= text[at] <= NINE:
            digit = text[at] - ZERO
        elif base == 16 and LOWER_A <= letter <= LOWER_F:
            digit = letter - LOWER_A + 10
        else:
            return (value if at > start else -1), at
        value = value * base + digit
        if value >= LIMIT:
            return -1, at
        at += 1


@compiled
def _parse(text, op, address, earliest_ns):
    """Fill the columns from `text`, which ends with a newline. Returns (requests, line, fault or 0)."""
    count = 0
    line = 0
    at = 0
    while at < text.size:
        line += 1
        at = _skip_blanks(text, at)
        if text[at] != NEWLINE and text[at] != HASH:
            at, fault = _request(text, at, op, address, earliest_ns, count)
            if fault:
                return count, line, fault
            count += 1
        while text[at] != NEWLINE:
            at += 1
        at += 1
    return count, line, 0


@compiled
def _request(text, at, op, address, earliest_ns, place):
    """Read one request into `place`. Returns (index after it, fault or 0)."""
    kind = -1
    for letter in range(3):
        if (text[at] & ~CASE_BIT) == LETTERS[letter]:
            kind = letter
    if kind < 0:
        return at, NO_OPERATION
    op[place] = kind
    at = _skip_blanks(text, at + 1)
    value, at = _number(text, at)
    if value < 0:
        return at, NO_NUMBER
    address[place] = value
    at = _skip_blanks(text, at)
    if text[at] != NEWLINE and text[at] != HASH:
        value, at = _number(text, at)
        if value < 0:
            return at, NO_NUMBER
        earliest_ns[place] = value
        at = _skip_blanks(text, at)
        if text[at] != NEWLINE and text[at] != HASH:
            return at, TOO_MUCH
    return at, 0
