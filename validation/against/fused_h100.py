"""GEMMs fused with a collective on 8 H100: blind predictions beside what others measured.

`python -m validation.against.fused_h100` writes `tables/fused_h100.md`. With `--predict` it first simulates all cases
(results in the store are used) and writes `predictions/fused_h100.csv`. The file was committed (4033ab2) before any of
the measured values was at hand; only the software, the shapes and the order of chunks were known (all of them make
chunk after chunk).

Nothing is fitted on H100. ADDED_US are times that were calibrated on one A100 row of each kind (`tables/overlap.md`).
Where a GPU has more than STEPS_MAX steps of tiles, times are on the line through two smaller M (kind: extrapolated);
a fused GEMM is not faster than the GEMM alone there.
Each value is the time of all GPUs; GEMM alone is one GPU. The collective alone is that of the library (NCCL).
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from sim.collective.chunks import even_chunks
from sim.presets import load_preset
from sim.run.run import Run
from sim.run.software import FLUX_GATHER, SoftwareRun
from sim.run.store import Store, run_or_get
from sim.scenario.collective import Collective, simulate_collective
from sim.scenario.scenario import Scenario
from tracer.gemm.source import GemmProblem, GemmSource, TileOrder
from traces.command.document import Block, Heading, Table, Text, notes, to_markdown, write_page
from traces.units import PS_PER_US
from validation.csv_file import read_csv, write_csv
from validation.errors import mean_errors

HERE = Path(__file__).parents[1]
PREDICTIONS = HERE / "predictions" / "fused_h100.csv"
REFERENCE = HERE / "references" / "fused_h100.csv"
NOTES = HERE / "against" / "fused_h100_notes.md"
TABLE = HERE / "tables" / "fused_h100.md"
MACHINE = ("h100_sxm", ("dispatch.chunks=one_by_one",))
GPUS = 8
FLUX, STORE_ADD, COPY_ENGINES, DECOMPOSED = "flux", "store_add", "copy_engines", "decomposed"
NEEDS = {
    FLUX: ("flux", "add"),
    STORE_ADD: ("t3",),
    COPY_ENGINES: ("copy_engines", "add"),
    DECOMPOSED: ("decomposed", "add"),
}
"""GEMM + RS: runs of a scenario (`sim.scenario.result`). Stores that add at their destination are T3's updates here."""
ADDED_US = {FLUX: 52.1, FLUX_GATHER: 111.2}
POWERS = tuple(1024 << k for k in range(6))
SHAPES = (
    # of one GPU: software, N, K, M
    (FLUX, 8192, 3584, POWERS),  # FLUX issue 90
    (FLUX_GATHER, 7168, 8192, POWERS),
    (FLUX, 8192, 1024, POWERS[3:]),  # FLUX issue 100
    *((STORE_ADD, 32768, k, (32768,)) for k in (512, 1024, 2048, 4096, 8192)),  # ThunderKittens (arXiv 2511.13940)
    (FLUX, 4096, 1024, (4096,)),  # Triton-distributed, pull request 166
    (FLUX, 8192, 3696, (8192,)),
    *((kind, 4096, 14336, (512, 1024, 2048)) for kind in (COPY_ENGINES, DECOMPOSED)),  # kraken, asynchronous TP
    *((FLUX_GATHER, n, k, POWERS[2:5]) for n, k in ((1792, 4096), (3584, 8192), (6656, 16384))),  # symm-mem-recipes
)
STEPS_MAX = 66_000
"""Steps of 128 x 256 x 64, of one GPU: a run of some minutes."""
FIGURES = ("gemm_us", "apart_us", "fused_us")
PATTERNS = {FLUX_GATHER: "AG+GEMM"} | dict.fromkeys(NEEDS, "GEMM+RS")
MEANS = (
    ("GEMM alone", "gemm_us", ()),
    ("GEMM and NCCL, apart", "apart_us", ()),
    ("fused, all", "fused_us", ()),
    *((f"fused, {name}", "fused_us", (name,)) for name in ("ThunderKittens", "Triton-distributed", "symm-mem-recipes")),
    *((f"fused, {name}", "fused_us", (name,)) for name in ("FLUX", "kraken", "PyTorch, asynchronous TP")),
)
HEADER = (
    *("software", "kind", "M", "N", "K", "GEMM (us)", "ours", "error", "apart (us)", "ours", "error"),
    *("fused (us)", "ours", "error", "prediction"),
)
COLUMNS = ("software", "gpus", "m", "n", "k", "gemm_us", "collective_us", "fused_us", "kind")


class Case(NamedTuple):
    """A fused GEMM; the shape is that of one GPU."""

    software: str
    m: int
    n: int
    k: int

    @property
    def steps(self) -> float:
        return self.m / 128 * self.n / 256 * self.k / 64


class Times(NamedTuple):
    """In us."""

    gemm_us: float
    collective_us: float
    fused_us: float


def cases() -> list[Case]:
    return [Case(software, m, n, k) for software, n, k, sizes in SHAPES for m in sizes]


