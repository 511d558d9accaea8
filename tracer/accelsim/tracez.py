"""The binary container of Accel-Sim 2.0 (`.tracez`), as the text of a .traceg.

Accel-Sim's post-processing writes this container unless `--text` is given. All numbers are little-endian:

    header text, 0 byte | u32 bytes of the dictionary, u32 unused | dictionary (zstd)
    each warp:  u32 instructions, u32 chunks | each chunk: u32 bytes, zstd frame of that size
    the index:  u32 thread blocks | each block: u32 x y z, 3 x cluster, 3 x place in the cluster, rank, warps
                                  | each warp: u32 instructions, u32 chunks, u64 offset, u32 instructions of each chunk
    u64 offset of the index

A chunk is lines of text without a newline at its end. The text here is that of Accel-Sim's traceDsm, with the same
numbers of lines. Source: accel-sim-framework, tracez_format.h and post-traces-processing.cpp of August 2026.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import zstandard

from tracer.accelsim.problems import BadData

HEADER_BYTES_MAX = 1 << 16
"""Longest header of a trace."""
WINDOW_BYTES = 1 << 27
"""Memory that a frame may ask for. Accel-Sim's level of compression needs 2 MB."""
TAKE_BYTES_MAX = 1 << 25
"""Most bytes of a dictionary, a chunk or a warp of the index. Accel-Sim's have some kilobytes."""
NUMBER, PAIR, OFFSET = struct.Struct("<I"), struct.Struct("<II"), struct.Struct("<Q")
BLOCK = struct.Struct("<11I")
WARP = struct.Struct("<IIQ")


class _Place:
    """A place in the file, from which numbers and bytes are read in order. `taken`: bytes read so far."""

    def __init__(self, path: Path, file: IO[bytes], offset: int, end: int) -> None:
        """end: no byte from there on may be read."""
        self._path, self._file, self.offset, self.end = path, file, offset, end
        self.taken = 0

    def bad(self, reason: str) -> BadData:
        """The error of a damaged container."""
        return BadData(self._path, "tracez", reason)

    def take(self, size: int, what: str) -> bytes:
        """The next `size` bytes."""
        if size > TAKE_BYTES_MAX:
            raise self.bad(f"{what} at byte {self.offset} has {size} bytes, allowed are up to {TAKE_BYTES_MAX}")
        if self.offset + size > self.end:
            raise self.bad(f"{what} at byte {self.offset} ends beyond byte {self.end}")
        self._file.seek(self.offset)
        self.offset += size
        self.taken += size
        return self._file.read(size)

    def numbers(self, form: struct.Struct, what: str) -> tuple[int, ...]:
        return form.unpack(self.take(form.size, what))


def tracez_text(path: Path, piece_bytes: int) -> Iterator[bytes]:
    """The text of a .tracez file in pieces of at least `piece_bytes`, but the last.

    Raises:
        BadData: the container is damaged. The text before the damage has been yielded.
    """
    held, held_bytes = [], 0
    try:
        for part in _parts(path, piece_bytes):
            held.append(part)
            held_bytes += len(part)
            if held_bytes >= piece_bytes:
                yield b"".join(held)
                held, held_bytes = [], 0
    except BadData:
        yield b"".join(held)
        raise
    yield b"".join(held)


def _parts(path: Path, piece_bytes: int) -> Iterator[bytes]:
    """The text in parts of any size."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEADER_BYTES_MAX)
        text, zero, _ = head.partition(b"\0")
        if not zero:
            raise BadData(path, "tracez", "no 0 byte behind the header")
        yield text
        place = _Place(path, file, len(text) + 1, size)
        dictionary_bytes, _ = place.numbers(PAIR, "the size of the dictionary")
        words = place.take(dictionary_bytes, "the dictionary")
        dictionary = zstandard.ZstdCompressionDict(words) if words else None
        try:
            unpacker = zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=WINDOW_BYTES)
        except zstandard.ZstdError as error:
            raise place.bad(f"the dictionary at byte {place.offset - dictionary_bytes}: {error}") from error
        (first,) = _Place(path, file, max(size - 8, place.offset), size).numbers(OFFSET, "the last number")
        index, data = _Place(path, file, first, size - 8), _Place(path, file, place.offset, first)
        yield from _blocks(index, data, unpacker, piece_bytes)
        if index.offset != index.end:
            raise index.bad(f"the index at byte {first} ends at byte {index.offset}, expected {index.end}")
        if data.taken != first - place.offset:
            raise index.bad(f"the warps of the index have {data.taken} bytes, expected {first - place.offset}")


def _blocks(index: _Place, data: _Place, unpacker: zstandard.ZstdDecompressor, piece_bytes: int) -> Iterator[bytes]:
    """The thread blocks of the index."""
    (blocks,) = index.numbers(NUMBER, "the index")
    for _ in range(blocks):
        x, y, z, *cluster, rank, warps = index.numbers(BLOCK, "a thread block of the index")
        yield b"\n#BEGIN_TB\n\nthread block = %d,%d,%d\n" % (x, y, z)
        yield b"cluster id = %d,%d,%d\ncluster cta = %d,%d,%d\ncluster rank = %d\n" % (*cluster, rank)
        for warp in range(warps):
            yield b"\nwarp = %d\n" % warp
            yield from _warp(index, data, unpacker, piece_bytes)
        yield b"\n#END_TB\n"


def _warp(index: _Place, data: _Place, unpacker: zstandard.ZstdDecompressor, piece_bytes: int) -> Iterator[bytes]:
    """The instructions of the next warp of the index. The data say the same numbers again."""
    instructions, chunks, data.offset = index.numbers(WARP, "a warp of the index")
    counts = index.take(4 * chunks, "a warp of the index")
    yield b"insts = %d\n" % instructions
    again = data.numbers(PAIR, "a warp")
    if again != (instructions, chunks):
        found = f"has {again[0]} instructions in {again[1]} chunks"
        raise data.bad(f"the warp at byte {data.offset - 8} {found}, in the index {instructions} in {chunks}")
    total = sum(count for (count,) in NUMBER.iter_unpack(counts))
    if total != instructions:
        place = index.offset - len(counts) - WARP.size
        raise index.bad(f"the warp at byte {place} of the index has {instructions} instructions, its chunks {total}")
    for _ in range(chunks):
        yield from _chunk(data, unpacker, piece_bytes)


def _chunk(data: _Place, unpacker: zstandard.ZstdDecompressor, piece_bytes: int) -> Iterator[bytes]:
    """The lines of one chunk."""
    (size,) = data.numbers(NUMBER, "a chunk")
    offset = data.offset
    frame = data.take(size, "a chunk")
    done = 0
    try:
        expected = zstandard.frame_content_size(frame)
        for piece in unpacker.read_to_iter(frame, write_size=piece_bytes):
            done += len(piece)
            yield piece
    except zstandard.ZstdError as error:
        raise data.bad(f"the chunk at byte {offset}: {error}") from error
    if done != expected:
        raise data.bad(f"the chunk at byte {offset} has {done} bytes of text, announced are {expected}")
    yield b"\n"
