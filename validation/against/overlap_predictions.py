"""Blind predictions: layers of Llama-3-70B on 4 and 8 A100, GEMM and collective apart, fused by software, and ideal.

`python -m validation.against.overlap_predictions` writes `predictions/overlap_llama3_70b_a100.csv`. Machine, links and
the added times are those of `validation.against.overlap`, which were calibrated on GPT-3's layers. The file was
committed before any measurement of these layers was at hand. SIMULATED says which M are simulated. Where these are two,
larger M are extrapolated along the line through them (kind: extrapolated). The clock is 1410 MHz: under long GEMMs a
real A100 is slower. The collective alone is simulated too, with the launch that makes that of the calibrating row of
GEMM + RS exact.
"""

from pathlib import Path
from typing import NamedTuple

import click

from sim.run.gpus_run import CollectiveRun
from sim.run.store import Store, run_or_get
from traces.units import PS_PER_US
from validation.against.overlap import (
    GATHER,
    SCATTER,
    Ours,
    Row,
    added,
    calibrates,
    machine,
    measured,
    simulate,
    source_of,
)
from validation.csv_file import write_csv

FILE = Path(__file__).parents[1] / "predictions" / "overlap_llama3_70b_a100.csv"
SIMULATED = {
    (8, "OP"): (1024, 2048),
    (8, "down"): (1024, 2048),
    (8, "QKV"): (1024, 2048),
    (8, "gate and up"): (1024,),
    (4, "OP"): (1024,),
    (4, "down"): (1024,),
    (4, "QKV"): (1024,),
}
"""(Number of GPUs, layer) -> M. Longer ones take minutes."""
EXTRAPOLATED = (4096, 8192)
HIDDEN, INNER, QKV = 8192, 28672, 8192 + 2 * 1024
"""Widths of Llama-3-70B: hidden, of the feed-forward layer, and of Q, K and V together."""
CLOCK_MHZ = 1410.0
COLUMNS = (
    "gpus",
    "pattern",
    "layer",
    "m",
    "n",
    "k",
    "gemm_us",
    "collective_us",
    "apart_us",
    "fused_us",
    "ideal_us",
    "kind",
)


class Times(NamedTuple):
    """Times of a layer in us, with the added times."""

    gemm_us: float
    collective_us: float
    fused_us: float


def layers(gpus: int, m: int) -> list[Row]:
    """The layers of one GPU; measured times are unknown."""
    shapes = (
        (SCATTER, "OP", HIDDEN, HIDDEN // gpus),
        (SCATTER, "down", HIDDEN, INNER // gpus),
        (GATHER, "QKV", QKV // gpus, HIDDEN),
        (GATHER, "gate and up", 2 * INNER // gpus, HIDDEN),
    )
    return [Row(pattern, layer, m, n, k, CLOCK_MHZ, 0, 0, 0) for pattern, layer, n, k in shapes]


def collective_us(row: Row, gpus: int, store: Store) -> float:
    """The reduce-scatter of the output, or the all-gather of A, which has as many elements per row as K."""
    preset = machine(CLOCK_MHZ)
    kind, columns = ("reduce_scatter", row.n) if row.pattern == SCATTER else ("all_gather", row.k)
    moved = row._replace(pattern=SCATTER, n=columns, k=64)
    source, chunks = source_of(moved, preset, gpus)
    run = CollectiveRun(preset=preset, source=source, chunks=chunks, kind=kind)
    return run_or_get(run, store).result.time_ps / PS_PER_US


def predicted(store: Store) -> dict[tuple[int, Row], Times]:
    """Times of the simulated layers."""
    first, second = (row for row in measured() if calibrates(row))
    times_added = added({row: simulate(row, store) for row in (first, second)})
    launch_us = first.collective_us - collective_us(first, 8, store)
    found = {}
    for (gpus, layer), sizes in SIMULATED.items():
        for m in sizes:
            row = next(row for row in layers(gpus, m) if row.layer == layer)
            ours: Ours = simulate(row, store, gpus)
            more, alone_us = times_added[row.pattern], collective_us(row, gpus, store) + launch_us
            found[gpus, row] = Times(ours.gemm_us + more.gemm_us, alone_us, ours.fused_us + more.fused_us)
    return found


def extrapolated(times: dict[tuple[int, Row], Times]) -> dict[tuple[int, Row], Times]:
    """Times at EXTRAPOLATED M, along the line through the simulated ones."""
    found = {}
    for (gpus, row), begin in times.items():
        small, large = SIMULATED[gpus, row.layer][0], SIMULATED[gpus, row.layer][-1]
        if row.m == small < large:
            end = times[gpus, row._replace(m=large)]
            for m in EXTRAPOLATED:
                share = (m - large) / (large - small)
                found[gpus, row._replace(m=m)] = Times(*(b + share * (b - a) for a, b in zip(begin, end, strict=True)))
    return found


def csv_row(gpus: int, row: Row, times: Times, kind: str) -> list[str | int]:
    apart, ideal = times.gemm_us + times.collective_us, max(times.gemm_us, times.collective_us)
    figures = (times.gemm_us, times.collective_us, apart, times.fused_us, ideal)
    return [gpus, row.pattern, row.layer, row.m, row.n, row.k, *(f"{value:.1f}" for value in figures), kind]


@click.command()
def main() -> None:
    """Write the predictions."""
    simulated = predicted(Store())
    rows = [csv_row(gpus, row, times, "simulated") for (gpus, row), times in simulated.items()]
    rows += [csv_row(gpus, row, times, "extrapolated") for (gpus, row), times in extrapolated(simulated).items()]
    rows.sort(key=lambda row: (-int(row[0]), *row[1:3]))
    write_csv(FILE, COLUMNS, rows)


if __name__ == "__main__":
    main()
