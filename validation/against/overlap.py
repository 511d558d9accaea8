"""GEMM and collective fused by software (FLUX) on 8 A100, against measurements.

`python -m validation.against.overlap` simulates all measured rows (results in the store are used) and writes
`tables/overlap.md`.

Calibrated, and so no prediction: the rate of the links from the slope of the measured collective (CALIBRATION_BYTES);
from a row of each kind (CALIBRATION), what the fused kernels of this kind take longer than ours (launches, the barrier
of all GPUs), added to all rows of the kind; from the first of the two, what a GEMM alone takes longer (launch, cold
start), added to all rows. The collective alone is the measured one, so that "apart" and "ideal" differ from the
measured ones by the GEMM only.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sim.collective.chunks import Chunks, even_chunks
from sim.collective.software import FLUX
from sim.gemm_facts import gpu_facts
from sim.presets import Preset, load_preset
from sim.run.gpus_run import CollectiveRun
from sim.run.run import Run, gemm_run
from sim.run.software import FLUX_GATHER, SoftwareRun
from sim.run.store import Store, run_or_get
from tracer.gemm.library import choose_kernel
from tracer.gemm.source import GemmProblem, GemmSource, TileOrder
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.command.script import without_options
from traces.units import PS_PER_US
from validation.csv_file import read_csv
from validation.errors import mean_errors

HERE = Path(__file__).parents[1]
REFERENCE = HERE / "references" / "gemm_with_collective_a100.csv"
NOTES = HERE / "against" / "overlap_notes.md"
TABLE = HERE / "tables" / "overlap.md"
GPUS = 8
LINK_GB_PER_S = 300.0
"""12 NVLink 3 of 25 GB/s each way (A100 white paper)."""
SCATTER, GATHER = "GEMM+RS", "AG+GEMM"
FLUX_ORDER = "dispatch.chunks=one_by_one"
"""FLUX (arXiv 2406.06858) makes chunk after chunk, and each GPU begins with another one."""
CALIBRATION_BYTES = (201326592, 402653184)
GOAL = 0.10
LARGE_M = 1024
COLUMNS = (
    *("layer", "M", "GEMM", "ours", "error", "fused", "ours", "error"),
    *("speed-up of fused", "ours", "ideal speed-up", "ours", "kind"),
)


class Row(NamedTuple):
    """A measured row; times in us."""

    pattern: str
    layer: str
    m: int
    n: int
    k: int
    clock_MHz: float
    gemm_us: float
    collective_us: float
    fused_us: float

    @property
    def operations(self) -> float:
        return 2.0 * self.m * self.n * self.k


class Ours(NamedTuple):
    """Simulated times of a row in us, before the calibrated times are added."""

    gemm_us: float
    fused_us: float


CALIBRATION = ((SCATTER, "GPT-3 OP", 16), (GATHER, "GPT-3 QKV", 64))
"""A row of each kind."""


@cache
def measured() -> tuple[Row, ...]:
    """All measured rows."""
    return tuple(
        Row(
            *(row["pattern"], row["layer"], int(row["M"]), int(row["N_per_gpu"]), int(row["K_per_gpu"])),
            *(float(row["sm_clock_MHz"]), float(row["cublas_gemm_us"]), float(row["nccl_collective_us"])),
            float(row["flux_fused_us"]),
        )
        for row in read_csv(REFERENCE)
    )


@cache
def link_efficiency() -> float:
    """Share of the peak of the links, from the slope of the measured reduce-scatter between two sizes."""
    times = {}
    for row in read_csv(REFERENCE):
        if row["pattern"] == SCATTER and row["collective_kind"] == "measured":
            times[int(row["collective_bytes"])] = float(row["nccl_collective_us"])
    small, large = CALIBRATION_BYTES
    sent_bytes = (large - small) * (GPUS - 1) / GPUS
    return round(sent_bytes / (times[large] - times[small]) / 1e3 / LINK_GB_PER_S, 3)


def machine(clock_MHz: float) -> Preset:
    """Eight A100 on their switches, with the clock of the row, and FLUX's order of chunks."""
    clocks = [f"{unit}.clock_MHz={clock_MHz}" for unit in ("cu", "noc", "l2")]
    links = ["link.topology=switch", f"link.GB_per_s={LINK_GB_PER_S}", f"link.efficiency={link_efficiency()}"]
    return load_preset("a100_80g", [*clocks, *links, "collective.cus=108", FLUX_ORDER])


