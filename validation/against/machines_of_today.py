"""Presets of today's machines against published microbenchmarks and the counters of a large GEMM.

`python -m validation.against.machines_of_today` writes `validation/tables/machines_of_today.md`: latencies of each
level (near and far L2, memory-side cache), bandwidths, traffic of an 8192^3 GEMM on an MI300X, and its rate against the
number of CUs. The sources of a preset name the figures that determined a value (calibration).
"""

import csv
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sim.hw.address_map import l2_bank_of
from sim.presets import Preset, load_preset
from sim.run.one_gpu import simulate
from tracer.gemm.source import Copy, GemmKernel, GemmProblem, GemmSource, TileOrder
from tracer.sequence import CommandSequence
from tracer.streams import Flow
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.schema import SECTOR_BYTES, Cache
from traces.units import GIGA, MIB, PS_PER_NS, PS_PER_S, TERA, period_ps
from validation.against.gpu_rows import CHASES, Chase
from validation.against.microbenchmarks import (
    BANDWIDTH_TOLERANCE,
    L2_COLUMN,
    LATENCY_TOLERANCE,
    kind_of,
    l2_GBps,
    latency_ps,
    replay,
    stream_source,
)

HERE = Path(__file__).parents[1]
BENCHES = HERE / "references" / "gpu_benches.csv"
COUNTERS = HERE / "references" / "memory_counters_mi300x.csv"
RATES = HERE / "references" / "gemm_rate_against_cus_mi300x.csv"
NOTES = HERE / "against" / "machines_of_today_notes.md"
TABLE = HERE / "tables" / "machines_of_today.md"
L1_HIT, L2_HIT, HBM = CHASES
SIDE_CACHE = Chase("memory-side cache", "MALL_cyc", 128 << 10, 128, 1024, 1024, Cache.UNCACHED)
"""Uncached loads pass L2 like misses; the first pass fills the memory-side cache."""
FAR_COLUMN = "L2_far_cyc"
LATENCY_COLUMNS = ("preset", "level", "measured (clocks)", "ours", "error", "verdict", "kind")
BANDWIDTH_COLUMNS = ("preset", "level", "measured (GB/s)", "ours", "error", "verdict", "kind")
STREAMS = ((Flow.READ, "HBM_read_GBps"), (Flow.WRITE, "HBM_write_GBps"), (Flow.COPY, "HBM_triad_GBps"))


class Machine(NamedTuple):
    """A preset, its row in BENCHES, and the size of its streams: larger than its caches."""

    preset: str
    row: str
    stream_bytes: int = 192 * MIB


MACHINES = (
    Machine("a100_80g_halves", "A100-80"),
    Machine("h100_sxm", "GH200"),
    Machine("b200", "B200"),
    Machine("mi300x", "MI300X", stream_bytes=320 * MIB),
)


def measured(row: str) -> dict[str, str]:
    """Published microbenchmarks of one machine."""
    with BENCHES.open(encoding="utf-8", newline="") as file:
        return next(line for line in csv.DictReader(file) if line["gpu"] == row)


