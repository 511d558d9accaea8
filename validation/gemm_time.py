"""Time of large GEMMs on two machines against measurements.

`python -m validation.gemm_time` writes `tables/gemm_time.md`. Steady parts are counted, not replayed: all workgroups
run the same K loop, so rows are replayed at two smaller K and the rest of the loop goes at the pace between them; and
rows of many waves are equal waves, so their first one and the last, incomplete one are replayed and the waves between
go at the pace of one more wave. `--whole M` replays that row whole, `--all-waves M` with all its waves at the smaller
K, and prints both; NOTES keeps what that gave.
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
SAMPLE_K = (2048, 4096)
"""Depths that are replayed instead of K."""
HEAD_WAVES = 1
"""Full waves that are replayed of a row of many waves."""
MANY_WAVES = 4
"""Rows with fewer full waves are replayed with all of them."""
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
    """Time of the first `count` workgroups of a row, replayed."""
    return Gpu(load_preset(machine.preset).machine).run_kernel(FirstWorkgroups(source_of(machine, row), count), 0, None)


def sampled_ps(machine: Machine, row: Row, count: int) -> float:
    """The same from replays at SAMPLE_K: linear in K."""
    short_k, long_k = SAMPLE_K
    if row.k <= long_k:
        return replay_ps(machine, row, count)
    short_ps, long_ps = (replay_ps(machine, row._replace(k=k), count) for k in SAMPLE_K)
    return long_ps + (row.k - long_k) * (long_ps - short_ps) / (long_k - short_k)


def wave_workgroups(machine: Machine, row: Row) -> int:
    """Workgroups that run at once."""
    cu, info = load_preset(machine.preset).machine.cu, source_of(machine, row).info
    return cu.count * occupancy(cu, machine.kernel.threads, info.registers, info.shared_bytes).workgroups


def wave_ps(machine: Machine, row: Row) -> float:
    """What one more full wave costs, once the first ones run."""
    wave = wave_workgroups(machine, row)
    return sampled_ps(machine, row, (HEAD_WAVES + 1) * wave) - sampled_ps(machine, row, HEAD_WAVES * wave)


class Outcome(NamedTuple):
    """Our time of a row; waves: full waves, rest: workgroups of the last one; replayed: workgroups."""

    row: Row
    time_us: float
    waves: int
    rest: int
    replayed: int


def outcome(machine: Machine, row: Row) -> Outcome:
    """Our time of a row. All rows of many waves walk over their tiles alike, in bands, and share the pace of a wave."""
    wave, tiles = wave_workgroups(machine, row), source_of(machine, row).tiles
    waves, rest = divmod(tiles, wave)
    if waves < MANY_WAVES:
        return Outcome(row, sampled_ps(machine, row, tiles) / PS_PER_US, waves, rest, tiles)
    head = HEAD_WAVES * wave + rest
    pace_ps = wave_ps(machine, row._replace(m=pace_m(machine)))
    time_ps = sampled_ps(machine, row, head) + (waves - HEAD_WAVES) * pace_ps
    return Outcome(row, time_ps / PS_PER_US, waves, rest, head)


def pace_m(machine: Machine) -> int:
    """M of the shortest row of many waves."""
    rows = measured(machine)
    return next(r.m for r in rows if source_of(machine, r).tiles >= MANY_WAVES * wave_workgroups(machine, r))


def error(found: Outcome) -> float:
    """Relative, positive where ours takes longer."""
    return found.time_us / found.row.time_us - 1


def table_row(machine: Machine, found: Outcome) -> str:
    """One row of the table."""
    row, slots = found.row, wave_workgroups(machine, found.row)
    full = found.waves * slots + found.rest
    fill = full / (-(-full // slots) * slots)
    share = "all" if found.replayed == full else f"{found.replayed} of {full}"
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
            "waves that are taken, the bound that wave quantisation sets; replayed: workgroups (at K = "
            f"{SAMPLE_K[0]} and {SAMPLE_K[1]}).",
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


def compare(machine: Machine, row: Row) -> None:
    """Print the time of a row replayed whole and as the table has it."""
    began = process_time()
    whole_us = replay_ps(machine, row, source_of(machine, row).tiles) / PS_PER_US
    sampled_us = outcome(machine, row).time_us
    difference, seconds = 100 * (sampled_us / whole_us - 1), process_time() - began
    times = f"whole {whole_us:,.1f} us, sampled {sampled_us:,.1f} us ({difference:+.2f} %)"
    print(f"{machine.preset} {row.m} x {row.n} x {row.k}: {times}; {seconds:.0f} s of CPU time", flush=True)


@click.command()
@click.option("--whole", type=int, metavar="M", help="Replay the rows with this M whole and sampled, print both.")
@click.option("--all-waves", type=int, metavar="M", help="The same with all waves, at the smaller sample of K.")
def main(whole: int | None, all_waves: int | None) -> None:
    for machine in MACHINES:
        for row in measured(machine):
            if row.m == whole:
                compare(machine, row)
            if row.m == all_waves:
                compare(machine, row._replace(k=SAMPLE_K[0]))
    if whole is None and all_waves is None:
        TABLE.write_text(table(), encoding="utf-8")
        print(TABLE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
