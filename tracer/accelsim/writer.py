"""Write any trace as Accel-Sim text: kernelslist.g and one .traceg (or .traceg.xz) per kernel.

The text is that of tracer version 5, which all versions of Accel-Sim read. Kernels with clusters, bulk copies or
transaction barriers have version 6, that of Accel-Sim 2.0, with values of registers (tracer.accelsim.hopper_lines).

The writer reads every workgroup back and compares it. If plain SASS does not give the same events, it writes the
workgroup with notes (tracer.accelsim.warp_lines).

Not kept: the exact opcodes of arithmetic, that a result comes later (LATER), and `cycles` of COMPUTE events. A COMPUTE
event keeps its pipe, count and work. Its `cycles` follow from the opcodes that were written for it.
"""

import lzma
import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from tracer.accelsim.clusters import Clusters, axes, shape_among
from tracer.accelsim.header import parse_header
from tracer.accelsim.hopper_lines import hopper_body, needs_hopper
from tracer.accelsim.instruction import LANES
from tracer.accelsim.kernel import KernelReader
from tracer.accelsim.problems import Problems
from tracer.accelsim.warp_lines import WarpLines, lane_addresses, rows_of
from tracer.workgroup_check import checked_workgroups
from traces.errors import UserError
from traces.output import replacing
from traces.schema import ARRIVE_ONLY, Kind
from traces.source import KernelInfo, KernelSource, Prefill, TraceSource, Workgroup
from traces.write import Progress

ARCHITECTURE, HOPPER = 80, 90
"""Binary version of a kernel without one: the first version with LDGSTS; with clusters, bulk copies, ..."""
SHARED_BASE, LOCAL_BASE = 0x7F0000000000, 0x7EFFFF000000
"""Windows of generic accesses if the trace has none. The writer makes no generic accesses."""
HEADER = """-kernel name = {name}
-kernel id = {number}
-grid dim = ({grid[0]},{grid[1]},{grid[2]})
-block dim = ({block[0]},{block[1]},{block[2]})
-shmem = {shared_bytes}
-nregs = {registers}
-binary version = {architecture}
-cuda stream id = {stream}
-shmem base_addr = 0x{shared_base:016x}
-local mem base_addr = 0x{local_base:016x}
-nvbit version = {nvbit}
-accelsim tracer version = {version}
-enable lineinfo = 0

#traces format = [line_num] PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [address] immediate

"""
COMPARED = ("kind", "space", "cache", "pipe", "width_bytes", "slot", "pc", "wait", "count")
"""Columns that must be equal. Addresses are compared lane by lane, masks only if they are given."""


COMPARED_BARRIER = ("work", "cycles", "row_stride")
"""... of barriers that are not those of a workgroup, and of bulk copies."""
COMPARED_BULK = ("inner", "stride", "base")
"""... of bulk copies, whose rows are joined first."""


@dataclass
class ExportSummary:
    """Counts of an export."""

    kernels: int = 0
    prefills: int = 0
    workgroups: int = 0
    noted_workgroups: int = 0  # written with notes
    changed_workgroups: int = 0  # with notes, but still not equal when read back
    text_bytes: int = 0


def header_text(info: KernelInfo, number: int, version: int) -> str:
    """Header of a kernel's file. version: of the tracer, 5 or 6."""
    attributes = info.attributes
    architecture = str(attributes.get("architecture", "")).removeprefix("sm_")
    return HEADER.format(
        name=" ".join(info.name.split()) or "unnamed",
        number=number,
        grid=info.grid,
        block=info.block,
        shared_bytes=info.shared_bytes,
        registers=info.registers,
        architecture=architecture if architecture.isdigit() else (ARCHITECTURE if version == 5 else HOPPER),
        version=version,
        stream=info.stream,
        shared_base=int(attributes.get("shared_base") or SHARED_BASE),
        local_base=int(attributes.get("local_base") or LOCAL_BASE),
        nvbit=attributes.get("nvbit_version") or "1.7",
    )


