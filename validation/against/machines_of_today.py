"""Presets of today's machines against published microbenchmarks.

`python -m validation.against.machines_of_today` writes `validation/tables/machines_of_today.md`: latencies of each
level (near and far L2, memory-side cache) and bandwidths. The sources of a preset name the figures that determined a
value (calibration).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sim.hw.address_map import l2_place
from sim.presets import load_preset
from tracer.streams import Flow
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.command.script import without_options
from traces.schema import Cache
from traces.units import MIB, period_ps
from validation.against.gpu_rows import CHASES, Chase
from validation.against.microbenchmarks import (
    BANDWIDTH_TOLERANCE,
    L2_COLUMN,
    LATENCY_COLUMNS,
    LATENCY_TOLERANCE,
    cells,
    l2_GBps,
    latency_ps,
    stream,
)
from validation.csv_file import read_csv

HERE = Path(__file__).parents[1]
BENCHES = HERE / "references" / "gpu_benches.csv"
NOTES = HERE / "against" / "machines_of_today_notes.md"
TABLE = HERE / "tables" / "machines_of_today.md"
L1_HIT, L2_HIT, HBM = CHASES
SIDE_CACHE = Chase("memory-side cache", "MALL_cyc", 512 << 10, 128, 4096, 4096, Cache.BYPASS_L1)
SMALL_L2 = ("l2.bytes=1048576",)
"""With it the L2 of a die holds a quarter of the chase's buffer, so every load misses L2. The first pass fills the
memory-side cache. (On hardware the buffer is larger than 4 MB instead.)"""
FAR_COLUMN = "L2_far_cyc"
BANDWIDTH_COLUMNS = ("preset", "level", "measured (GB/s)", "ours", "error", "verdict", "kind")
STREAMS = ((Flow.READ, "HBM_read_GBps"), (Flow.WRITE, "HBM_write_GBps"), (Flow.COPY, "HBM_scale_GBps"))


class Machine(NamedTuple):
    """A preset, its row in BENCHES, and the size of its streams: no line is used twice, and refresh is in step."""

    preset: str
    row: str
    stream_bytes: int = 192 * MIB


MACHINES = (
    Machine("a100_80g_halves", "A100-80", stream_bytes=80 * MIB),
    Machine("h100_sxm", "GH200"),
    Machine("b200", "B200"),
    Machine("mi300x", "MI300X", stream_bytes=160 * MIB),
)


def measured(row: str) -> dict[str, str]:
    """Published microbenchmarks of one machine."""
    return next(line for line in read_csv(BENCHES) if line["gpu"] == row)


def far_latency_ps(machine: Machine) -> float:
    """Load-to-use time of a line that is only in the far half of L2.

    A chase through lines that are kept once meets near and far ones. The share of the far ones follows from the
    addresses.
    """
    near_ps = latency_ps(load_preset(machine.preset), L2_HIT)
    mixed = load_preset(machine.preset, ["l2.sharing=home"])
    m, half = mixed.machine, mixed.machine.l2.banks // 2
    lines = [(1 << 36) + k * L2_HIT.stride_bytes for k in range(L2_HIT.buffer_bytes // L2_HIT.stride_bytes)]
    place = (m.hbm.interleave_bytes, m.hbm.channels, int(m.hbm.index), m.l2.banks // m.hbm.channels, 1, 0)
    far = sum(l2_place(line, *place)[0] >= half for line in lines) / len(lines)
    return near_ps + (latency_ps(mixed, L2_HIT) - near_ps) / far


def latencies(machine: Machine) -> Iterator[tuple[str, str, float]]:
    """(level, column, clocks of the measured machine) of every level with a measured value."""
    preset, row = load_preset(machine.preset), measured(machine.row)
    clock_ps = period_ps(float(row["clock_MHz"]))
    for chase in CHASES:
        if row[chase.column]:
            yield chase.level, chase.column, latency_ps(preset, chase) / clock_ps
    if row[SIDE_CACHE.column]:
        side_ps = latency_ps(load_preset(machine.preset, SMALL_L2), SIDE_CACHE)
        yield SIDE_CACHE.level, SIDE_CACHE.column, side_ps / clock_ps
    if row[FAR_COLUMN]:
        yield "L2 hit, far", FAR_COLUMN, far_latency_ps(machine) / clock_ps


def bandwidths(machine: Machine) -> Iterator[tuple[str, str, float]]:
    """(level, column, GB/s) of every bandwidth with a measured value."""
    row = measured(machine.row)
    if row[L2_COLUMN]:
        yield "L2 read", L2_COLUMN, l2_GBps(machine.preset)
    for flow, column in STREAMS:
        if row[column]:
            yield f"HBM {flow.name.lower()}", column, stream(machine.preset, flow, machine.stream_bytes).GBps


def figures(machine: Machine) -> dict[str, float]:
    """Column of BENCHES -> number, in its unit, for the columns with a measured value."""
    return {column: number for _, column, number in (*latencies(machine), *bandwidths(machine))}


def latency_rows(machine: Machine) -> list[list[str]]:
    row = measured(machine.row)
    return [cells(machine.preset, row, *found, LATENCY_TOLERANCE) for found in latencies(machine)]


def bandwidth_rows(machine: Machine) -> list[list[str]]:
    row = measured(machine.row)
    return [cells(machine.preset, row, *found) for found in bandwidths(machine)]


def table() -> str:
    """The page as Markdown, with the explanation of NOTES."""
    head = (
        "Generated by `python -m validation.against.machines_of_today`. Measured: "
        f"`validation/references/gpu_benches.csv`. Ok: latency within {LATENCY_TOLERANCE:.0%}, bandwidth within "
        f"{BANDWIDTH_TOLERANCE:.0%}."
    )
    return to_markdown(
        [
            Heading("Machines of today", 1),
            Text(head),
            Table(LATENCY_COLUMNS, [row for machine in MACHINES for row in latency_rows(machine)]),
            Table(BANDWIDTH_COLUMNS, [row for machine in MACHINES for row in bandwidth_rows(machine)]),
            notes(NOTES),
        ]
    )


def main() -> None:
    write_page(TABLE, table())


if __name__ == "__main__":
    without_options(__doc__)
    main()
