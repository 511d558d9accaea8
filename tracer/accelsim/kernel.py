"""One kernel of an Accel-Sim trace as a KernelSource. It turns text into workgroups of events, one at a time."""

import hashlib
from collections.abc import Callable, Iterator
from itertools import chain, islice
from math import prod
from pathlib import Path

import numpy as np

from tracer.accelsim.assembly import Assembly
from tracer.accelsim.clusters import SINGLE, places, shape_of
from tracer.accelsim.header import Header, parse_header
from tracer.accelsim.instruction import (
    ACCELSIM_SOURCES,
    MEANING,
    SCAN,
    Outcome,
    Tables,
    Trouble,
    grown,
    new_tables,
)
from tracer.accelsim.opcode_book import OpcodeBook
from tracer.accelsim.problems import BadData, Problems, TraceError
from tracer.accelsim.scan import scan_lines
from tracer.accelsim.stream import line_blocks, read_bytes
from tracer.accelsim.tracez import HEADER_BYTES_MAX
from tracer.accelsim.unusual import Unusual
from traces.schema import MAX_CLUSTER
from traces.source import KernelInfo, Workgroup

BLOCKS_KNOWN_MAX = 1 << 30
"""Thread blocks of a grid for which repeated blocks are detected."""
ID_WORDS = 4
"""Words `x y z warp` that tracers before version 3 put on every line."""

NO_CLUSTERS = "its workgroups are taken as single ones"
UNUSUAL = {
    Unusual.EMPTY_WARP: ("empty warp", "a warp has no instructions"),
    Unusual.NO_EXIT: ("no EXIT", "a warp ends without EXIT: taken as ended there"),
    Unusual.EXTRA_COLUMNS: ("extra columns", "columns behind the known ones: ignored"),
    Unusual.GAP_STRIDE: ("gap stride", "a stride for lanes with gaps: from one active lane to the next"),
    Unusual.MANY_SOURCES: (
        "many sources",
        f"an instruction with more than {ACCELSIM_SOURCES} sources, at which Accel-Sim ends: all are read",
    ),
    Unusual.LOST_BASE: (
        "bulk copy",
        "a bulk copy of one transfer, whose address Accel-Sim's tracer does not write: left out",
    ),
    Unusual.NO_TRANSFERS: (
        "bulk copy without transfers",
        "a TMA instruction of width 0, whose transfers earlier tracers do not write: it moves nothing",
    ),
    Unusual.NO_WINDOW: (
        "generic access",
        "a generic access, and the header lacks `shmem base_addr` or `local mem base_addr`: taken as shared memory, as "
        "in Accel-Sim, so its traffic is left out",
    ),
    Unusual.RETURN: ("CRLF", "lines end with carriage returns (CRLF): read without them"),
    Unusual.HALF_COPY: (
        "half copy",
        "LDGSTS of which one line is missing: found one with this program counter, expected two, one after the other",
    ),
}
"""Kind and text of the warning."""
DAMAGE = {Unusual.HALF_COPY}
"""Of these, what is damage."""


