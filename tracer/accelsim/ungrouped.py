"""Raw tracer output (`kernel-N.trace`). The lines of all warps are mixed; this file groups them by block and warp.

The file may be far larger than memory. So its lines are first distributed to temporary files by ranges of thread
blocks. Each temporary file is small enough to sort in memory. Then one temporary file after the other is grouped and
read like a .traceg in which every line repeats block and warp. The tracer writes two lines for each LDGSTS (shared and
global address). The second one counts, as in Accel-Sim's post-processing.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import IO

import numpy as np

from tracer.accelsim.clusters import axes
from tracer.accelsim.header import Header
from tracer.accelsim.kernel import ID_WORDS, AccelsimKernel, KernelReader, body_blocks
from tracer.accelsim.problems import BadData, TraceError
from tracer.accelsim.text import RETURN, find_line_end, read_place, skip_blanks
from tracer.compile.jit import compiled
from traces.source import Workgroup

BUCKET_BYTES = 1 << 25
"""Approximate size of the text that is sorted in memory at one time."""
BUCKETS_MAX = 256
KEY = np.dtype([("block", "i8"), ("warp", "i8"), ("first", "i8"), ("last", "i8"), ("line", "i8")])
MASK_DIGITS = 8
HASH = ord("#")


@compiled
def find_keys(data, end, line, grid_x, grid_y, grid_z, keys):
    """Block, warp and extent of each line that begins with the four numbers x y z warp.

    Returns:
        (lines with a key, number of the last line, number of the first wrong line or -1). Blank lines and remarks are
        not wrong.
    """
    pos, found, bad = 0, 0, -1
    while pos < end:
        newline = find_line_end(data, pos)
        line += 1
        x, y, z, warp, after = read_place(data, pos, newline)
        if after >= 0 and 0 <= x < grid_x and 0 <= y < grid_y and 0 <= z < grid_z and warp >= 0:
            key = keys[found]
            key.block = x + grid_x * (y + grid_y * z)
            key.warp = warp
            key.first = pos
            key.last = newline + 1
            key.line = line
            found += 1
        elif bad < 0 and skip_blanks(data, pos, newline) < newline and data[pos] not in (RETURN, HASH):
            bad = line
        pos = newline + 1
    return found, line, bad


def _temporary(stack: ExitStack) -> IO[bytes]:
    return stack.enter_context(tempfile.TemporaryFile())


def prefix_words(line: bytes, lineinfo: int) -> int:
    """Number of words before the program counter, from the place of the mask (8 hexadecimal digits) in a line."""
    words = line.split()
    for position in range(ID_WORDS + lineinfo + 1, len(words)):
        if len(words[position]) == MASK_DIGITS and all(byte in b"0123456789abcdefABCDEF" for byte in words[position]):
            return position - 1
    return ID_WORDS + lineinfo


class UngroupedKernel(AccelsimKernel):
    """A raw .trace or .trace.xz file (a KernelSource), grouped bucket by bucket."""

    def _find_clusters(self, text: Iterator[bytes]) -> None:
        """Raw lines are not searched for clusters: all workgroups are single ones."""

    def _all_workgroups(self) -> Iterator[Workgroup]:
        """Workgroups in the order of the grid."""
        with ExitStack() as stack:
            buckets, line = self._distribute(body_blocks(self._path, self._problems), stack)
            yield from self._read(buckets, line)

    def _distribute(self, blocks: Iterator[bytes], stack: ExitStack) -> tuple[list[tuple[IO[bytes], IO[bytes]]], int]:
        """Distribute lines to temporary files by thread block: (buckets, number of the last line).

        Each bucket has a file of text and a file of keys.
        """
        header = self.header
        text_bytes = self._path.stat().st_size * (20 if self._path.suffix == ".xz" else 1)
        count = int(np.clip(text_bytes // BUCKET_BYTES + 1, 1, min(BUCKETS_MAX, header.workgroups)))
        files: list[tuple[IO[bytes], IO[bytes]]] = [(_temporary(stack), _temporary(stack)) for _ in range(count)]
        line = header.lines
        try:
            for block in blocks:
                line = self._distribute_block(block, line, files)
        except BadData as error:
            self._problems.damage(error.kind, f"{self._path}:{line}", error.reason)
        return files, line

    def _distribute_block(self, block: bytes, line: int, files: list[tuple[IO[bytes], IO[bytes]]]) -> int:
        """Distribute one block of text that begins after line number `line`. Returns the number of the last line."""
        data = np.frombuffer(block, np.uint8)
        keys = np.zeros(block.count(b"\n"), KEY)
        found, line, bad = find_keys(data, len(data), line, *self.header.grid, keys)
        if bad >= 0:
            self._problems.damage(
                "NOT_A_LINE", f"{self._path}:{bad}", "a raw trace line begins with block x y z (in the grid) and warp"
            )
        keys = keys[:found]
        bucket = keys["block"] * len(files) // self.header.workgroups
        for number in np.unique(bucket):
            chosen = keys[bucket == number]
            text, index = files[number]
            text.write(b"".join(block[key["first"] : key["last"]] for key in chosen))
            index.write(chosen.tobytes())
        return line

    def _read(self, buckets: list[tuple[IO[bytes], IO[bytes]]], last_line: int) -> Iterator[Workgroup]:
        """Workgroups in the buckets. last_line: number of the last line of the file."""
        reader: KernelReader | None = None
        for text_file, key_file in buckets:
            text_file.seek(0)
            key_file.seek(0)
            text, keys = text_file.read(), np.frombuffer(key_file.read(), KEY)
            if not len(keys):
                continue
            if reader is None:
                words = prefix_words(text[: text.index(b"\n")], self.header.lineinfo)
                reader = KernelReader(self.header, self._problems, ids=True, prefix=words, halve_copies=True)
            for grouped, lines in group(text, keys, self.header):
                reader.place_lines(lines)
                yield from reader.read_possible(iter([grouped]))
        if reader is None:
            raise TraceError(f"{self._path}: no instruction lines")
        reader.place_lines(np.array([last_line]))
        yield from reader.close()


def group(text: bytes, keys: np.ndarray, header: Header) -> Iterator[tuple[bytes, np.ndarray]]:
    """Grouped text of a bucket, one thread block at a time, and for each of its lines the line in the raw file.

    Args:
        text: lines of the bucket in the order of the raw file.
        keys: KEY of each line.
    """
    ends = np.cumsum(keys["last"] - keys["first"])
    begins = ends - (keys["last"] - keys["first"])
    order = np.lexsort((keys["line"], keys["warp"], keys["block"]))
    blocks = keys["block"][order]
    edges = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(order)]
    for first, last in pairwise(edges):
        chosen = order[first:last]
        yield _block_text(text, keys[chosen], begins[chosen].tolist(), ends[chosen].tolist(), header)


def _block_text(
    text: bytes, keys: np.ndarray, begins: list[int], ends: list[int], header: Header
) -> tuple[bytes, np.ndarray]:
    """Text and line numbers of one thread block. `keys` are sorted by warp.

    An added line has the number of the raw line after it; the last added line has 0.
    """
    block = int(keys["block"][0])
    raw_lines = keys["line"].tolist()
    parts = [b"#BEGIN_TB\nthread block = %d,%d,%d\n" % axes(header.grid, block)]
    lines = [raw_lines[0]] * 2
    edges = [0, *(np.flatnonzero(np.diff(keys["warp"])) + 1).tolist(), len(keys)]
    for first, last in pairwise(edges):
        parts.append(b"warp = %d\ninsts = %d\n" % (keys["warp"][first], last - first))
        parts += [text[begins[k] : ends[k]] for k in range(first, last)]
        lines += [raw_lines[first]] * 2 + raw_lines[first:last]
    parts.append(b"#END_TB\n")
    return b"".join(parts), np.array([*lines, 0])
