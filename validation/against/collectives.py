"""Collectives of real machines against ours. Two points give an overhead and a link efficiency; the rest is predicted.

`python -m validation.against.collectives` writes `validation/tables/collectives.md` (some minutes). Measured: the time
of an NCCL collective (`validation/references/nccl_*.csv`; nccl-tests, out of place) over its size D. D is the input of
a GPU to a reduce-scatter, or its output of an all-gather. For each machine, number of GPUs and collective, 4 and 512 MB
calibrate `collective.launch_ps` and `link.efficiency`. All sizes between are predictions.

Runs are whole up to 128 MB. Above, time is linear in size: 256 and 512 MB are extrapolated from the line through 32 and
128 MB. `--whole` runs them; the notes of the table give the error of the line.

NCCL forwards a chunk in slices while the next slices arrive. `pipelined` puts the steps of a plan in that order. NCCL
also chooses protocol and number of channels by size; the simulator does not (D26).
"""

import argparse
import csv
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.collective.chunks import even_chunks
from sim.collective.kernel import Step
from sim.presets import load_preset
from sim.run.many_gpus import collective_launch, collective_plans, run_plan
from sim.spec import Machine
from tracer.gemm.source import OUTPUT_TILE
from traces.command.document import Bullets, Heading, Table, Text, notes, to_markdown, write_page
from traces.units import MIB, PS_PER_US

HERE = Path(__file__).parents[1]
NOTES = HERE / "against" / "collectives_notes.md"
TABLE = HERE / "tables" / "collectives.md"
REFERENCES = (HERE / "references" / "nccl_v100.csv", HERE / "references" / "nccl_a100.csv")
SIZES_MB = (4, 8, 16, 32, 64, 128, 256, 512)
CALIBRATION_MB = (4, 512)
LINE_MB = (32, 128)
"""Larger sizes are extrapolated with the line through these two."""
TILE_BYTES = 32 * 1024
"""Part of the buffer that a workgroup moves at one time (assumed)."""
ROW_BYTES = 512
"""Width of the buffer as a matrix without gaps: one access of a warp. A tile is then a band of rows of a workgroup."""
SLICE_BYTES = MIB
"""Size of a slice of a chunk (assumed: 512 KiB steps of NCCL's Simple protocol on a few channels)."""
FIT_COLUMNS = (
    *("machine", "GPUs", "collective", "links, peak (GB/s)", "measured slope (GB/s)", "link.efficiency"),
    *("overhead (us)", "mean error"),
)
SIZE_COLUMNS = ("machine", "GPUs", "collective", "MB", "measured", "ours", "error", "kind")
TARGET = 0.06
CLOSE, CORRECTIONS = 0.005, 3


class System(NamedTuple):
    """A measured machine: its preset, and the peak rate of all links of a GPU together, each way."""

    preset: str
    overrides: tuple[str, ...]
    link_GB_per_s: float
    links: str


SYSTEMS = {
    "Tesla V100-SXM2-32GB": System("v100", (), 150.0, "6 NVLink 2 of 25 GB/s each way (V100 white paper, WP-08608)"),
    "a100_sxm": System(
        "a100_80g", ("collective.cus=108",), 300.0, "12 NVLink 3 of 25 GB/s each way (A100 white paper)"
    ),
}


class Case(NamedTuple):
    """One measured curve."""

    system: str
    gpus: int
    kind: str


@dataclass(frozen=True)
class Fit:
    """Parameters from two measured points.

    Attributes:
        efficiency: link.efficiency.
        launch_ps: collective.launch_ps.
    """

    efficiency: float
    launch_ps: int