def runs_of(case: Case) -> Iterator[Run]:
    """The GEMM alone, then those whose sum is the fused time."""
    preset, problem = load_preset(*MACHINE), GemmProblem(*case[1:])
    scenario = Scenario.of_library(preset, problem, GPUS)
    yield scenario.run("gemm")
    if case.software != FLUX_GATHER:
        yield from map(scenario.run, NEEDS[case.software])
        return
    group = max(1, case.m // GPUS // scenario.kernel.tile_m)
    source = GemmSource(problem, replace(scenario.kernel, order=TileOrder.GROUPED, group=group))
    chunks = even_chunks(source.tiles, GPUS, source.kernel.cluster)
    yield SoftwareRun(preset=preset, source=source, chunks=chunks, kind=FLUX_GATHER)


def simulated(case: Case, store: Store) -> tuple[float, float]:
    """Times of the GEMM alone and fused, in us."""
    results = [run_or_get(run, store).result for run in runs_of(case)]
    assert all(result.exactly_once for result in results)
    alone, *fused = (result.time_ps / PS_PER_US for result in results)
    return alone, sum(fused)


def sizes_of(case: Case) -> tuple[int, ...]:
    """M to simulate: its own, or the two largest halves of it with few enough steps."""
    m = case.m
    while case._replace(m=m).steps > STEPS_MAX:
        m //= 2
    return (m,) if m == case.m else (m // 2, m)


def predicted(case: Case, store: Store) -> Times:
    """Times of a case."""
    sizes = sizes_of(case)
    small, large = (simulated(case._replace(m=m), store) for m in (sizes[0], sizes[-1]))
    share = (case.m - sizes[-1]) / (sizes[-1] - sizes[0]) if len(sizes) == 2 else 0
    alone, fused = (b + share * (b - a) for a, b in zip(small, large, strict=True))
    kind, columns = ("all_gather", case.k) if case.software == FLUX_GATHER else ("reduce_scatter", case.n)
    collective = simulate_collective(Collective(load_preset(MACHINE[0]), kind, GPUS, 2 * case.m * columns), store)
    fused = max(fused, alone) if len(sizes) == 2 else fused
    return Times(alone, collective.time_ns / 1000, fused + ADDED_US.get(case.software, 0))


def write_predictions(store: Store) -> None:
    found = {case: predicted(case, store) for case in cases()}
    rows = []
    for case, times in found.items():
        kind = "simulated" if len(sizes_of(case)) == 1 else "extrapolated"
        rows.append((case.software, GPUS, *case[1:], *(f"{value:.1f}" for value in times), kind))
    write_csv(PREDICTIONS, COLUMNS, rows)


def read(path: Path) -> dict[Case, dict[str, str]]:
    """Case -> its row of a file."""
    return {Case(row["software"], *(int(row[name]) for name in "mnk")): row for row in read_csv(path)}


def pairs() -> dict[Case, dict[str, tuple[float, float]]]:
    """Case -> figure -> measured and predicted time in us, of measured figures."""
    ours, found = read(PREDICTIONS), {}
    for case, row in read(REFERENCE).items():
        times = {name: float(ours[case][name]) for name in ("gemm_us", "collective_us", "fused_us")}
        times["apart_us"] = times["gemm_us"] + times["collective_us"]
        found[case] = {name: (float(row[name]), times[name]) for name in FIGURES if row[name]}
    return found


def errors(figure: str, software: Collection[str] = ()) -> list[float]:
    """Signed relative errors of a figure. software: measured software, () = all."""
    names = {case: row["measured_software"] for case, row in read(REFERENCE).items()}
    chosen = [
        own[figure] for case, own in pairs().items() if figure in own and (not software or names[case] in software)
    ]
    return [ours / measured - 1 for measured, ours in chosen]


def table() -> str:
    """The page."""
    blocks: list[Block] = [
        Heading("GEMMs fused with a collective on 8 H100", 1),
        Text(
            "Generated by `python -m validation.against.fused_h100`. Measured by others: "
            "`validation/references/fused_h100.csv`. Predicted blind: `validation/predictions/fused_h100.csv`. "
            "*Apart*: GEMM (cuBLAS), then the collective (NCCL)."
        ),
        _means(),
        notes(NOTES),
        Heading("All cases", 2),
    ]
    ours, compared, rows = read(PREDICTIONS), pairs(), []
    for case, row in read(REFERENCE).items():
        cells = [cell for name in FIGURES for cell in _cells(*compared[case].get(name, ()))]
        rows.append(
            [row["measured_software"], PATTERNS[case.software], *map(str, case[1:]), *cells, ours[case]["kind"]]
        )
    return to_markdown([*blocks, Table(HEADER, rows)])


def _cells(measured_us: float = 0, ours_us: float = 0) -> list[str]:
    """Measured time, ours and its error; blank if nothing was measured."""
    if not measured_us:
        return ["", "", ""]
    return [f"{measured_us:,.0f}", f"{ours_us:,.0f}", f"{ours_us / measured_us - 1:+.1%}"]


def _means() -> Table:
    rows = []
    for what, figure, software in MEANS:
        found = errors(figure, software)
        absolute, mean = mean_errors(found)
        rows.append([what, str(len(found)), f"{absolute:.1%}", f"{mean:+.1%}"])
    return Table(("figure", "values", "mean absolute error", "mean error"), rows)


@click.command()
@click.option("--predict", is_flag=True, help="Simulate, and write the predictions anew.")
def main(predict: bool) -> None:
    """Write the page."""
    if predict:
        write_predictions(Store())
    write_page(TABLE, table())


if __name__ == "__main__":
    main()
