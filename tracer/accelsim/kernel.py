"""One kernel of an Accel-Sim trace as a KernelSource: text in, workgroups of events out, one at a time."""

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from tracer.accelsim.header import Header, parse_header
from tracer.accelsim.instruction import (
    MEANING,
    SCAN,
    Outcome,
    Trouble,
    grown,
    new_tables,
)
from tracer.accelsim.opcodes import OPCODE, Opcode, classify, fill_record
from tracer.accelsim.problems import Problems, TraceError
from tracer.accelsim.scan import scan_lines
from tracer.accelsim.stream import line_blocks, read_bytes
from tracer.accelsim.warp import BUILDER, build_workgroup
from traces.schema import EVENT
from traces.source import KernelInfo, Workgroup

HEADER_BYTES_MAX = 1 << 16
ID_WORDS = 4
"""Words `x y z warp` that tracers before version 3 put on every line."""

classify_once = lru_cache(maxsize=1 << 14)(classify)


class OpcodeBook:
    """Effects of the opcodes met so far, as records by opcode number."""

    def __init__(self, path: Path, architecture: int, problems: Problems) -> None:
        self._path, self._architecture, self._problems = path, architecture, problems
        self.records = np.zeros(0, OPCODE)

    def extend(self, scan: np.void) -> np.ndarray:
        """Classify the opcodes that the scanner has met since."""
        count = int(scan["n_opcodes"])
        known = len(self.records)
        if count == known:
            return self.records
        new = np.zeros(count, OPCODE)
        new[:known] = self.records
        for number in range(known, count):
            text = bytes(scan["opcode_text"][scan["opcode_first"][number] : scan["opcode_first"][number + 1]]).decode()
            opcode: Opcode = classify_once(text)
            fill_record(new[number], opcode, self._architecture)
            if not opcode.known:
                self._problems.warn(
                    f"opcode {text.split('.')[0]}", str(self._path), f"unknown opcode {text}, taken as ALU work"
                )
        self.records = new
        return new


