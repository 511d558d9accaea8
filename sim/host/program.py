"""Programs that workgroups share: many a kernel's workgroups do the same at other addresses.

A workgroup runs the events of another one if they differ in their addresses only, and these by one *shift* for each
array (A, B and C of a GEMM). Which events belong together is not known beforehand: it shows when two workgroups are
laid side by side, and shows more with each that does not fit. Results are the same whether programs are shared or
not; a machine full of GEMM workgroups then reads 300 KB of events instead of 60 MB.
"""

from enum import IntEnum

import numpy as np

from sim.hw.cu_record import ARRAYS
from tracer.compile.jit import compiled
from traces.schema import EVENT, Kind, Space

assert EVENT.fields is not None
WORDS = EVENT.itemsize // 8
BASE_WORD = EVENT.fields["base"][1] // 8
ARRAY_SHIFT = np.uint64(8 * EVENT.fields["array"][1])
"""The array's number is the last byte of an event's first word, kind and space are its first two."""
assert EVENT.fields["array"][1] == 7 and EVENT.fields["kind"][1] == 0 and EVENT.fields["space"][1] == 1
WITHOUT_ARRAY = np.uint64((1 << 56) - 1)
KIND_AND_SPACE = np.uint64((1 << 16) - 1)


class Match(IntEnum):
    """How a workgroup's events compare with a program."""

    OTHER = 0  # they do something else
    SAME = 1
    SPLIT = 2  # the same, but events that the program counts to one array have moved differently


def words_of(events: np.ndarray) -> np.ndarray:
    """EVENT [n] as u8 [n, WORDS], a view."""
    return events.view(np.uint64).reshape(-1, WORDS)


@compiled(inline=True)
def _moves(word):
    """Has the event an address in memory?"""
    bits = np.int64(word & KIND_AND_SPACE)
    return bits & 255 <= Kind.ASYNC_COPY and bits >> 8 != Space.SHARED


@compiled
def match(words, program, shift_bytes):
    """Compare a workgroup with a program.

    Args:
        words, program: u8 [n, WORDS] of equally many events.
        shift_bytes: i8 [ARRAYS], receives how far each array of the program has moved.

    Returns:
        A Match.
    """
    known = 0
    for e in range(len(words)):
        if (words[e, 0] ^ program[e, 0]) & WITHOUT_ARRAY != 0:
            return Match.OTHER
        for k in range(1, WORDS):
            if k != BASE_WORD and words[e, k] != program[e, k]:
                return Match.OTHER
        moved_bytes = np.int64(words[e, BASE_WORD] - program[e, BASE_WORD])
        if not _moves(program[e, 0]):
            if moved_bytes != 0:
                return Match.OTHER
            continue
        array = np.int64(program[e, 0] >> ARRAY_SHIFT)
        if (known >> array) & 1 == 0:
            known |= 1 << array
            shift_bytes[array] = moved_bytes
        elif shift_bytes[array] != moved_bytes:
            return Match.SPLIT
    return Match.SAME


@compiled(allocates=True)
def split(words, program):
    """Number the arrays of `words` so that all events of one have moved alike against `program`, and were one there.

    Returns:
        False if that takes more than ARRAYS; then all are array 0.
    """
    before, moved = np.zeros(ARRAYS, np.int64), np.zeros(ARRAYS, np.int64)
    arrays = 0
    for e in range(len(words)):
        if not _moves(words[e, 0]):
            continue
        old = np.int64(program[e, 0] >> ARRAY_SHIFT)
        moved_bytes = np.int64(words[e, BASE_WORD] - program[e, BASE_WORD])
        array = 0
        while array < arrays and (before[array] != old or moved[array] != moved_bytes):
            array += 1
        if array == ARRAYS:
            for k in range(e):
                words[k, 0] &= WITHOUT_ARRAY
            return False
        if array == arrays:
            before[array], moved[array] = old, moved_bytes
            arrays += 1
        words[e, 0] = (words[e, 0] & WITHOUT_ARRAY) | (np.uint64(array) << ARRAY_SHIFT)
    return True