def workgroup_text(info: KernelInfo, workgroup: Workgroup, noted: bool) -> str:
    """Text of one workgroup of version 5. Every warp ends with EXIT."""
    body = []
    for position, warp in enumerate(workgroup.warp.tolist()):
        lines = WarpLines(workgroup.addresses, noted)
        events = workgroup.events[workgroup.first_event[position] : workgroup.first_event[position + 1]]
        for event in rows_of(events):
            lines.add(event)
        if not len(events) or events[-1]["kind"] != Kind.EXIT:
            lines.lines.append(f"{0:04x} ffffffff 0 EXIT 0 0 0 ")
        body.append((warp, lines.lines))
    return block_text(info, workgroup.index, "", body)


def cluster_text(info: KernelInfo, clusters: Clusters, workgroups: list[Workgroup]) -> str:
    """Text of the workgroups of a cluster, of version 6."""
    parts = []
    for workgroup, body in zip(workgroups, hopper_body(workgroups), strict=True):
        cluster, place, rank = clusters.tell(workgroup.index)
        lines = "cluster id = {},{},{}\ncluster cta = {},{},{}\ncluster rank = {}\n".format(*cluster, *place, rank)
        parts.append(block_text(info, workgroup.index, lines, body))
    return "".join(parts)


def block_text(info: KernelInfo, index: int, place: str, body: list[tuple[int, list[str]]]) -> str:
    """Text of a thread block. place: lines that tell its cluster. body: (warp, its lines)."""
    parts = ["\n#BEGIN_TB\n\nthread block = {},{},{}\n".format(*axes(info.grid, index)), place]
    parts += [f"\nwarp = {warp}\ninsts = {len(lines)}\n" + "\n".join(lines) + "\n" for warp, lines in body]
    return "".join(parts) + "\n#END_TB\n"


def joined_rows(copies: np.ndarray) -> np.ndarray:
    """Bulk copies as the machine has them: rows without gaps are one row, and one row has no pitch."""
    copies = copies.copy()
    joined = copies["row_stride"] == copies["stride"]
    copies["stride"][joined] = copies["stride"][joined] * copies["work"][joined]
    copies["work"][joined] = 1
    copies["row_stride"][copies["work"] == 1] = 0
    return copies


def same_events(left: Workgroup, right: Workgroup) -> bool:
    """True if warps, events and lane addresses are equal."""
    if len(left.events) != len(right.events) or not np.array_equal(left.first_event, right.first_event):
        return False
    if not all(np.array_equal(left.events[name], right.events[name]) for name in COMPARED):
        return False
    memory = left.events["kind"] <= Kind.ASYNC_COPY
    bulk = left.events["kind"] == Kind.BULK
    barrier = (left.events["kind"] == Kind.BARRIER) & (left.events["space"] > ARRIVE_ONLY)
    our_rows, their_rows = joined_rows(left.events[bulk]), joined_rows(right.events[bulk])
    if not all(np.array_equal(our_rows[name], their_rows[name]) for name in (*COMPARED_BARRIER, *COMPARED_BULK)):
        return False
    if not all(np.array_equal(left.events[name][barrier], right.events[name][barrier]) for name in COMPARED_BARRIER):
        return False
    stated = memory | (left.events["mask"] != 0)
    if not np.array_equal(left.events["mask"][stated], right.events["mask"][stated]):
        return False
    pattern = ("base", "inner", "stride", "row_stride")
    differing = memory & np.any([left.events[name] != right.events[name] for name in pattern], axis=0)
    ours, theirs = rows_of(left.events[differing]), rows_of(right.events[differing])
    return np.array_equal(left.warp, right.warp) and all(
        lane_addresses(our_row, left.addresses) == lane_addresses(their_row, right.addresses)
        for our_row, their_row in zip(ours, theirs, strict=True)
    )