class KernelReader:
    """Reads the body of one kernel's text."""

    def __init__(self, header: Header, problems: Problems, *, ids: bool, prefix: int, halve_copies: bool) -> None:
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
        self._builder = np.zeros(1, BUILDER)
        self._builder[0]["shared_base"] = header.shared_base
        self._builder[0]["local_base"] = header.local_base
        self._builder[0]["halve_copies"] = halve_copies
        self._tables = new_tables()
        self._opcodes = OpcodeBook(header.path, header.architecture, problems)
        self._line_of: Callable[[int], int] = int
        self._next = 0

    def place_lines(self, line_of: Callable[[int], int]) -> None:
        """Let errors name line_of(line) instead of the line read."""
        self._line_of = line_of

    def where(self, line: int) -> str:
        return f"{self._header.path}:{self._line_of(line)}"

    def workgroups(self, blocks: Iterator[bytes], start: int) -> Iterator[Workgroup]:
        """Workgroups in the text of `blocks` (each ends with a newline), from the `start`-th on."""
        done = 0
        for block in blocks:
            data = np.frombuffer(block, np.uint8)
            self._scan[0]["pos"] = 0
            while (outcome := scan_lines(data, len(data), self._scan[0], self._tables)) != Outcome.MORE:
                if outcome == Outcome.GROW:
                    self._tables = grown(self._tables)
                elif outcome == Outcome.ERROR:
                    self._damage(block)
                else:
                    if done >= start:
                        yield from self._finish()
                    done += 1
                    self._clear()
        yield from self._end(done >= start)
        self._report()

    def _damage(self, block: bytes) -> None:
        """Raise for the scanner's error, or count it; a block without its #END_TB ends there."""
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

    def _clear(self) -> None:
        scan = self._scan[0]
        scan["n_warps"] = scan["n_instructions"] = scan["n_addresses"] = scan["open_warp"] = scan["in_block"] = 0
        scan["block"] = -1

    def _end(self, wanted: bool) -> Iterator[Workgroup]:
        """End of the file inside a block: damage; what was read of the block counts when lenient."""
        scan = self._scan[0]
        if not scan["in_block"]:
            return
        self._problems.damage(
            "TRUNCATED", self.where(int(scan["line"])),
            f"the file ends inside a thread block (that of line {self._line_of(int(scan['block_line']))})",
        )  # fmt: skip
        if wanted and scan["n_warps"]:
            yield from self._finish()
        self._clear()

    def _finish(self) -> Iterator[Workgroup]:
        """The workgroup in the tables."""
        scan, tables = self._scan[0], self._tables
        n_warps, n_instructions = int(scan["n_warps"]), int(scan["n_instructions"])
        where = self.where(int(scan["block_line"]))
        if scan["block"] < 0:
            self._problems.damage("BAD_BLOCK", where, "a block without `thread block =`")
            return
        index = int(scan["block"])
        self._check_order(index, where)
        self._check_warps(n_warps, where)
        records = self._opcodes.extend(scan)
        n_addresses = int(scan["n_addresses"])
        events = np.empty(n_instructions + n_warps + n_addresses // 32 + 1, EVENT)
        first_event = np.zeros(n_warps + 1, np.int64)
        count = build_workgroup(self._builder[0], tables, n_warps, n_instructions, records, events, first_event)
        yield Workgroup(
            index=index,
            warp=tables.warps["index"][:n_warps].astype(np.uint16),
            first_event=first_event,
            events=events[:count].copy(),
            addresses=tables.addresses[:n_addresses].copy(),
        )

    def _check_order(self, index: int, where: str) -> None:
        """Blocks come in the order of the grid; one that comes twice is damage, gaps are blocks without a trace."""
        if index < self._next:
            self._problems.damage(
                "BLOCK_ORDER", where, f"thread block {index} after {self._next - 1}: twice, or unsorted"
            )
        elif index > self._next:
            self._problems.warn("missing block", where, f"thread blocks {self._next} to {index - 1} are missing")
        self._next = max(self._next, index + 1)

    def _check_warps(self, n_warps: int, where: str) -> None:
        if n_warps < self._header.warps:
            self._problems.warn(
                "missing warp", where, f"{n_warps} of {self._header.warps} warps: the others did nothing"
            )
        edges = np.append(self._tables.warps["first"][:n_warps], self._scan[0]["n_instructions"])
        for warp in self._tables.warps[:n_warps][np.diff(edges) == 0]:
            self._problems.warn(
                "empty warp", self.where(int(warp["line"])), f"warp {warp['index']} has no instructions"
            )

    def _report(self) -> None:
        """Counts of oddities, at the end of the kernel."""
        scan, builder = self._scan[0], self._builder[0]
        if self._next < self._header.workgroups:
            self._problems.warn(
                "missing block", self.where(int(scan["line"])),
                f"thread blocks {self._next} to {self._header.workgroups - 1} are missing",
            )  # fmt: skip
        for count, line, kind, text in (
            ("no_exit", "no_exit_line", "no EXIT", "a warp ends without EXIT: taken as ended there"),
        ):
            if builder[count]:
                self._problems.warn(kind, self.where(int(builder[line])), text, int(builder[count]))
        for count, kind, text in (
            ("extra_columns", "extra columns", "columns behind the known ones: ignored"),
            ("gap_strides", "gap stride", "a stride for lanes with gaps: taken from one active lane to the next"),
        ):
            if scan[count]:
                self._problems.warn(kind, self.where(int(scan[f"{count}_line"])), text, int(scan[count]))


def split_header(path: Path, blocks: Iterator[bytes]) -> tuple[list[str], bytes]:
    """Header lines, and the text from the first # line on that has been read with them.

    Raises:
        TraceError: no line beginning with # within HEADER_BYTES_MAX bytes.
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


class AccelsimKernel:
    """One .traceg or .traceg.xz file (a KernelSource)."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self._path, self._problems = path, problems
        blocks = read_bytes(path)
        lines, _ = split_header(path, blocks)
        del blocks
        self.header = parse_header(path, lines, problems)
        self.info: KernelInfo = self.header.info()

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups in the order of the file from the `start`-th on (those before are read, but not built)."""
        header = self.header
        ids = header.version < 3
        reader = KernelReader(
            header, self._problems, ids=ids, prefix=ID_WORDS * ids + header.lineinfo, halve_copies=False
        )
        yield from reader.workgroups(self._body(), start)

    def _body(self) -> Iterator[bytes]:
        blocks = read_bytes(self._path)
        _, first = split_header(self._path, blocks)

        def joined() -> Iterator[bytes]:
            yield first
            yield from blocks

        yield from line_blocks(self._path, joined(), self._unterminated)

    def _unterminated(self) -> None:
        self._problems.warn("unterminated", str(self._path), "the last line has no newline")

    def fingerprint(self) -> str:
        """SHA-256 of the file's bytes."""
        with open(self._path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