class KernelReader:
    """Reads the body of one kernel's text."""

    def __init__(
        self, header: Header, problems: Problems, *, ids: bool, prefix: int, halve_copies: bool = False
    ) -> None:
        """Args:
        ids: True if every line begins with block x y z and warp.
        prefix: words before the program counter on every line.
        halve_copies: True if LDGSTS has two lines, of which the second counts.
        """
        self._header, self._problems = header, problems
        self._scan = np.zeros(1, SCAN)
        scan = self._scan[0]
        scan["version"] = header.version
        scan["ids"] = ids
        scan["prefix"] = prefix
        scan["grid_x"], scan["grid_y"], scan["grid_z"] = header.grid
        scan["warps"] = header.warps
        scan["block"] = -1
        scan["line"] = header.lines
        self._tables = new_tables()
        self._assembly = Assembly(header, problems, self.where, halve_copies=halve_copies)
        self._opcodes = OpcodeBook(header.architecture, problems)
        self._line_of: Callable[[int], int] = int
        self._done = 0
        self._seen = np.zeros((min(header.workgroups, BLOCKS_KNOWN_MAX) + 7) // 8, np.uint8)

    def place_lines(self, lines: np.ndarray) -> None:
        """Set the line numbers in the file of the lines that are read next (0 = a line that is not in the file)."""
        before = int(self._scan[0]["line"])
        self._line_of = lambda line: int(lines[min(max(line - before - 1, 0), len(lines) - 1)])

    def where(self, line: int) -> str:
        return f"{self._header.path}:{self._line_of(line)}"

    def read(self, blocks: Iterator[bytes]) -> Iterator[Workgroup]:
        """Workgroups in the text of `blocks`. Each block of text ends with a newline."""
        for block in self._sound(blocks):
            data = np.frombuffer(block, np.uint8)
            self._scan[0]["pos"] = 0
            while (outcome := scan_lines(data, len(data), self._scan[0], self._tables)) != Outcome.MORE:
                if outcome == Outcome.GROW:
                    self._tables = grown(self._tables)
                elif outcome == Outcome.ERROR:
                    self._damage(block)
                    if self._scan[0]["error"] in (Trouble.BEGIN_IN_BLOCK, Trouble.SECOND_BLOCK):
                        yield from self._finish()
                        self._scan[0]["in_block"] = 1
                        self._scan[0]["block_line"] = self._scan[0]["line"]
                else:
                    yield from self._finish()
        yield from self._end()
        self._report_oddities()

    def read_possible(self, blocks: Iterator[bytes]) -> Iterator[Workgroup]:
        """As `read`. A workgroup that cannot be simulated is damage: it is left out."""
        self._assembly.checks = True
        yield from self.read(blocks)

    def _sound(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """The blocks before bad compressed data. Bad data is reported as damage."""
        try:
            yield from blocks
        except BadData as error:
            self._problems.damage(error.kind, self.where(int(self._scan[0]["line"])), error.reason)

    def close(self) -> Iterator[Workgroup]:
        """Report thread blocks that are missing in the whole text. Yields the workgroups of clusters that miss some."""
        yield from self._assembly.rest(self._opcodes.records)
        missing = self._header.workgroups - self._done
        if missing > 0:
            where = self.where(int(self._scan[0]["line"]))
            text = f"{missing} of {self._header.workgroups} thread blocks are missing: they did nothing"
            self._problems.warn("missing block", where, text)

    def _damage(self, block: bytes) -> None:
        """Raise the scanner's error, or count it if lenient. A block without #END_TB ends there."""
        scan = self._scan[0]
        trouble = Trouble(int(scan["error"]))
        begin = int(scan["error_pos"])
        text = block[begin : block.index(b"\n", begin)].decode(errors="replace").strip()[:80]
        message = MEANING[trouble]
        if trouble == Trouble.WRONG_COUNT:
            warp = self._tables.warps[scan["n_warps"] - 1]
            message += f" ({warp['declared']}): found {scan['n_instructions'] - warp['first']}"
        else:
            message += f": {text!r}"
        self._problems.damage(trouble.name, self.where(int(scan["error_line"])), message)

    def _end(self) -> Iterator[Workgroup]:
        """Report a text that ends inside a block as damage. If lenient, yield the part that was read."""
        scan = self._scan[0]
        if scan["in_block"]:
            begin = self._line_of(int(scan["block_line"]))
            where = self.where(int(scan["line"]))
            self._problems.damage(
                "TRUNCATED", where, f"the file ends inside the thread block that begins in line {begin}"
            )
            yield from self._finish()

    def _finish(self) -> Iterator[Workgroup]:
        """Yield the workgroup in the tables and clear them."""
        scan = self._scan[0]
        index = int(scan["block"])
        where = self.where(int(scan["block_line"]))
        if index < 0:
            self._problems.damage("BAD_BLOCK", where, "a block without `thread block =`")
        elif scan["n_warps"] == 0:
            self._problems.warn("empty block", where, "a thread block without warps: left out")
        elif self._is_new(index, where):
            self._done += 1
            yield from self._take(index, where)
        scan["n_warps"] = scan["n_instructions"] = scan["n_addresses"] = scan["open_warp"] = scan["in_block"] = 0
        scan["block"] = -1

    def _take(self, index: int, where: str) -> Iterator[Workgroup]:
        """Take the workgroup in the tables. Yields what is complete with it."""
        scan, tables = self._scan[0], self._tables
        n_warps, n_instructions = int(scan["n_warps"]), int(scan["n_instructions"])
        if n_warps < self._header.warps:
            text = f"{n_warps} of {self._header.warps} warps: the others did nothing"
            self._problems.warn("missing warp", where, text)
        rank = self._assembly.rank(index)
        if scan["rank"] not in (-1, rank):
            shape = "x".join(map(str, self._header.cluster))
            text = f"cluster rank = {scan['rank']}: by its place in clusters of {shape} it is {rank}, which counts"
            self._problems.warn("cluster rank", where, text)
        self._opcodes.extend(scan, tables, self.where)
        rows = (tables.instructions[:n_instructions], tables.warps[:n_warps], tables.addresses[: scan["n_addresses"]])
        yield from self._assembly.take(index, where, Tables(*rows), self._opcodes.records)

    def _is_new(self, index: int, where: str) -> bool:
        """Record a thread block. A repeated thread block is damage."""
        byte, bit = index >> 3, 1 << (index & 7)
        if byte >= len(self._seen):
            return True  # the grid is too large to record its blocks
        if self._seen[byte] & bit:
            self._problems.damage("BLOCK_TWICE", where, f"thread block {index} comes twice")
            return False
        self._seen[byte] |= bit
        return True

    def _report_oddities(self) -> None:
        """Report counts of unusual things in the text that was read."""
        for counts in (self._assembly.builder.record["unusual"], self._scan[0]["unusual"]):
            for what, (kind, text) in UNUSUAL.items():
                found = counts[what]
                if found["count"]:
                    report = self._problems.damage if what in DAMAGE else self._problems.warn
                    report(kind, self.where(int(found["line"])), text, int(found["count"]))
                    found["count"] = 0


def split_header(path: Path, blocks: Iterator[bytes]) -> tuple[list[str], bytes]:
    """Header lines, and the text that was read after them, beginning with the first # line.

    Raises:
        TraceError: the first HEADER_BYTES_MAX bytes have no line that begins with #.
    """
    text = b""
    for block in blocks:
        text += block
        begin = 0 if text.startswith(b"#") else text.find(b"\n#") + 1
        if begin or text.startswith(b"#"):
            lines = text[:begin].decode(errors="replace").split("\n")[:-1]
            return lines, text[begin:]
        if len(text) > HEADER_BYTES_MAX:
            break
    raise TraceError(f"{path}:1: no `#traces format` or #BEGIN_TB line: not an Accel-Sim trace, or its header only")


def body_blocks(path: Path, problems: Problems) -> Iterator[bytes]:
    """Text of a trace file, beginning with the first # line, in blocks of whole lines."""
    blocks = read_bytes(path)
    _, first = split_header(path, blocks)
    yield from line_blocks(path, chain([first], blocks), problems)


class AccelsimKernel:
    """The trace file of one kernel (a KernelSource): grouped (.traceg, .traceg.xz, .tracez) or raw."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self._path, self._problems = path, problems
        blocks = read_bytes(path)
        lines, text = split_header(path, blocks)
        self.header = parse_header(path, lines, problems)
        self._find_clusters(chain([text], blocks))
        self.info: KernelInfo = self.header.info()

    def _find_clusters(self, text: Iterator[bytes]) -> None:
        """Find the clusters of the grid. text: behind the header."""
        try:
            shape = shape_of(self.header.grid, places(text))
        except BadData:
            shape = SINGLE  # reported when the workgroups are read
        if shape is None:
            self._problems.warn("clusters", str(self._path), f"the size of its clusters cannot be told: {NO_CLUSTERS}")
        elif prod(shape) > MAX_CLUSTER:
            found = f"found clusters of {prod(shape)} workgroups, allowed are 1 to {MAX_CLUSTER}"
            self._problems.warn("clusters", str(self._path), f"{found}: {NO_CLUSTERS}")
        self.header.cluster = shape if shape and prod(shape) <= MAX_CLUSTER else SINGLE

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups in the order of the file, clusters whole, from number `start` on. Earlier ones are read for their
        warnings."""
        yield from islice(self._all_workgroups(), start, None)

    def _all_workgroups(self) -> Iterator[Workgroup]:
        header = self.header
        ids = header.version < 3
        prefix = ID_WORDS * ids + header.lineinfo
        reader = KernelReader(header, self._problems, ids=ids, prefix=prefix)
        yield from reader.read_possible(body_blocks(self._path, self._problems))
        yield from reader.close()

    def fingerprint(self) -> str:
        """SHA-256 of the file's bytes."""
        return file_digest(self._path)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