def far_latency_ps(machine: Machine) -> float:
    """Load-to-use time of a line that is only in the far half of L2.

    A chase through lines that are kept once meets near and far ones. The share of the far ones follows from the
    addresses.
    """
    near_ps = latency_ps(load_preset(machine.preset), L2_HIT)
    mixed = load_preset(machine.preset, ["l2.sharing=home"])
    m, half = mixed.machine, mixed.machine.l2.banks // 2
    lines = [(1 << 36) + k * L2_HIT.stride_bytes for k in range(L2_HIT.buffer_bytes // L2_HIT.stride_bytes)]
    place = (m.hbm.interleave_bytes, m.hbm.channels, m.l2.banks, int(m.hbm.index))
    far = sum(l2_bank_of(line, *place) >= half for line in lines) / len(lines)
    return near_ps + (latency_ps(mixed, L2_HIT) - near_ps) / far


def latencies(machine: Machine) -> Iterator[tuple[str, str, float]]:
    """(level, column, ps) of every level with a measured value."""
    preset, row = load_preset(machine.preset), measured(machine.row)
    for chase in (L1_HIT, L2_HIT, SIDE_CACHE, HBM):
        if row[chase.column]:
            yield chase.level, chase.column, latency_ps(preset, chase)
    if row[FAR_COLUMN]:
        yield "L2 hit, far", FAR_COLUMN, far_latency_ps(machine)


def stream_GBps(preset: Preset, flow: Flow, half_bytes: int) -> float:
    """Bandwidth of a long stream from HBM: the second half of a buffer."""
    times = [replay(preset, stream_source(preset, flow, count * half_bytes)).time_ps for count in (1, 2)]
    return (2 if flow == Flow.COPY else 1) * half_bytes * PS_PER_NS / (times[1] - times[0])


def bandwidths(machine: Machine) -> Iterator[tuple[str, str, float]]:
    """(level, column, GB/s) of every bandwidth with a measured value."""
    preset, row = load_preset(machine.preset), measured(machine.row)
    if row[L2_COLUMN]:
        yield "L2 read", L2_COLUMN, l2_GBps(machine.preset)
    for flow, column in STREAMS:
        if row[column]:
            yield f"HBM {flow.name.lower()}", column, stream_GBps(preset, flow, machine.stream_bytes)


def cells(machine: Machine, level: str, column: str, ours: float, tolerance: float) -> list[str]:
    """One row of a table of latencies or bandwidths."""
    theirs = float(measured(machine.row)[column])
    error = ours / theirs - 1
    verdict = "ok" if abs(error) <= tolerance else "off"
    kind = kind_of(load_preset(machine.preset), column)
    return [machine.preset, level, f"{theirs:,.0f}", f"{ours:,.1f}", f"{100 * error:+.1f} %", verdict, kind]


def latency_rows(machine: Machine) -> list[list[str]]:
    clock_ps = period_ps(float(measured(machine.row)["clock_MHz"]))
    return [cells(machine, level, column, ps / clock_ps, LATENCY_TOLERANCE) for level, column, ps in latencies(machine)]


def bandwidth_rows(machine: Machine) -> list[list[str]]:
    return [cells(machine, *found, BANDWIDTH_TOLERANCE) for found in bandwidths(machine)]


GEMM_SIDE = 8192
CUS = (304, 288, 256, 224)
TRAFFIC_TOLERANCE, RATE_TOLERANCE = 0.05, 0.07
MEASURED_TRAFFIC = ("gemm alone (torch/hipBLASLt)", "gemm alone (work-stealing Triton)")
TRAFFIC_COLUMNS = ("quantity", "measured: hipBLASLt", "work-stealing Triton", "ours", "error to hipBLASLt", "verdict")
RATE_COLUMNS = ("CUs", "measured (TFLOP/s)", "of the rate on 304", "ours", "of the rate on 304", "error", "verdict")
HIPBLASLT = GemmKernel(
    tile_m=256,
    tile_n=224,
    tile_k=32,
    warps_m=2,
    warps_n=2,
    pipeline_depth=2,
    copy=Copy.LDG,
    order=TileOrder.COLUMN,
    lanes=64,
    registers=512,
)
"""A kernel of hipBLASLt for this problem (assumed: the chosen kernel is not published)."""


class GemmResult(NamedTuple):
    """TFLOP/s, and bytes of an 8192^3 GEMM on a number of CUs."""

    tflops: float
    l2_read_miss_bytes: int
    side_hit_share: float
    hbm_read_bytes: int
    hbm_write_bytes: int


@cache
def gemm(cus: int, kernel: GemmKernel = HIPBLASLT, side: int = GEMM_SIDE) -> GemmResult:
    """Replay the GEMM with a part of the CUs, the same number on each die."""
    preset = load_preset("mi300x", [f"cu.count={cus}"])
    (result,) = simulate(CommandSequence([GemmSource(GemmProblem(side, side, side), kernel)]), preset).kernels
    total = result.totals
    read, written = total["msc.read_sectors"], total["msc.write_sectors"]
    missed = total["msc.read_miss_sectors"]
    return GemmResult(
        tflops=2 * side**3 / TERA / (result.time_ps / PS_PER_S),
        l2_read_miss_bytes=read * SECTOR_BYTES,
        side_hit_share=1 - missed / (read + written),
        hbm_read_bytes=total["hbm.read_columns"] * SECTOR_BYTES,
        hbm_write_bytes=total["hbm.write_columns"] * SECTOR_BYTES,
    )


def counters(scenario: str) -> dict[str, float]:
    """Measured figures of the GEMM: GB and a share."""
    with COUNTERS.open(encoding="utf-8", newline="") as file:
        row = next(line for line in csv.DictReader(file) if line["scenario"] == scenario)
    read, written = float(row["read_GB_x32"]), float(row["write_GB_x32"])
    hits = float(row["LLC(MALL)_hit_pct"]) / 100
    return {
        "reads that miss L2 (GB)": read,
        "hits of the memory-side cache, of reads and writes": hits,
        "HBM read (GB)": (1 - hits) * (read + written),
        "HBM written (GB)": written,
    }


def simulated() -> dict[str, float]:
    """The same figures of our GEMM."""
    found = gemm(CUS[0])
    names = list(counters(MEASURED_TRAFFIC[0]))
    values = (
        found.l2_read_miss_bytes / GIGA,
        found.side_hit_share,
        found.hbm_read_bytes / GIGA,
        found.hbm_write_bytes / GIGA,
    )
    return dict(zip(names, values, strict=True))


def traffic_rows() -> list[list[str]]:
    library, stealing = map(counters, MEASURED_TRAFFIC)
    rows = []
    for name, ours in simulated().items():
        error = ours / library[name] - 1
        verdict = "ok" if abs(error) <= TRAFFIC_TOLERANCE else "off"
        figures = (f"{value:.3f}" for value in (library[name], stealing[name], ours))
        rows.append([name, *figures, f"{100 * error:+.1f} %", verdict])
    return rows


def rates() -> dict[int, float]:
    """CUs -> measured TFLOP/s of the library's GEMM."""
    with RATES.open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["gemm_backend"] == "torch" and int(r["M"]) == GEMM_SIDE]
    return {int(row["cus_enabled"]): float(row["tflops"]) for row in rows}


def rate_rows() -> list[list[str]]:
    theirs, full, rows = rates(), CUS[0], []
    for cus in CUS:
        ours = gemm(cus).tflops
        error = ours / theirs[cus] - 1
        verdict = "ok" if abs(error) <= RATE_TOLERANCE else "off"
        shares = (theirs[cus] / theirs[full], ours / gemm(full).tflops)
        cells = [f"{cus}", f"{theirs[cus]:.0f}", f"{shares[0]:.3f}", f"{ours:.0f}", f"{shares[1]:.3f}"]
        rows.append([*cells, f"{100 * error:+.1f} %", verdict])
    return rows


def table() -> str:
    """The page as Markdown, with the explanation of NOTES."""
    head = (
        "Generated by `python -m validation.against.machines_of_today`. Measured: "
        "`validation/references/gpu_benches.csv`, `memory_counters_mi300x.csv`, `gemm_rate_against_cus_mi300x.csv`. "
        f"Ok: latency and traffic within {LATENCY_TOLERANCE:.0%}, bandwidth within {BANDWIDTH_TOLERANCE:.0%}, rate "
        f"within {RATE_TOLERANCE:.0%}."
    )
    return to_markdown(
        [
            Heading("Machines of today", 1),
            Text(head),
            Table(LATENCY_COLUMNS, [row for machine in MACHINES for row in latency_rows(machine)]),
            Table(BANDWIDTH_COLUMNS, [row for machine in MACHINES for row in bandwidth_rows(machine)]),
            Text("GEMM 8192 x 8192 x 8192 in bf16 on mi300x: traffic on 304 CUs, and rate against the number of CUs."),
            Table(TRAFFIC_COLUMNS, traffic_rows()),
            Table(RATE_COLUMNS, rate_rows()),
            notes(NOTES),
        ]
    )


def main() -> None:
    write_page(TABLE, table())


if __name__ == "__main__":
    main()
