"""Time of large GEMMs on two machines against measurements.

`python -m validation.gemm_time` writes `tables/gemm_time.md`. Short rows are replayed whole. Long ones are many equal
waves of workgroups: their first waves and their last, incomplete one are replayed, the waves between are counted at
the pace of one more wave. `--whole M` replays that row whole, too, and prints both; NOTES keeps what that gave.
"""

import csv
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from time import process_time
from typing import NamedTuple

import click

from sim.gpu import Gpu
from sim.occupancy import occupancy
from sim.presets import load_preset
from sim.units import PS_PER_US
from tracer.gemm import Copy, GemmKernel, GemmProblem, GemmSource, TileOrder
from traces.source import KernelInfo, Workgroup

HERE = Path(__file__).parent
REFERENCES = HERE / "references"
NOTES = HERE / "gemm_time_notes.md"
TABLE = HERE / "tables" / "gemm_time.md"
LEAST_M = 512
HEAD_WAVES = 2
"""Full waves that are replayed of a long row."""
WHOLE_WAVES = 4
"""Rows with fewer full waves are replayed whole."""
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


class FirstWorkgroups:
    """The first `count` workgroups of a GEMM as a kernel of their own (`traces.source.KernelSource`)."""

    def __init__(self, source: GemmSource, count: int):
        self.source, self.count = source, count

    @property
    def info(self) -> KernelInfo:
        return replace(self.source.info, workgroups=self.count)

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        return islice(self.source.workgroups(start), max(0, self.count - start))

    def fingerprint(self) -> str:
        return f"{self.source.fingerprint()}:{self.count}"


@cache
def source_of(machine: Machine, row: Row) -> GemmSource:
    """The synthesised kernel of a row."""
    return GemmSource(GemmProblem(m=row.m, n=row.n, k=row.k), machine.kernel)


@cache
def replay_ps(machine: Machine, row: Row, count: int) -> int:
    """Time of the first `count` workgroups of a row."""
    return Gpu(load_preset(machine.preset).machine).run_kernel(FirstWorkgroups(source_of(machine, row), count), 0, None)


def wave_workgroups(machine: Machine, row: Row) -> int:
    """Workgroups that run at once."""
    cu, info = load_preset(machine.preset).machine.cu, source_of(machine, row).info
    return cu.count * occupancy(cu, machine.kernel.threads, info.registers, info.shared_bytes).workgroups


def wave_ps(machine: Machine, row: Row) -> int:
    """What one more full wave costs, once the first ones run."""
    wave = wave_workgroups(machine, row)
    return replay_ps(machine, row, (HEAD_WAVES + 1) * wave) - replay_ps(machine, row, HEAD_WAVES * wave)


class Outcome(NamedTuple):
    """Our time of a row; waves: full waves and workgroups of the last one; replayed: workgroups."""

    row: Row
    time_us: float
    waves: int
    rest: int
    replayed: int


def outcome(machine: Machine, row: Row, whole: bool = False) -> Outcome:
    """Our time of a row. The pace of a wave is that of the shortest long row: all have the same walk over the tiles."""
    wave, tiles = wave_workgroups(machine, row), source_of(machine, row).tiles
    waves, rest = divmod(tiles, wave)
    if whole or waves < WHOLE_WAVES:
        return Outcome(row, replay_ps(machine, row, tiles) / PS_PER_US, waves, rest, tiles)
    head = HEAD_WAVES * wave + rest
    time_ps = replay_ps(machine, row, head) + (waves - HEAD_WAVES) * wave_ps(machine, pace_row(machine))
    return Outcome(row, time_ps / PS_PER_US, waves, rest, head)


def pace_row(machine: Machine) -> Row:
    """The shortest row that is not replayed whole."""
    return next(
        row for row in measured(machine) if source_of(machine, row).tiles >= WHOLE_WAVES * wave_workgroups(machine, row)
    )


def error(found: Outcome) -> float:
    """Relative, positive where ours takes longer."""
    return found.time_us / found.row.time_us - 1


def table_row(machine: Machine, found: Outcome) -> str:
    """One row of the table."""
    row, slots = found.row, wave_workgroups(machine, found.row)
    full = found.waves * slots + found.rest
    fill = full / (-(-full // slots) * slots)
    share = "whole" if found.replayed == full else f"{found.replayed} of {full}"
    kind = "calibration" if row.m == machine.calibrated_m else "prediction"
    cells = [machine.preset, f"{row.m} x {row.n} x {row.k}", f"{found.waves} + {found.rest}/{slots}", f"{fill:.3f}"]
    cells += [share, f"{row.time_us:,.1f}", f"{found.time_us:,.1f}", f"{100 * error(found):+.1f} %", kind]
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
            "waves that are taken, the bound that wave quantisation sets; replayed: workgroups.",
            "",
            "| preset | M x N x K | waves | fill | replayed | measured (us) | ours | error | kind |",
            "|---" * 9 + "|",
            *(table_row(machine, o) for machine in MACHINES for o in found[machine.preset]),
            "",
            f"| preset | mean absolute error | of predictions | goal <= {GOAL:.0%} |",
            "|---" * 4 + "|",
            *(mean_row(machine, found[machine.preset]) for machine in MACHINES),
            "",
            NOTES.read_text(encoding="utf-8"),
        ]
    )


@click.command()
@click.option("--whole", type=int, metavar="M", help="Replay the rows with this M whole and as waves, print both.")
def main(whole: int | None) -> None:
    if whole is None:
        TABLE.write_text(table(), encoding="utf-8")
        print(TABLE.read_text(encoding="utf-8"))
        return
    for machine in MACHINES:
        for row in measured(machine):
            if row.m == whole:
                began = process_time()
                long, short = outcome(machine, row, whole=True), outcome(machine, row)
                times = f"whole {long.time_us:,.1f} us, waves {short.time_us:,.1f} us"
                difference = 100 * (short.time_us / long.time_us - 1)
                seconds = process_time() - began
                print(f"{machine.preset} M = {whole}: {times}, {difference:+.2f} %; {seconds:.0f} s of CPU time")


if __name__ == "__main__":
    main()
