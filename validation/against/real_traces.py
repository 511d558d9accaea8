"""Real Accel-Sim traces: `python -m validation.against.real_traces` writes a table about them.

Every folder of $T3SIM_DATA/real-traces is imported, verified, exported and imported again, and replayed on one machine.
The traces belong to other people and are not in the project. The table names their origin.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np

from sim.presets import load_preset
from sim.run.one_gpu import simulate
from tracer.accelsim.reader import open_accelsim
from tracer.accelsim.stream import read_bytes
from tracer.accelsim.writer import export_accelsim, same_events
from tracer.verify import verify_archive
from traces.archive import open_archive, write_archive
from traces.command.document import Bullets, Heading, Table, Text, to_markdown, write_page
from traces.command.script import without_options
from traces.errors import UserError
from traces.schema import Kind
from traces.source import Prefill, TraceSource, Workgroup

VARIABLE = "T3SIM_DATA"
PRESET = "accelsim_qv100"
TABLE = Path(__file__).parents[1] / "tables" / "real_traces.md"
IMPORTS = 3
"""Number of imports; the fastest counts."""
ORIGINS = {
    "sm61-v4-matrixmul": "romnn/microgpusim (history), tracer 4",
    "sm61-v4-vectoradd": "romnn/microgpusim (history), tracer 4",
    "sm70-v3-cublas-dot": "sinharudraneel/dp-performance-accel-sim @9d9ab9fc, tracer 3",
    "sm75-v1.2-vecadd": "HamHyungkyu/advanced_computer_architecture (2020-12), tracer 1.2",
    "sm80-v5-flashinfer-prefill": "MrTang-Yuhan/Accel-Sim-Flashinfer @8323af6, tracer 5, xz",
}


class Row(NamedTuple):
    """One folder of traces. Sectors have 32 bytes. Loads, stores and copies are warp events that access memory."""

    trace: str
    kernels: int
    prefills: int
    workgroups: int
    warps: int
    instructions: int
    events: int
    loads: int
    stores: int
    copies: int
    warnings: int
    round_trip: str
    text_bytes: int
    archive_bytes: int
    time_us: float
    l1_read: int
    l1_write: int
    l2_read: int
    l2_read_hit: int
    dram_read: int
    dram_write: int
    import_MB_per_s: float


def folders() -> list[Path]:
    """Folders of real traces; none if T3SIM_DATA is not set."""
    data = os.environ.get(VARIABLE)
    return sorted(path for path in Path(data, "real-traces").glob("*") if path.is_dir()) if data else []


def workgroups_of(source: TraceSource) -> Iterator[Workgroup | Prefill]:
    """All workgroups and copies of a trace, in order."""
    for command in source.commands():
        if isinstance(command, Prefill):
            yield command
        else:
            yield from command.workgroups()


def round_trip(archive: Path, out: Path) -> str:
    """Export and import again. Returns `identical`, or the number of workgroups and copies that differ."""
    with open_archive(archive) as source:
        export_accelsim(source, out)
        pairs = list(zip(workgroups_of(source), workgroups_of(open_accelsim(out)), strict=True))
    differing = sum(
        before != after if isinstance(before, Prefill) or isinstance(after, Prefill) else not same_events(before, after)
        for before, after in pairs
    )
    return f"{differing} of {len(pairs)} differ" if differing else "identical"


def accesses(archive: Path) -> np.ndarray:
    """Number of warp events of each kind."""
    counts = np.zeros(len(Kind), np.int64)
    with open_archive(archive) as source:
        for item in workgroups_of(source):
            if isinstance(item, Workgroup):
                counts += np.bincount(item.events["kind"], minlength=len(Kind))
    return counts


def import_seconds(folder: Path, archive: Path) -> float:
    """Time of the fastest import in seconds."""
    seconds = []
    for _ in range(IMPORTS):
        began = perf_counter()
        write_archive(archive, open_accelsim(folder))
        seconds.append(perf_counter() - began)
    return min(seconds)


def measure(folder: Path, work: Path) -> Row:
    """One row of the table. work: a folder for temporary files."""
    archive = work / f"{folder.name}.h5"
    source = open_accelsim(folder)
    summary = write_archive(archive, source)
    if verify_archive(archive).checksum != summary.checksum:
        raise UserError(f"{archive}: verified as another archive")
    text_bytes = sum(len(block) for file in source.files for block in read_bytes(file))
    counts = accesses(archive)
    with open_archive(archive) as trace:
        run = simulate(trace, load_preset(PRESET)).headline()
    return Row(
        trace=folder.name,
        kernels=summary.kernels,
        prefills=summary.prefills,
        workgroups=summary.workgroups,
        warps=summary.warps,
        instructions=summary.instructions,
        events=summary.events,
        loads=int(counts[Kind.LOAD]),
        stores=int(counts[Kind.STORE]),
        copies=int(counts[Kind.ASYNC_COPY]),
        warnings=len(source.problems.lines()),
        round_trip=round_trip(archive, work / folder.name),
        text_bytes=text_bytes,
        archive_bytes=summary.file_bytes,
        time_us=run["time_ns"] / 1000,
        l1_read=run["l1_read_sectors"],
        l1_write=run["l1_write_sectors"],
        l2_read=run["l2_read_sectors"],
        l2_read_hit=run["l2_read_hit_sectors"],
        dram_read=run["dram_read_sectors"],
        dram_write=run["dram_write_sectors_after_flush"],
        import_MB_per_s=text_bytes / import_seconds(folder, archive) / 1e6,
    )


def real_rows() -> list[Row]:
    """The table's rows, one per folder.

    Raises:
        UserError: T3SIM_DATA is not set or has no real traces.
    """
    trace_folders = folders()
    if not trace_folders:
        raise UserError(f"{VARIABLE}: not set, or no folder real-traces with traces in it")
    with tempfile.TemporaryDirectory() as work:
        return [measure(folder, Path(work)) for folder in trace_folders]


def cell(value: str | int | float) -> str:
    """A cell: numbers with separators, times and rates with one decimal."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.1f}"


def table(rows: list[Row]) -> str:
    """The rows as Markdown: content of the traces, and results of their replay."""
    columns = Row._fields
    middle = columns.index("time_us")
    head = "Generated by `python -m validation.against.real_traces`. The traces are not in the project. Their origin:"
    about_import = (
        "Imported, verified, exported and imported again. `loads`, `stores`, `copies` (LDGSTS) are warp events, "
        "with shared\nmemory; `warnings` of the import."
    )
    about_replay = (
        f"Replayed on preset `{PRESET}`, which is not a traced machine; `time_us` from the first launch to the\n"
        "last end. Sectors of 32 bytes, DRAM writes with the flush of L2 after every kernel. `import_MB_per_s`: text,\n"
        f"not compressed, per second of the fastest of {IMPORTS} imports on one core. With such small files it\n"
        "is mostly start-up; `bench_import.md` has the rate of large files."
    )
    return to_markdown(
        [
            Heading("Real Accel-Sim traces", 1),
            Text(head),
            Bullets([f"{row.trace}: {ORIGINS.get(row.trace, 'unknown')}" for row in rows]),
            Text(about_import),
            Table(columns[:middle], [[*map(cell, row[:middle])] for row in rows]),
            Text(about_replay),
            Table((columns[0], *columns[middle:]), [[*map(cell, (row[0], *row[middle:]))] for row in rows]),
        ]
    )


def main() -> None:
    write_page(TABLE, table(real_rows()))


if __name__ == "__main__":
    without_options(__doc__)
    main()