class _KernelFile:
    """Writes the text of one kernel."""

    def __init__(
        self, path: Path, info: KernelInfo, first: list[Workgroup], number: int, summary: ExportSummary
    ) -> None:
        """first: workgroups of the first cluster. They tell the version of the file."""
        if info.lanes_per_warp != LANES:
            raise UserError(
                f"kernel {number} ({info.name}): {info.lanes_per_warp} lanes per warp, an Accel-Sim trace has {LANES}"
            )
        self._info, self._summary = info, summary
        hopper = info.cluster > 1 or any(needs_hopper(workgroup.events) for workgroup in first)
        self.version = 6 if hopper else 5
        self.header_text = header_text(info, number, self.version)
        lines = self.header_text[: self.header_text.index("\n#")].split("\n")
        header = parse_header(path, lines, Problems())
        header.cluster = shape_among(header.grid, [workgroup.index for workgroup in first])
        self._clusters = Clusters(header.grid, header.cluster)
        self._readers = [KernelReader(header, Problems(), ids=False, prefix=0) for _ in range(2)]

    def body(self, workgroups: list[Workgroup]) -> str:
        """Text of the workgroups of a cluster, with notes if they are needed."""
        self._clusters.check([workgroup.index for workgroup in workgroups])
        self._summary.workgroups += len(workgroups)
        if self.version == 5:
            (workgroup,) = workgroups
            if needs_hopper(workgroup.events):
                raise UserError(
                    f"kernel {self._info.name}, workgroup {workgroup.index}: found bulk copies or transaction "
                    "barriers, allowed only if the first workgroup has some too: it tells the version of the file"
                )
            text = workgroup_text(self._info, workgroup, noted=False)
            if self._comes_back(0, workgroups, text):
                return text
            text = workgroup_text(self._info, workgroup, noted=True)
        else:
            text = cluster_text(self._info, self._clusters, workgroups)
        self._summary.noted_workgroups += len(workgroups)
        self._summary.changed_workgroups += len(workgroups) * (not self._comes_back(1, workgroups, text))
        return text

    def _comes_back(self, reader: int, workgroups: list[Workgroup], text: str) -> bool:
        """True if the text gives the same events. Each reader reads a workgroup once."""
        read = list(self._readers[reader].read(iter([text.encode()])))
        return len(read) == len(workgroups) and all(map(same_events, workgroups, read))


def _write_kernel(path: Path, kernel: KernelSource, number: int, summary: ExportSummary, progress: Progress | None,
                  ) -> None:  # fmt: skip
    workgroups = checked_workgroups(kernel)
    together = list(islice(workgroups, kernel.info.cluster))
    text = _KernelFile(path, kernel.info, together, number, summary)
    done = 0
    with replacing(path) as temporary, _open_text(temporary, path) as file:
        summary.text_bytes += file.write(text.header_text.encode())
        while together:
            summary.text_bytes += file.write(text.body(together).encode())
            done += len(together)
            if progress is not None:
                progress(number - 1, kernel.info, done)
            together = list(islice(workgroups, kernel.info.cluster))
    summary.kernels += 1


def _open_text(temporary: Path, path: Path) -> IO[bytes]:
    """The file to write, compressed if its final name ends with .xz."""
    if path.suffix == ".xz":
        return lzma.open(temporary, "wb", preset=1)
    return open(temporary, "wb")


def export_accelsim(
    source: TraceSource, folder: str | os.PathLike[str], *, xz: bool = False, progress: Progress | None = None
) -> ExportSummary:
    """Write `folder`/kernelslist.g and one trace file per kernel. Accel-Sim and `open_accelsim` can read them.

    Args:
        source: kernels and copies in program order. They are read once, one workgroup at a time.
        folder: created if it is missing. Files of the same names are replaced, the list last.
        xz: compress the kernels' files.
        progress: called after each workgroup.

    Raises:
        UserError: warps without 32 lanes, an access width that SASS does not have, or a folder that is not writable.
    """
    folder = Path(folder)
    summary = ExportSummary()
    commands: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot make the folder: {error.strerror or error}") from error
    for command in source.commands():
        if isinstance(command, Prefill):
            commands.append(f"MemcpyHtoD,0x{command.address:016x},{command.bytes}")
            summary.prefills += 1
            continue
        name = f"kernel-{summary.kernels + 1}.traceg" + (".xz" if xz else "")
        _write_kernel(folder / name, command, summary.kernels + 1, summary, progress)
        commands.append(name)
    with replacing(folder / "kernelslist.g") as temporary:
        temporary.write_text("\n".join(commands) + "\n")
    return summary