@cache
def measured() -> dict[Case, dict[int, float]]:
    """Case -> size in MB -> time in us."""
    times_us: dict[Case, dict[int, float]] = {}
    for path in REFERENCES:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                case = Case(row["system"], int(row["gpus"]), row["collective"])
                if (size := int(row["bytes"])) in {mb * MIB for mb in SIZES_MB}:
                    times_us.setdefault(case, {})[size // MIB] = float(row["time_us"])
    return times_us


def machine_of(case: Case, fit: Fit, size_mb: int) -> Machine:
    """The preset with the links of the measured machine and the calibrated values."""
    system = SYSTEMS[case.system]
    overrides = [
        *system.overrides,
        f"link.GB_per_s={system.link_GB_per_s}",
        f"link.efficiency={fit.efficiency:.5f}",
        f"collective.launch_ps={fit.launch_ps}",
        f"collective.slices={slices_of(case, size_mb)}",
    ]
    return load_preset(system.preset, overrides).machine


def slices_of(case: Case, size_mb: int) -> int:
    """Number of slices of a chunk."""
    return max(1, size_mb * MIB // case.gpus // SLICE_BYTES)


def flat_buffer(size_bytes: int) -> np.ndarray:
    """OUTPUT_TILE records of a buffer without gaps."""
    tiles = np.zeros(size_bytes // TILE_BYTES, OUTPUT_TILE)
    tiles["address"] = np.arange(len(tiles)) * TILE_BYTES
    tiles["runs"] = TILE_BYTES // ROW_BYTES
    tiles["run_bytes"] = tiles["pitch_bytes"] = ROW_BYTES
    return tiles


def pipelined(steps: Sequence[Step], slices: int) -> list[Step]:
    """Steps cut into slices. A slice of a step runs one turn after the same slice of the previous step.

    A turn has one slice of every step, so the data of a slice have a whole turn to arrive.
    """
    parts = [np.array_split(np.arange(len(step.tiles)), min(slices, len(step.tiles))) for step in steps]
    order = []
    for turn in range(max(map(len, parts)) + len(steps) - 1):
        for number, (step, pieces) in enumerate(zip(steps, parts, strict=True)):
            if 0 <= turn - number < len(pieces):
                piece = pieces[turn - number]
                cut = slice(piece[0], piece[-1] + 1)
                order.append(replace(step, tiles=step.tiles[cut], gates=step.gates[cut]))
    return order


def simulated_us(case: Case, fit: Fit, size_mb: int) -> float:
    """Time in us of a collective alone on idle GPUs, from launch to the last byte in memory. Checks its ledger."""
    machine = machine_of(case, fit, size_mb)
    chunks = even_chunks(size_mb * MIB // TILE_BYTES, case.gpus)
    plans = collective_plans(machine, case.kind, flat_buffer(size_mb * MIB), chunks)
    plans = [replace(plan, steps=pipelined(plan.steps, slices_of(case, size_mb))) for plan in plans]
    cus = (0, min(machine.collective.cus, machine.cu.count))
    result = run_plan(
        *(machine, plans, lambda plan: [collective_launch(machine, case.kind, plan, 0, cus)]), explicit=False
    )
    assert result.exactly_once, result.wrong
    return result.time_ps / PS_PER_US


def curve_us(case: Case, fit: Fit, sizes_mb: Sequence[int] = SIZES_MB, whole: bool = False) -> dict[int, float]:
    """Size in MB -> time in us. Without `whole`, sizes above LINE_MB are extrapolated with the line."""
    low, high = LINE_MB
    run = set(sizes_mb) if whole else {mb for mb in sizes_mb if mb <= high} | set(LINE_MB)
    times = {mb: simulated_us(case, fit, mb) for mb in sorted(run)}
    for mb in sizes_mb:
        if mb not in times:
            times[mb] = times[high] + (mb - high) * (times[high] - times[low]) / (high - low)
    return {mb: times[mb] for mb in sizes_mb}


def slope_ratio(case: Case, efficiency: float, few: int, many: int, whole: bool) -> float:
    """Our time for the bytes from `few` to `many` MB, divided by the measured time for the same number of bytes."""
    low, high = CALIBRATION_MB
    wanted_us = (measured()[case][high] - measured()[case][low]) * (many - few) / (high - low)
    ours = curve_us(case, Fit(efficiency, 0), (few, many), whole)
    return (ours[many] - ours[few]) / wanted_us


def fit_of(case: Case, whole: bool = False) -> Fit:
    """Efficiency and overhead with which 4 and 512 MB take their measured times (within CLOSE).

    The time of the 508 MB between gives the efficiency. It is corrected twice (first on smaller runs), and again while
    the error is larger than CLOSE. The rest of the time of 4 MB is the overhead.
    """
    times = measured()[case]
    low, high = CALIBRATION_MB
    payload = (case.gpus - 1) / case.gpus * (high - low) * MIB
    efficiency = payload / (times[high] - times[low]) / 1000 / SYSTEMS[case.system].link_GB_per_s
    for few, many in ((16, 64), CALIBRATION_MB):
        efficiency *= slope_ratio(case, efficiency, few, many, whole)
    for _ in range(CORRECTIONS):
        ratio = slope_ratio(case, efficiency, *CALIBRATION_MB, whole)
        if abs(ratio - 1) <= CLOSE:
            break
        efficiency *= ratio
    launch_us = times[low] - simulated_us(case, Fit(efficiency, 0), low)
    return Fit(round(efficiency, 5), max(0, round(launch_us * PS_PER_US)))


def errors(case: Case, times_us: dict[int, float]) -> dict[int, float]:
    """Size in MB -> relative error of ours, predictions only."""
    return {mb: times_us[mb] / measured()[case][mb] - 1 for mb in SIZES_MB if mb not in CALIBRATION_MB}


def mean_absolute(values: Sequence[float]) -> float:
    return sum(map(abs, values)) / len(values)


def run_case(case: Case, whole: bool = False) -> tuple[Fit, dict[int, float]]:
    """Calibrate, then simulate every size."""
    fit = fit_of(case, whole)
    return fit, curve_us(case, fit, SIZES_MB, whole)


def fit_row(case: Case, fit: Fit, times_us: dict[int, float]) -> list[str]:
    payload = (case.gpus - 1) / case.gpus * 508 * MIB
    bus = payload / (measured()[case][512] - measured()[case][4]) / 1000
    return [
        *(case.system, str(case.gpus), case.kind, f"{SYSTEMS[case.system].link_GB_per_s:.0f}", f"{bus:.0f}"),
        *(f"{fit.efficiency:.5f}", f"{fit.launch_ps / PS_PER_US:.2f}"),
        f"{100 * mean_absolute(list(errors(case, times_us).values())):.1f} %",
    ]


def size_rows(case: Case, times_us: dict[int, float], whole: bool) -> list[list[str]]:
    rows = []
    for mb in SIZES_MB:
        theirs, ours = measured()[case][mb], round(times_us[mb], 2)
        kind = "calibration" if mb in CALIBRATION_MB else "prediction"
        kind += ", extrapolated" if mb > LINE_MB[1] and not whole else ""
        cells = (*case, mb, f"{theirs:.2f}", f"{ours:.2f}", f"{100 * (ours / theirs - 1):+.1f} %", kind)
        rows.append([*map(str, cells)])
    return rows


def table(found: dict[Case, tuple[Fit, dict[int, float]]], whole: bool = False) -> str:
    """All curves as Markdown, with the explanation of NOTES."""
    every = [error for case, (_, times) in found.items() for error in errors(case, times).values()]
    systems = [
        f"{name}: preset `{system.preset}`{_with(system.overrides)}; {system.links}."
        for name, system in SYSTEMS.items()
    ]
    head = (
        "Generated by `python -m validation.against.collectives`. Measured: `validation/references/nccl_v100.csv` and\n"
        "`nccl_a100.csv`, each row with its source. Times in us."
    )
    summary = (
        f"Mean absolute relative error of the {len(every)} predicted points: {100 * mean_absolute(every):.1f} % "
        f"(target: {100 * TARGET:.0f} %). Each curve:"
    )
    return to_markdown(
        [
            Heading("Collectives of real machines", 1),
            Text(head),
            Bullets(systems),
            Text(summary),
            Table(FIT_COLUMNS, [fit_row(case, *found[case]) for case in found]),
            Table(SIZE_COLUMNS, [row for case in found for row in size_rows(case, found[case][1], whole)]),
            notes(NOTES),
        ]
    )


def _with(overrides: Sequence[str]) -> str:
    return f" with {', '.join(f'`{override}`' for override in overrides)}" if overrides else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Collectives of real machines against ours.")
    parser.add_argument("--whole", action="store_true", help="extrapolate nothing: an hour")
    whole = parser.parse_args().whole
    with ProcessPoolExecutor(1) as pool:  # one worker: the memory of a curve is freed before the next
        found = dict(zip(measured(), pool.map(run_case, measured(), [whole] * len(measured())), strict=True))
    write_page(TABLE, table(found, whole))


if __name__ == "__main__":
    main()
