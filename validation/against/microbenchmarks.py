"""Latencies and bandwidths of the presets against microbenchmarks of the real machines.

`python -m validation.against.microbenchmarks` writes two pages: `validation/tables/microbenchmarks.md`, and
`validation/tables/machines_of_today.md` with near and far L2 and memory-side caches. Latencies are measured as in the
microbenchmarks, with a chain of dependent loads through the whole machine. Bandwidths are measured from the time
difference of two streams of different length. The sources of a preset name the figures that determined a value
(calibration). All other figures are predictions.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sim.hw.address_map import l2_place
from sim.presets import Preset, load_preset
from sim.results import KernelResult
from sim.run.one_gpu import simulate
from tracer.sequence import CommandSequence
from tracer.streams import BufferStream, Flow, PointerChase
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.command.script import without_options
from traces.schema import Cache
from traces.source import KernelSource
from traces.units import MIB, PS_PER_NS, period_ps
from validation.against.gpu_rows import CHASES, Chase
from validation.csv_file import read_csv

HERE = Path(__file__).parents[1]
MICROBENCHMARKS, BENCHES = "gpu_microbenchmarks.csv", "gpu_benches.csv"
"""Files of `references`."""
LATENCY_COLUMNS = ("preset", "level", "measured (clocks)", "ours", "error", "verdict", "kind")
BANDWIDTH_COLUMNS = ("preset", "level", "measured (GB/s)", "ours", "error", "verdict", "kind")
LATENCY_TOLERANCE, BANDWIDTH_TOLERANCE = 0.05, 0.10
BLOCK_THREADS, ELEMENT_BYTES = 1024, 8
"""The kernels of gpu-stream at full occupancy: each thread reads or writes one number in fp64 and ends."""
L2_WORKGROUPS, L2_WARPS, L2_PASSES = 2, 16, 8
"""Workgroups per CU, warps per workgroup and passes over the buffer, for the stream that stays in L2."""


L1_HIT, L2_HIT, HBM = CHASES
SIDE_CACHE = Chase("memory-side cache", "MALL_cyc", 512 << 10, 128, 4096, 4096, Cache.BYPASS_L1)
SMALL_L2 = ("l2.bytes=1048576",)
"""With it the L2 of a die holds a quarter of the chase's buffer, so every load misses L2. The first pass fills the
memory-side cache. (On hardware the buffer is larger than 4 MB instead.)"""
FAR_COLUMN, L2_COLUMN = "L2_far_cyc", "L2_bw_GBps"
STREAMS = (
    *((Flow.READ, "HBM_read_GBps"), (Flow.WRITE, "HBM_write_GBps")),
    *((Flow.COPY, "HBM_triad_GBps"), (Flow.COPY, "HBM_scale_GBps")),
)
"""Flow, column. A file has one of the columns of a copy."""


class Machine(NamedTuple):
    """The measurements of a preset's GPU, and the buffer size of its streams.

    Attributes:
        reference: file of `references`; row: in it.
        stream_bytes: larger than L2, and long enough that refreshes are no longer postponed (8 x 3.9 us).
    """

    reference: str
    row: str
    stream_bytes: int


MACHINES = {
    "v100": Machine(MICROBENCHMARKS, "V100", 32 * MIB),
    "a100_80g": Machine(MICROBENCHMARKS, "A100-80", 80 * MIB),
    "mi210": Machine(MICROBENCHMARKS, "MI210", 64 * MIB),
    "h200": Machine(MICROBENCHMARKS, "H200", 192 * MIB),
    "a100_80g_halves": Machine(BENCHES, "A100-80", 80 * MIB),
    "h100_sxm": Machine(BENCHES, "GH200", 192 * MIB),
    "b200": Machine(BENCHES, "B200", 192 * MIB),
    "mi300x": Machine(BENCHES, "MI300X", 160 * MIB),
}


class Page(NamedTuple):
    """The page of a file of `references`.

    Attributes:
        name: of its table and notes.
        columns: of the bandwidths.
        about: text between latencies and bandwidths.
    """

    name: str
    title: str
    reference: str
    columns: tuple[str, ...]
    about: str = ""

    @property
    def table(self) -> Path:
        return HERE / "tables" / f"{self.name}.md"

    @property
    def machines(self) -> list[str]:
        return [name for name, machine in MACHINES.items() if machine.reference == self.reference]


ABOUT_STREAMS = (
    f"Streams: the kernels of gpu-stream, workgroups of {BLOCK_THREADS} threads, each with one number of "
    f"{ELEMENT_BYTES} bytes. GB/s that the program moves. Copy is compared with the measured triad. L2: a buffer "
    "of some MiB, read many times."
)
PAGES = (
    Page(
        "microbenchmarks",
        "Latency and bandwidth against microbenchmarks",
        MICROBENCHMARKS,
        (*BANDWIDTH_COLUMNS, "row hits", "data bus busy"),
        ABOUT_STREAMS,
    ),
    Page("machines_of_today", "Machines of today", BENCHES, BANDWIDTH_COLUMNS),
)


def measured(name: str) -> dict[str, str]:
    """The microbenchmarks of a preset's GPU: column -> value, "" = not measured."""
    machine = MACHINES[name]
    return next(line for line in read_csv(HERE / "references" / machine.reference) if line["gpu"] == machine.row)


