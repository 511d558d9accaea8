"""GEMMs in bf16 of an MI300X: traffic against its counters, rate against the number of CUs, rate of one full wave.

`python -m validation.against.gemm_mi300x` writes `validation/tables/gemm_mi300x.md` (some minutes). The traffic, and
the rate on all CUs, are those of the whole GEMM of 8192^3. Another rate is that of the same tiles with fewer K-steps,
continued: the time of a tile is a constant and a share of K (D46), so two runs with small K give the line
(`continued_time_ps`). The library chooses the kernel for all CUs: it does not know that some are masked.
"""

from functools import cache
from math import prod
from pathlib import Path
from typing import NamedTuple

from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from sim.run.one_gpu import simulate
from tracer.data_type import DataType
from tracer.gemm.library import choose_kernel
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.command.script import without_options
from traces.schema import SECTOR_BYTES
from traces.units import GIGA, PS_PER_S, TERA
from validation.csv_file import read_csv

HERE = Path(__file__).parents[1]
COUNTERS = HERE / "references" / "memory_counters_mi300x.csv"
RATES = HERE / "references" / "gemm_rate_against_cus_mi300x.csv"
NOTES = HERE / "against" / "gemm_mi300x_notes.md"
TABLE = HERE / "tables" / "gemm_mi300x.md"
PRESET, ALL_CUS = "mi300x", 304
GEMM = 8192, 8192, 8192
ONE_WAVE, ONE_WAVE_TFLOPS = (4864, 4096, 32896), 708.0
"""The GEMM with which AMD measures the largest rate (ROCm/rocm-blogs, Measuring Max-Achievable FLOPs, part 2): 304
tiles of 256 x 256."""
CUS = (304, 288, 256, 224)
SHORT_K = (512, 1024)
TRAFFIC_TOLERANCE, RATE_TOLERANCE = 0.05, 0.07
MEASURED_TRAFFIC = ("gemm alone (torch/hipBLASLt)", "gemm alone (work-stealing Triton)")
DERIVED = "HBM read (GB)"
"""Not counted on the machine, so it has no verdict."""
TRAFFIC_COLUMNS = ("quantity", "measured: hipBLASLt", "work-stealing Triton", "ours", "error to hipBLASLt", "verdict")
RATE_COLUMNS = ("M x N x K", "CUs", "tile", "measured (TFLOP/s)", "ours", "error", "verdict")


class GemmResult(NamedTuple):
    """Time and traffic of a GEMM."""

    time_ps: int
    l2_read_miss_bytes: int
    side_hit_share: float
    hbm_read_bytes: int
    hbm_write_bytes: int


@cache
def kernel(shape: tuple[int, int, int]) -> GemmKernel:
    """The kernel that the library chooses for a GEMM on all CUs."""
    return choose_kernel(GemmProblem(*shape), gpu_facts(load_preset(PRESET).machine), DataType.BF16)


@cache
def gemm(shape: tuple[int, int, int], cus: int, k: int) -> GemmResult:
    """Replay a GEMM with this K on a part of the CUs, the same number on each die."""
    preset = load_preset(PRESET, [f"cu.count={cus}"])
    source = GemmSource(GemmProblem(*shape[:2], k), kernel(shape))
    (result,) = simulate(CommandSequence([source]), preset).kernels
    total = result.totals
    read, written = total["msc.read_sectors"], total["hbm.write_columns"]  # every write goes on to memory
    missed = total["msc.read_miss_sectors"]
    return GemmResult(
        time_ps=result.time_ps,
        l2_read_miss_bytes=read * SECTOR_BYTES,
        side_hit_share=1 - missed / (read + written),
        hbm_read_bytes=total["hbm.read_columns"] * SECTOR_BYTES,
        hbm_write_bytes=total["hbm.write_columns"] * SECTOR_BYTES,
    )


def continued_time_ps(shape: tuple[int, int, int], cus: int) -> float:
    """Time of a GEMM from two with a smaller K: each further K-step takes the same time."""
    (short, short_ps), (longer, longer_ps) = ((k, gemm(shape, cus, k).time_ps) for k in SHORT_K)
    return longer_ps + (longer_ps - short_ps) * (shape[2] - longer) / (longer - short)


def rate_tflops(cus: int) -> float:
    """TFLOP/s of the GEMM of 8192^3."""
    whole = gemm(GEMM, cus, GEMM[2]).time_ps if cus == ALL_CUS else continued_time_ps(GEMM, cus)
    return tflops(GEMM, whole)


