"""Programs that workgroups share: in many kernels all workgroups do the same at different addresses.

A workgroup uses the events of another workgroup if only the addresses differ, and if they differ by one *shift* per
array (A, B and C of a GEMM). The array of an event is not known at first. It follows from the comparison of two
workgroups; each workgroup that does not match refines it. Results are the same with and without sharing. With sharing
a machine full of GEMM workgroups reads 300 KB of events instead of 60 MB.
"""

from enum import IntEnum

import numpy as np

from sim.hw.cu_record import ARRAYS
from tracer.compile.jit import compiled
from traces.schema import EVENT, Bulk, Kind, Space

assert EVENT.fields is not None
WORDS = EVENT.itemsize // 8
BASE_WORD = EVENT.fields["base"][1] // 8
ARRAY_SHIFT = np.uint64(8 * EVENT.fields["array"][1])
"""Bits of an event's first word. The array's number is the last byte; kind and space are the first two bytes."""
assert EVENT.fields["array"][1] == 7 and EVENT.fields["kind"][1] == 0 and EVENT.fields["space"][1] == 1
WITHOUT_ARRAY = np.uint64((1 << 56) - 1)
KIND_AND_SPACE = np.uint64((1 << 16) - 1)


class Match(IntEnum):
    """Result of the comparison of a workgroup's events with a program."""

    OTHER = 0  # different events
    SAME = 1
    SPLIT = 2  # the same, but events of one array of the program have different shifts


def words_of(events: np.ndarray) -> np.ndarray:
    """EVENT [n] as u8 [n, WORDS], a view."""
    return events.view(np.uint64).reshape(-1, WORDS)


@compiled(inline=True)
def _moves(word):
    """Has the event an address of global memory?"""
    bits = np.int64(word & KIND_AND_SPACE)
    kind, space = bits & 255, bits >> 8
    return (kind <= Kind.ASYNC_COPY and space < Space.SHARED) or (kind == Kind.BULK and space != Bulk.SEND)


@compiled
def match(words, program, shift_bytes):
    """Compare a workgroup with a program.

    Args:
        words, program: u8 [n, WORDS], the same number of events.
        shift_bytes: i8 [ARRAYS], output: the shift of each array against the program.

    Returns:
        A Match.

    Reads: words, program. Writes: shift_bytes.
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
    """Number the arrays of `words`: all events of an array have the same shift and the same array of `program`.

    Returns:
        False if this needs more than ARRAYS arrays; then all events are of array 0.

    Reads: program. Writes: words.
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