def kind_of(preset: Preset, column: str) -> str:
    """`calibration` if this column of the machine determined a value of the preset, else `prediction`."""
    calibrated = (source.source for source in preset.sources.values() if source.kind == "calibrated")
    return "calibration" if any(column in source for source in calibrated) else "prediction"


def latency_ps(preset: Preset, chase: Chase) -> float:
    """Load-to-use time of a level in ps: the additional time of each further load of a long chain."""
    lanes = preset.machine.cu.lanes_per_warp

    def time_ps(loads: int) -> int:
        source = PointerChase(chase.buffer_bytes, loads, chase.stride_bytes, cache=chase.cache, lanes=lanes)
        return replay(preset, source).time_ps

    return (time_ps(chase.warm + chase.loads) - time_ps(chase.warm)) / chase.loads


def stream_source(preset: Preset, flow: Flow, buffer_bytes: int) -> BufferStream:
    """A kernel of gpu-stream: workgroups of BLOCK_THREADS threads walk the buffer in order."""
    lanes = preset.machine.cu.lanes_per_warp
    return BufferStream(
        flow,
        buffer_bytes,
        workgroup_count=-(-buffer_bytes // (BLOCK_THREADS * ELEMENT_BYTES)),
        warps=BLOCK_THREADS // lanes,
        unroll=1,
        lanes=lanes,
        lane_bytes=ELEMENT_BYTES,
    )


class Stream(NamedTuple):
    """Results of a stream."""

    GBps: float
    row_hits: float
    bus_busy: float


@cache
def stream(name: str, flow: Flow, half_bytes: int) -> Stream:
    """Bandwidth of a long stream from HBM: the second half of a buffer, so start and L2 do not count."""
    preset = load_preset(name)
    half = replay(preset, stream_source(preset, flow, half_bytes))
    whole = replay(preset, stream_source(preset, flow, 2 * half_bytes))
    total = whole.totals
    buffers = 2 if flow == Flow.COPY else 1
    return Stream(
        buffers * half_bytes * PS_PER_NS / (whole.time_ps - half.time_ps),
        total["hbm.row_hits"] / total["hbm.atoms"],
        total["hbm.bus_busy_ps"] / (len(whole.units["hbm"]) * whole.time_ps),
    )


@cache
def l2_GBps(name: str) -> float:
    """Bandwidth of reads that all hit in L2, from the time of further passes over a buffer of some MiB."""
    preset = load_preset(name)
    cu = preset.machine.cu
    workgroups = L2_WORKGROUPS * cu.count
    buffer_bytes = workgroups * L2_WARPS * cu.lanes_per_warp * 16

    def time_ps(passes: int) -> int:
        source = BufferStream(
            Flow.READ,
            buffer_bytes,
            workgroup_count=workgroups,
            warps=L2_WARPS,
            unroll=1,
            passes=passes,
            cache=Cache.BYPASS_L1,
            lanes=cu.lanes_per_warp,
        )
        return replay(preset, source).time_ps

    return L2_PASSES * buffer_bytes * PS_PER_NS / (time_ps(2 * L2_PASSES) - time_ps(L2_PASSES))


def replay(preset: Preset, source: KernelSource) -> KernelResult:
    """Replay one kernel on a machine. L2 is empty before and not flushed after."""
    (result,) = simulate(CommandSequence([source]), preset, flush_l2=False).kernels
    return result


def far_latency_ps(name: str) -> float:
    """Load-to-use time of a line that is only in the far half of L2.

    A chase through lines that are kept once meets near and far ones. The share of the far ones follows from the
    addresses.
    """
    near_ps = latency_ps(load_preset(name), L2_HIT)
    mixed = load_preset(name, ["l2.sharing=home"])
    m, half = mixed.machine, mixed.machine.l2.banks // 2
    lines = [(1 << 36) + k * L2_HIT.stride_bytes for k in range(L2_HIT.buffer_bytes // L2_HIT.stride_bytes)]
    place = (m.hbm.interleave_bytes, m.hbm.channels, int(m.hbm.index), m.l2.banks // m.hbm.channels, 1, 0)
    far = sum(l2_place(line, *place)[0] >= half for line in lines) / len(lines)
    return near_ps + (latency_ps(mixed, L2_HIT) - near_ps) / far


def latencies(name: str) -> Iterator[tuple[str, str, float]]:
    """(level, column, clocks of the measured machine) of every level with a measured value."""
    preset, row = load_preset(name), measured(name)
    clock_ps = period_ps(float(row["clock_MHz"]))
    for chase in CHASES:
        if row[chase.column]:
            yield chase.level, chase.column, latency_ps(preset, chase) / clock_ps
    if row.get(SIDE_CACHE.column):
        side_ps = latency_ps(load_preset(name, SMALL_L2), SIDE_CACHE)
        yield SIDE_CACHE.level, SIDE_CACHE.column, side_ps / clock_ps
    if row.get(FAR_COLUMN):
        yield "L2 hit, far", FAR_COLUMN, far_latency_ps(name) / clock_ps


def bandwidths(name: str) -> Iterator[tuple[str, str, float, str, str]]:
    """(level, column, GB/s, row hits, time that the bus is busy) of every bandwidth with a measured value."""
    row = measured(name)
    if row[L2_COLUMN]:
        yield "L2 read", L2_COLUMN, l2_GBps(name), "-", "-"
    for flow, column in STREAMS:
        if row.get(column):
            found = stream(name, flow, MACHINES[name].stream_bytes)
            yield f"HBM {flow.name.lower()}", column, found.GBps, f"{found.row_hits:.2f}", f"{found.bus_busy:.2f}"


def figures(name: str) -> dict[str, float]:
    """Column -> number, in its unit, for the columns with a measured value."""
    found = {column: clocks for _, column, clocks in latencies(name)}
    return found | {column: GBps for _, column, GBps, *_ in bandwidths(name)}


def cells(name: str, level: str, column: str, ours: float, tolerance: float) -> list[str]:
    """One row of a table of latencies or bandwidths."""
    theirs = float(measured(name)[column])
    error = ours / theirs - 1
    verdict = "ok" if abs(error) <= tolerance else "off"
    kind = kind_of(load_preset(name), column)
    return [name, level, f"{theirs:,.0f}", f"{ours:,.1f}", f"{100 * error:+.1f} %", verdict, kind]


def latency_rows(name: str) -> list[list[str]]:
    """Rows of the table of latencies."""
    return [cells(name, *found, LATENCY_TOLERANCE) for found in latencies(name)]


def bandwidth_rows(name: str) -> list[list[str]]:
    """Rows of the table of bandwidths, each with row hits and the time that the bus is busy."""
    return [
        [*cells(name, level, column, GBps, BANDWIDTH_TOLERANCE), *bus] for level, column, GBps, *bus in bandwidths(name)
    ]


def table(page: Page) -> str:
    """A page as Markdown, with the explanation of its notes."""
    head = (
        "Generated by `python -m validation.against.microbenchmarks`.\n"
        f"Measured: `validation/references/{page.reference}`. Ok: latency within {LATENCY_TOLERANCE:.0%}, bandwidth "
        f"within {BANDWIDTH_TOLERANCE:.0%}."
    )
    rows = [row[: len(page.columns)] for name in page.machines for row in bandwidth_rows(name)]
    return to_markdown(
        [
            Heading(page.title, 1),
            Text(head),
            Table(LATENCY_COLUMNS, [row for name in page.machines for row in latency_rows(name)]),
            *([Text(page.about)] if page.about else []),
            Table(page.columns, rows),
            notes(HERE / "against" / f"{page.name}_notes.md"),
        ]
    )


def main() -> None:
    for page in PAGES:
        write_page(page.table, table(page))


if __name__ == "__main__":
    without_options(__doc__)
    main()
