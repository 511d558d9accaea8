"""The 8192^3 GEMM in bf16 of an MI300X: traffic against its counters, and rate against the number of CUs.

`python -m validation.against.gemm_mi300x` writes `validation/tables/gemm_mi300x.md` (some minutes). The traffic is that
of the whole GEMM on 304 CUs. A rate is that of the same tiles with fewer K-steps, continued: the time of a tile is a
constant and a share of K, so two runs with small K give the line (`continued_time_ps`).
"""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sim.presets import load_preset
from sim.run.one_gpu import simulate
from tracer.gemm.source import Copy, GemmKernel, GemmProblem, GemmSource, TileOrder
from tracer.sequence import CommandSequence
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.schema import SECTOR_BYTES
from traces.units import GIGA, PS_PER_S, TERA

HERE = Path(__file__).parents[1]
COUNTERS = HERE / "references" / "memory_counters_mi300x.csv"
RATES = HERE / "references" / "gemm_rate_against_cus_mi300x.csv"
NOTES = HERE / "against" / "gemm_mi300x_notes.md"
TABLE = HERE / "tables" / "gemm_mi300x.md"
GEMM_SIDE = 8192
CUS = (304, 288, 256, 224)
SHORT_K = (512, 1024)
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
    """Time and traffic of a GEMM."""

    time_ps: int
    l2_read_miss_bytes: int
    side_hit_share: float
    hbm_read_bytes: int
    hbm_write_bytes: int


@cache
def gemm(cus: int, k: int = GEMM_SIDE) -> GemmResult:
    """Replay the GEMM, or one with a smaller K, with a part of the CUs, the same number on each die."""
    preset = load_preset("mi300x", [f"cu.count={cus}"])
    source = GemmSource(GemmProblem(GEMM_SIDE, GEMM_SIDE, k), HIPBLASLT)
    (result,) = simulate(CommandSequence([source]), preset).kernels
    total = result.totals
    read, written = total["msc.read_sectors"], total["msc.write_sectors"]
    missed = total["msc.read_miss_sectors"]
    return GemmResult(
        time_ps=result.time_ps,
        l2_read_miss_bytes=read * SECTOR_BYTES,
        side_hit_share=1 - missed / (read + written),
        hbm_read_bytes=total["hbm.read_columns"] * SECTOR_BYTES,
        hbm_write_bytes=total["hbm.write_columns"] * SECTOR_BYTES,
    )


def continued_time_ps(cus: int) -> float:
    """Time of the whole GEMM from two with a smaller K: each further K-step takes the same time."""
    (short, short_ps), (longer, longer_ps) = ((k, gemm(cus, k).time_ps) for k in SHORT_K)
    return longer_ps + (longer_ps - short_ps) * (GEMM_SIDE - longer) / (longer - short)


def tflops(time_ps: float) -> float:
    return 2 * GEMM_SIDE**3 / TERA / (time_ps / PS_PER_S)


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
        ours = tflops(continued_time_ps(cus))
        error = ours / theirs[cus] - 1
        verdict = "ok" if abs(error) <= RATE_TOLERANCE else "off"
        shares = (theirs[cus] / theirs[full], ours / tflops(continued_time_ps(full)))
        cells = [f"{cus}", f"{theirs[cus]:.0f}", f"{shares[0]:.3f}", f"{ours:.0f}", f"{shares[1]:.3f}"]
        rows.append([*cells, f"{100 * error:+.1f} %", verdict])
    return rows


def table() -> str:
    """The page as Markdown, with the explanation of NOTES."""
    head = (
        "Generated by `python -m validation.against.gemm_mi300x`. Measured: "
        "`validation/references/memory_counters_mi300x.csv`, `gemm_rate_against_cus_mi300x.csv`. Ok: traffic within "
        f"{TRAFFIC_TOLERANCE:.0%}, rate within {RATE_TOLERANCE:.0%}."
    )
    return to_markdown(
        [
            Heading("GEMM 8192 x 8192 x 8192 in bf16 on mi300x", 1),
            Text(head),
            Table(TRAFFIC_COLUMNS, traffic_rows()),
            Table(RATE_COLUMNS, rate_rows()),
            Text(f"The whole GEMM on {CUS[0]} CUs: {tflops(gemm(CUS[0]).time_ps):.0f} TFLOP/s, simulated to its end."),
            notes(NOTES),
        ]
    )


def main() -> None:
    write_page(TABLE, table())


if __name__ == "__main__":
    main()
