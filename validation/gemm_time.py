"""Time of large GEMMs on two machines against measurements.

`python -m validation.gemm_time` writes `tables/gemm_time.md`. All workgroups run the same K loop, so every row is
replayed at two smaller K and the rest of the loop goes at the pace between them. `--whole M` replays the rows with
that M whole and prints both; NOTES keeps what that gave.
"""

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path
from time import process_time
from typing import NamedTuple

import click

from sim.gpu import Gpu
from sim.occupancy import occupancy
from sim.presets import load_preset
from sim.units import PS_PER_US
from tracer.gemm import Copy, GemmKernel, GemmProblem, GemmSource, TileOrder

HERE = Path(__file__).parent
REFERENCES = HERE / "references"
NOTES = HERE / "gemm_time_notes.md"
TABLE = HERE / "tables" / "gemm_time.md"
LEAST_M = 512
SAMPLE_K = (2048, 4096)
"""Depths that are replayed instead of K."""
GOAL = 0.10

CUTLASS = GemmKernel(
    tile_m=256,
    tile_n=128,
    tile_k=64,
    warps_m=4,
    warps_n=2,
    pipeline_depth=3,
    fragment_pieces=4,
    copy=Copy.ASYNC,
    order=TileOrder.GROUPED,
    group=8,
)
"""Shape of a large tensor-core kernel of CUTLASS on sm_80 (assumed: which kernel the library took is not known)."""
ROCBLAS = replace(CUTLASS, tile_k=32, copy=Copy.LDG, lanes=64)
"""The same tile on CDNA 2, which has no asynchronous copies and 64 KB of LDS (assumed)."""


class Machine(NamedTuple):
    """A preset, its measurements, the kernel that we replay, and the row (M) that its compute rate is calibrated on."""

    preset: str
    file: str
    kernel: GemmKernel
    calibrated_m: int


MACHINES = (
    Machine("a100_80g", "a100_gemm.csv", CUTLASS, 8192),
    Machine("mi210", "mi210_gemm.csv", ROCBLAS, 8192),
)


class Row(NamedTuple):
    """A measured GEMM."""

    m: int
    n: int
    k: int
    time_us: float


def measured(machine: Machine) -> list[Row]:
    """The rows with M >= LEAST_M."""
    with (REFERENCES / machine.file).open(encoding="utf-8", newline="") as file:
        rows = [Row(int(r["M"]), int(r["N"]), int(r["K"]), float(r["time_us"])) for r in csv.DictReader(file)]
    return [row for row in rows if row.m >= LEAST_M]


@cache
def source_of(machine: Machine, row: Row) -> GemmSource:
    """The synthesised kernel of a row."""
    return GemmSource(GemmProblem(m=row.m, n=row.n, k=row.k), machine.kernel)


@cache
def replay_ps(machine: Machine, row: Row) -> int:
    """Time of a row, replayed."""
    return Gpu(load_preset(machine.preset).machine).run_kernel(source_of(machine, row), 0, None)


def sampled_ps(machine: Machine, row: Row) -> float:
    """The same from replays at SAMPLE_K: linear in K."""
    short_k, long_k = SAMPLE_K
    if row.k <= long_k:
        return replay_ps(machine, row)
    short_ps, long_ps = (replay_ps(machine, row._replace(k=k)) for k in SAMPLE_K)
    return long_ps + (row.k - long_k) * (long_ps - short_ps) / (long_k - short_k)


def wave_workgroups(machine: Machine, row: Row) -> int:
    """Workgroups that run at once."""
    cu, info = load_preset(machine.preset).machine.cu, source_of(machine, row).info
    return cu.count * occupancy(cu, machine.kernel.threads, info.registers, info.shared_bytes).workgroups


class Outcome(NamedTuple):
    """Our time of a row; waves: full waves, rest: workgroups of the last one."""

    row: Row
    time_us: float
    waves: int
    rest: int


def outcome(machine: Machine, row: Row) -> Outcome:
    """Our time of a row."""
    waves, rest = divmod(source_of(machine, row).tiles, wave_workgroups(machine, row))
    return Outcome(row, sampled_ps(machine, row) / PS_PER_US, waves, rest)


def error(found: Outcome) -> float:
    """Relative, positive where ours takes longer."""
    return found.time_us / found.row.time_us - 1


def table_row(machine: Machine, found: Outcome) -> str:
    """One row of the table."""
    row, slots = found.row, wave_workgroups(machine, found.row)
    full = found.waves * slots + found.rest
    fill = full / (-(-full // slots) * slots)
    kind = "calibration" if row.m == machine.calibrated_m else "prediction"
    cells = [machine.preset, f"{row.m} x {row.n} x {row.k}", f"{found.waves} + {found.rest}/{slots}", f"{fill:.3f}"]
    cells += [f"{row.time_us:,.1f}", f"{found.time_us:,.1f}", f"{100 * error(found):+.1f} %", kind]
    return f"| {' | '.join(cells)} |"


def mean_row(machine: Machine, found: list[Outcome]) -> str:
    """Mean absolute error, of all rows and of the predicted ones."""
    predicted = [abs(error(o)) for o in found if o.row.m != machine.calibrated_m]
    every = sum(abs(error(o)) for o in found) / len(found)
    mean = sum(predicted) / len(predicted)
    verdict = "reached" if mean <= GOAL else "missed"
    return f"| {machine.preset} | {100 * every:.1f} % | {100 * mean:.1f} % | {verdict} |"


def table() -> str:
    """All rows as Markdown, with the explanation of NOTES."""
    found = {machine.preset: [outcome(machine, row) for row in measured(machine)] for machine in MACHINES}
    return "\n".join(
        [
            "# Time of large GEMMs against measurements",
            "",
            "Generated by `python -m validation.gemm_time`. Measured: `validation/references/a100_gemm.csv`, "
            "`mi210_gemm.csv` (fp16). Waves: full ones and workgroups of the last; fill: share of the places of all "
            f"waves that are taken, the bound that wave quantisation sets. Replayed at K = {SAMPLE_K[0]} and "
            f"{SAMPLE_K[1]}, the rest of K at the pace between them.",
            "",
            "| preset | M x N x K | waves | fill | measured (us) | ours | error | kind |",
            "|---" * 8 + "|",
            *(table_row(machine, o) for machine in MACHINES for o in found[machine.preset]),
            "",
            f"| preset | mean absolute error | of predictions | goal <= {GOAL:.0%} |",
            "|---" * 4 + "|",
            *(mean_row(machine, found[machine.preset]) for machine in MACHINES),
            "",
            NOTES.read_text(encoding="utf-8"),
        ]
    )


def compare(machine: Machine, row: Row) -> None:
    """Print the time of a row replayed whole and as the table has it."""
    began = process_time()
    whole_us = replay_ps(machine, row) / PS_PER_US
    sampled_us = outcome(machine, row).time_us
    difference, seconds = 100 * (sampled_us / whole_us - 1), process_time() - began
    times = f"whole {whole_us:,.1f} us, sampled {sampled_us:,.1f} us ({difference:+.2f} %)"
    print(f"{machine.preset} {row.m} x {row.n} x {row.k}: {times}; {seconds:.0f} s of CPU time", flush=True)


@click.command()
@click.option("--whole", type=int, metavar="M", help="Replay the rows with this M whole and sampled, print both.")
def main(whole: int | None) -> None:
    for machine in MACHINES:
        for row in measured(machine):
            if row.m == whole:
                compare(machine, row)
    if whole is None:
        TABLE.write_text(table(), encoding="utf-8")
        print(TABLE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