def source_of(row: Row, preset: Preset, gpus: int = GPUS) -> tuple[GemmSource, Chunks]:
    """The GEMM of one GPU with the library's best kernel without split-K, and its chunks.

    For AG + GEMM the walk finishes the rows of one GPU before those of the next, as far as tiles allow it.
    """
    problem = GemmProblem(row.m, row.n, row.k)
    kernel = choose_kernel(problem, gpu_facts(preset.machine), tracked=True)
    if row.pattern == GATHER:
        kernel = replace(kernel, order=TileOrder.GROUPED, group=max(1, row.m // gpus // kernel.tile_m))
    source = GemmSource(problem, kernel)
    return source, even_chunks(source.tiles, gpus, source.kernel.cluster)


def runs_of(row: Row, gpus: int = GPUS) -> tuple[Run, ...]:
    """The GEMM alone, then what the fused time is the sum of."""
    preset = machine(row.clock_MHz)
    source, chunks = source_of(row, preset, gpus)
    alone = gemm_run(preset, GemmSource(source.problem, choose_kernel(source.problem, gpu_facts(preset.machine))))
    if row.pattern == GATHER:
        return alone, SoftwareRun(preset=preset, source=source, chunks=chunks, kind=FLUX_GATHER)
    fused = SoftwareRun(preset=preset, source=source, chunks=chunks, kind=FLUX)
    return alone, fused, CollectiveRun(preset=preset, source=source, chunks=chunks, kind="local_reduce")


def simulate(row: Row, store: Store, gpus: int = GPUS) -> Ours:
    """Simulated times of a row."""
    results = [run_or_get(run, store).result for run in runs_of(row, gpus)]
    assert all(result.exactly_once for result in results)
    alone, *fused = (result.time_ps / PS_PER_US for result in results)
    return Ours(alone, sum(fused))


def calibrates(row: Row) -> bool:
    return (row.pattern, row.layer, row.m) in CALIBRATION


def added(ours: Mapping[Row, Ours]) -> dict[str, Ours]:
    """Kind -> the calibrated times: what the rows CALIBRATION take longer than ours."""
    rows = {row.pattern: row for row in ours if calibrates(row)}
    gemm_us = rows[SCATTER].gemm_us - ours[rows[SCATTER]].gemm_us
    return {pattern: Ours(gemm_us, row.fused_us - ours[row].fused_us) for pattern, row in rows.items()}


def calibrated(ours: Mapping[Row, Ours]) -> dict[Row, Ours]:
    """Our times with the calibrated times added."""
    more = added(ours)
    return {
        row: Ours(time.gemm_us + more[row.pattern].gemm_us, time.fused_us + more[row.pattern].fused_us)
        for row, time in ours.items()
    }


def speedup(row: Row, gemm_us: float, fused_us: float) -> tuple[float, float]:
    """Speed-ups over GEMM and collective apart: fused, and ideal, where the longer of the two hides the other."""
    apart_us = gemm_us + row.collective_us
    return apart_us / fused_us, apart_us / max(gemm_us, row.collective_us)


def errors(times: Mapping[Row, Ours]) -> dict[Row, float]:
    """Relative error of the fused time of the predicted rows. times: with the calibrated times."""
    return {row: ours.fused_us / row.fused_us - 1 for row, ours in times.items() if not calibrates(row)}


def table(simulated: Mapping[Row, Ours]) -> str:
    """All rows as Markdown, with the explanation of NOTES."""
    times = calibrated(simulated)
    wrong = errors(times)
    more = added(simulated)
    head = (
        "Generated by `python -m validation.against.overlap`. Measured: `validation/references/"
        "gemm_with_collective_a100.csv` (8 A100 80 GB on NVLink switches, bf16; FLUX, cuBLAS and NCCL). "
        f"Preset a100_80g with the clock of each row. Calibrated: link.efficiency {link_efficiency()} of "
        f"{LINK_GB_PER_S:.0f} GB/s; {more[SCATTER].gemm_us:.1f} us added to each GEMM, "
        + ", ".join(f"{each.fused_us:.1f} us to each fused time of {pattern}" for pattern, each in more.items())
        + "."
    )
    return to_markdown(
        [
            Heading("GEMM and collective fused by software against measurements", 1),
            Text(head),
            Table(("rows", "number", "mean absolute error of the fused time", "mean error"), _means(wrong)),
            Table(COLUMNS, [_cells(row, ours, row in wrong) for row, ours in times.items()]),
            notes(NOTES),
        ]
    )


def _means(wrong: Mapping[Row, float]) -> list[list[str]]:
    rows = []
    for pattern in (SCATTER, GATHER):
        for name, chosen in ((f"M >= {LARGE_M}", lambda m: m >= LARGE_M), (f"M < {LARGE_M}", lambda m: m < LARGE_M)):
            own = [error for row, error in wrong.items() if row.pattern == pattern and chosen(row.m)]
            if own:
                absolute, mean = mean_errors(own)
                verdict = "reached" if absolute <= GOAL else "missed"
                cells = [f"{100 * absolute:.1f} % (goal {GOAL:.0%} {verdict})", f"{100 * mean:+.1f} %"]
                rows.append([f"{pattern}, {name}", str(len(own)), *cells])
    return rows


def _cells(row: Row, ours: Ours, predicted: bool) -> list[str]:
    cells = [f"{row.pattern} {row.layer.removeprefix('GPT-3 ')}", str(row.m)]
    for measured_us, our_us in ((row.gemm_us, ours.gemm_us), (row.fused_us, ours.fused_us)):
        cells += [f"{measured_us:,.1f}", f"{our_us:,.1f}", f"{100 * (our_us / measured_us - 1):+.1f} %"]
    pairs = zip(speedup(row, row.gemm_us, row.fused_us), speedup(row, *ours), strict=True)
    cells += [f"{value:.2f}" for pair in pairs for value in pair]
    return [*cells, "prediction" if predicted else "calibration"]


def main() -> None:
    store = Store()
    write_page(TABLE, table({row: simulate(row, store) for row in measured()}))


if __name__ == "__main__":
    without_options(__doc__)
    main()