def one_wave_tflops() -> float:
    """TFLOP/s of the GEMM with one tile on each CU."""
    return tflops(ONE_WAVE, continued_time_ps(ONE_WAVE, ALL_CUS))


def tflops(shape: tuple[int, int, int], time_ps: float) -> float:
    return 2 * prod(shape) / TERA / (time_ps / PS_PER_S)


def counters(scenario: str) -> dict[str, float]:
    """Measured figures of the GEMM: GB and a share."""
    row = next(line for line in read_csv(COUNTERS) if line["scenario"] == scenario)
    read, written = float(row["read_GB_x32"]), float(row["write_GB_x32"])
    hits = float(row["LLC(MALL)_hit_pct"]) / 100
    return {
        "reads that miss L2 (GB)": read,
        "hits of the memory-side cache, of reads and writes": hits,
        DERIVED: (1 - hits) * (read + written),
        "HBM written (GB)": written,
    }


def simulated() -> dict[str, float]:
    """The same figures of our GEMM."""
    found = gemm(GEMM, ALL_CUS, GEMM[2])
    names = list(counters(MEASURED_TRAFFIC[0]))
    values = (
        found.l2_read_miss_bytes / GIGA,
        found.side_hit_share,
        found.hbm_read_bytes / GIGA,
        found.hbm_write_bytes / GIGA,
    )
    return dict(zip(names, values, strict=True))


def figures(cus: int) -> dict[str, float]:
    """The rate on this number of CUs, on all also the traffic; 0 = the rate of the GEMM of one wave."""
    if not cus:
        return {"one_wave/TFLOP_per_s": one_wave_tflops()}
    return (simulated() if cus == ALL_CUS else {}) | {f"{cus}_cus/TFLOP_per_s": rate_tflops(cus)}


def traffic_rows() -> list[list[str]]:
    library, stealing = map(counters, MEASURED_TRAFFIC)
    rows = []
    for name, ours in simulated().items():
        error = ours / library[name] - 1
        verdict = "ok" if abs(error) <= TRAFFIC_TOLERANCE else "off"
        verdict = "" if name == DERIVED else verdict
        figures = (f"{value:.3f}" for value in (library[name], stealing[name], ours))
        rows.append([name, *figures, f"{100 * error:+.1f} %", verdict])
    return rows


def rates() -> dict[int, float]:
    """CUs -> measured TFLOP/s of the library's GEMM."""
    rows = [row for row in read_csv(RATES) if row["gemm_backend"] == "torch" and int(row["M"]) == GEMM[0]]
    return {int(row["cus_enabled"]): float(row["tflops"]) for row in rows}


def rate_rows() -> list[list[str]]:
    theirs = rates()
    rows = [(GEMM, cus, theirs[cus], rate_tflops(cus)) for cus in CUS]
    return [_rate_cells(*row) for row in (*rows, (ONE_WAVE, ALL_CUS, ONE_WAVE_TFLOPS, one_wave_tflops()))]


def _rate_cells(shape: tuple[int, int, int], cus: int, theirs: float, ours: float) -> list[str]:
    chosen, error = kernel(shape), ours / theirs - 1
    verdict = "ok" if abs(error) <= RATE_TOLERANCE else "off"
    tile = f"{chosen.tile_m} x {chosen.tile_n} x {chosen.tile_k}"
    return [
        " x ".join(map(str, shape)),
        f"{cus}",
        tile,
        f"{theirs:.0f}",
        f"{ours:.0f}",
        f"{100 * error:+.1f} %",
        verdict,
    ]


def table() -> str:
    """The page as Markdown, with the explanation of NOTES."""
    head = (
        "Generated by `python -m validation.against.gemm_mi300x`. Measured: "
        "`validation/references/memory_counters_mi300x.csv`, `gemm_rate_against_cus_mi300x.csv`. Ok: traffic within "
        f"{TRAFFIC_TOLERANCE:.0%}, rate within {RATE_TOLERANCE:.0%}."
    )
    return to_markdown(
        [
            Heading("GEMMs in bf16 on mi300x", 1),
            Text(head),
            Table(TRAFFIC_COLUMNS, traffic_rows()),
            Table(RATE_COLUMNS, rate_rows()),
            notes(NOTES),
        ]
    )


def main() -> None:
    write_page(TABLE, table())


if __name__ == "__main__":
    without_options(__doc__)
    main()
