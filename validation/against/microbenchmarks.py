"""Latencies and bandwidths of the presets against microbenchmarks of the real machines.

`python -m validation.against.microbenchmarks` writes `validation/tables/microbenchmarks.md`. Latencies are measured as
in the microbenchmarks, with a chain of dependent loads through the whole machine. Bandwidths are measured from the time
difference of two streams of different length. The sources of a preset name the figures that determined a value
(calibration). All other figures are predictions.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
REFERENCE = HERE / "references" / "gpu_microbenchmarks.csv"
NOTES = HERE / "against" / "microbenchmarks_notes.md"
TABLE = HERE / "tables" / "microbenchmarks.md"
LATENCY_COLUMNS = ("preset", "level", "measured (clocks)", "ours", "error", "verdict", "kind")
BANDWIDTH_COLUMNS = (
    *("preset", "level", "measured (GB/s)", "ours", "error", "verdict", "kind", "row hits", "data bus busy"),
)
LATENCY_TOLERANCE, BANDWIDTH_TOLERANCE = 0.05, 0.10
BLOCK_THREADS, ELEMENT_BYTES = 1024, 8
"""The kernels of gpu-stream at full occupancy: each thread reads or writes one number in fp64 and ends."""
L2_WORKGROUPS, L2_WARPS, L2_PASSES = 2, 16, 8
"""Workgroups per CU, warps per workgroup and passes over the buffer, for the stream that stays in L2."""


class Machine(NamedTuple):
    """Row of REFERENCE for a preset, and the buffer size of its streams.

    stream_bytes: larger than L2, and long enough that refreshes are no longer postponed (8 x 3.9 us).
    """

    row: str
    stream_bytes: int


MACHINES = {
    "v100": Machine("V100", 32 * MIB),
    "a100_80g": Machine("A100-80", 80 * MIB),
    "mi210": Machine("MI210", 64 * MIB),
    "h200": Machine("H200", 192 * MIB),
}


STREAMS = ((Flow.READ, "HBM_read_GBps"), (Flow.WRITE, "HBM_write_GBps"), (Flow.COPY, "HBM_triad_GBps"))
"""Flow, column of REFERENCE."""
L2_COLUMN = "L2_bw_GBps"


def measured(row: str) -> dict[str, str]:
    """The microbenchmarks of one machine."""
    return next(line for line in read_csv(REFERENCE) if line["gpu"] == row)


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


def latencies(name: str) -> Iterator[tuple[str, str, float]]:
    """(level, column, clocks of the measured machine) of every level with a measured value."""
    preset, row = load_preset(name), measured(MACHINES[name].row)
    clock_ps = period_ps(float(row["clock_MHz"]))
    for chase in CHASES:
        if row[chase.column]:
            yield chase.level, chase.column, latency_ps(preset, chase) / clock_ps


def figures(name: str) -> dict[str, float]:
    """Column of REFERENCE -> number, in its unit, for the columns with a measured value."""
    machine = MACHINES[name]
    found = {column: clocks for _, column, clocks in latencies(name)}
    if measured(machine.row)[L2_COLUMN]:
        found[L2_COLUMN] = l2_GBps(name)
    return found | {column: stream(name, flow, machine.stream_bytes).GBps for flow, column in STREAMS}


def cells(
    name: str, row: Mapping[str, str], level: str, column: str, ours: float, tolerance: float = BANDWIDTH_TOLERANCE
) -> list[str]:
    """One row of a table of latencies or bandwidths. row: the measured values of the machine."""
    theirs = float(row[column])
    error = ours / theirs - 1
    verdict = "ok" if abs(error) <= tolerance else "off"
    kind = kind_of(load_preset(name), column)
    return [name, level, f"{theirs:,.0f}", f"{ours:,.1f}", f"{100 * error:+.1f} %", verdict, kind]


def latency_rows(name: str) -> list[list[str]]:
    """Rows of the table of latencies."""
    row = measured(MACHINES[name].row)
    return [cells(name, row, *found, LATENCY_TOLERANCE) for found in latencies(name)]


def l2_rows(name: str) -> list[list[str]]:
    """Row of the bandwidth of L2; no row if it was not measured."""
    row = measured(MACHINES[name].row)
    return [[*cells(name, row, "L2 read", L2_COLUMN, l2_GBps(name)), "-", "-"]] if row[L2_COLUMN] else []


def stream_rows(name: str) -> list[list[str]]:
    """Rows of the table of HBM bandwidths: GB/s that the program moves, row hits, and time that the bus is busy."""
    row, lines = measured(MACHINES[name].row), []
    for flow, column in STREAMS:
        result = stream(name, flow, MACHINES[name].stream_bytes)
        found = cells(name, row, f"HBM {flow.name.lower()}", column, result.GBps)
        lines.append([*found, f"{result.row_hits:.2f}", f"{result.bus_busy:.2f}"])
    return lines


def table() -> str:
    """All presets as Markdown, with the explanation of NOTES."""
    head = (
        "Generated by `python -m validation.against.microbenchmarks`.\n"
        "Measured: `validation/references/gpu_microbenchmarks.csv`. Ok: latency within "
        f"{LATENCY_TOLERANCE:.0%}, bandwidth within {BANDWIDTH_TOLERANCE:.0%}."
    )
    about_streams = (
        f"Streams: the kernels of gpu-stream, workgroups of {BLOCK_THREADS} threads, each with one number of "
        f"{ELEMENT_BYTES} bytes. GB/s that the program moves. Copy is compared with the measured triad. L2: a buffer "
        "of some MiB, read many times."
    )
    bandwidths = [row for name in MACHINES for row in (*l2_rows(name), *stream_rows(name))]
    return to_markdown(
        [
            Heading("Latency and bandwidth against microbenchmarks", 1),
            Text(head),
            Table(LATENCY_COLUMNS, [row for name in MACHINES for row in latency_rows(name)]),
            Text(about_streams),
            Table(BANDWIDTH_COLUMNS, bandwidths),
            notes(NOTES),
        ]
    )


def main() -> None:
    write_page(TABLE, table())


if __name__ == "__main__":
    without_options(__doc__)
    main()
