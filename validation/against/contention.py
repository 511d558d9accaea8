"""A GEMM and an all-reduce at the same time on MI300X, against measurements: how much each slows the other down.

`python -m validation.against.contention` simulates CASES (results in the store are used) and writes
`tables/contention.md`; `--stored` takes only what the store has. Measured: `gemm_beside_allreduce_mi300x.csv` and
`gemm_beside_allreduce_cu_split_mi300x.csv` of `references` (hipBLASLt by torch, rotating buffers, RCCL on 8 GPUs). No
value is fitted to them. BLIND has no measurement at hand; its answers are in `predictions/contention_mi300x.csv`.
"""

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sim.collective.library import choose
from sim.gemm_facts import gpu_facts
from sim.hw.request import Stream
from sim.presets import Preset, load_preset
from sim.run.library_run import BesideRun, LibraryRun, library_preset
from sim.run.result import RunResult
from sim.run.run import KernelRun
from sim.run.store import Store, run_or_get
from tracer.data_type import DataType
from tracer.gemm.library import choose_kernel
from tracer.gemm.source import GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from traces.command.document import Block, Heading, Table, Text, notes, to_markdown, write_page
from traces.schema import SECTOR_BYTES
from traces.units import PS_PER_MS

HERE = Path(__file__).parents[1]
NOTES = HERE / "against" / "contention_notes.md"
TABLE = HERE / "tables" / "contention.md"
PREDICTIONS = HERE / "predictions" / "contention_mi300x.csv"
PRESET, GPUS, BYTES = "mi300x", 8, 2
GOAL = 0.10
COLUMNS = ("GEMM", "channels", "figure", "measured", "ours", "error")
REASONS = ("GEMM", "channels", "waves", "L2 misses", "HBM", "waves at once", "L2 misses at once", "HBM at once")


class Case(NamedTuple):
    """A GEMM in bf16 with M = N = K, and an all-reduce of its output.

    Attributes:
        channels: of RCCL; each keeps a CU.
        gemm_slowdown, collective_slowdown, overlap: measured: time at once over time alone; both times one after the
            other over the time of both at once. 0 = not measured.
    """

    m: int
    channels: int
    gemm_slowdown: float = 0.0
    collective_slowdown: float = 0.0
    overlap: float = 0.0


CASES = (Case(8192, 56, 1.32, 2.20, 1.09), Case(8192, 32, 1.19, 0.0, 1.29))
"""torch, medians of the files' rows. RCCL's own choice ("unset") is taken as the 56 channels of our row."""
BLIND = (Case(4096, 56), Case(4096, 32), Case(16384, 56))


class Ours(NamedTuple):
    """Times of a case in ms and its counters."""

    gemm_ms: float
    collective_ms: float
    gemm_beside_ms: float
    collective_beside_ms: float
    alone: RunResult
    beside: RunResult

    @property
    def slowdowns(self) -> tuple[float, float, float]:
        """GEMM, collective, and both one after the other over both at once."""
        wall_ms = max(self.gemm_beside_ms, self.collective_beside_ms)
        gemm, collective = self.gemm_beside_ms / self.gemm_ms, self.collective_beside_ms / self.collective_ms
        return gemm, collective, (self.gemm_ms + self.collective_ms) / wall_ms


def machine(case: Case) -> Preset:
    """The machine with the links and the channels of RCCL."""
    choice = choose(load_preset(PRESET).machine.collective.library, "all_reduce", GPUS, _bytes(case), None, None,
                    case.channels)  # fmt: skip
    return library_preset(load_preset(PRESET), choice)


def _bytes(case: Case) -> int:
    return case.m * case.m * BYTES


def runs_of(case: Case) -> tuple[KernelRun, LibraryRun, BesideRun]:
    """The GEMM alone, the all-reduce alone, both at once."""
    preset = machine(case)
    problem = GemmProblem(case.m, case.m, case.m)
    source = GemmSource(problem, choose_kernel(problem, gpu_facts(preset.machine), DataType.BF16))
    choice = choose(preset.machine.collective.library, "all_reduce", GPUS, _bytes(case), None, None, case.channels)
    gemm = KernelRun(preset=load_preset(PRESET), source=CommandSequence([source]), accuracy=0.01)
    alone = LibraryRun(preset=preset, kind="all_reduce", gpus=GPUS, data_bytes=_bytes(case), choice=choice)
    beside = BesideRun(
        preset=preset, kind="all_reduce", gpus=GPUS, data_bytes=_bytes(case), choice=choice, source=source
    )
    return gemm, alone, beside


def simulate(case: Case, store: Store) -> Ours:
    """Simulated times of a case."""
    gemm, alone, beside = (run_or_get(run, store).result for run in runs_of(case))
    assert alone.exactly_once and beside.exactly_once
    ends = (beside.figures["gemm_end_ps"] / PS_PER_MS, beside.figures["collective_end_ps"] / PS_PER_MS)
    return Ours(gemm.time_ps / PS_PER_MS, alone.time_ps / PS_PER_MS, *ends, gemm, beside)


def stored(case: Case, store: Store) -> bool:
    return all(store.path(run.key).exists() for run in runs_of(case))


def rows_of(case: Case, ours: Ours) -> list[list[str]]:
    """Slow-downs beside the measured ones, then the times behind them."""
    measured = (case.gemm_slowdown, case.collective_slowdown, case.overlap)
    names = ("GEMM, at once over alone", "all-reduce, at once over alone", "one after the other over at once")
    rows = []
    for name, theirs, own in zip(names, measured, ours.slowdowns, strict=True):
        error = f"{100 * (own / theirs - 1):+.1f} % (goal {GOAL:.0%})" if theirs else ""
        rows.append([f"{case.m}^3", str(case.channels), name, f"{theirs:.2f}" if theirs else "", f"{own:.2f}", error])
    return rows


def time_row(case: Case, ours: Ours) -> list[str]:
    times = (ours.gemm_ms, ours.gemm_beside_ms, ours.collective_ms, ours.collective_beside_ms)
    return [f"{case.m}^3", str(case.channels), *(f"{value:.3f}" for value in times)]


def reason_row(case: Case, ours: Ours) -> list[str]:
    """What can slow the GEMM down: fewer CUs, hence more waves of tiles; or misses."""
    *_, beside = runs_of(case)
    tiles, cus = beside.source.tiles, beside.preset.machine.cu.count
    cells = [f"{case.m}^3", str(case.channels)]
    for count, result in ((cus, ours.alone), (cus - case.channels, ours.beside)):
        missed, read = result.totals["l2.read_miss_sectors"] * SECTOR_BYTES, result.dram_bytes[Stream.COMPUTE_READ]
        cells += [f"{-(-tiles // count)} of {tiles} tiles on {count} CUs", f"{missed / 1e9:.2f}", f"{read / 1e9:.2f}"]
    return cells


def table(found: Mapping[Case, Ours]) -> str:
    """All cases as Markdown, with the explanation of NOTES."""
    missing = [case for case in (*CASES, *BLIND) if case not in found]
    blocks: list[Block] = [
        Heading("A GEMM beside an all-reduce on MI300X", 1),
        Text(
            "Generated by `python -m validation.against.contention`. Measured: `validation/references/"
            "gemm_beside_allreduce*_mi300x.csv`. Nothing is fitted to them."
        ),
        Table(COLUMNS, [row for case, ours in found.items() for row in rows_of(case, ours)]),
        Text("Times in ms:"),
        Table(
            ("GEMM", "channels", "GEMM alone", "GEMM at once", "all-reduce alone", "all-reduce at once"),
            [time_row(case, ours) for case, ours in found.items()],
        ),
    ]
    blocks += [
        Text("Why: waves of tiles, reads that miss L2 (GB) and HBM reads of the GEMM (GB), alone and at once:"),
        Table(REASONS, [reason_row(case, ours) for case, ours in found.items()]),
    ]
    if missing:
        blocks.append(Text("Not run: " + ", ".join(f"{case.m}^3 with {case.channels} channels" for case in missing)))
    return to_markdown([*blocks, notes(NOTES)])


def write_predictions(found: Mapping[Case, Ours]) -> None:
    """The blind answers."""
    with PREDICTIONS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("m", "channels", "gemm_ms", "gemm_beside_ms", "all_reduce_ms", "all_reduce_beside_ms", "kind"))
        for case in BLIND:
            if case in found:
                writer.writerow([case.m, case.channels, *time_row(case, found[case])[2:], "blind"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A GEMM beside an all-reduce on MI300X.")
    parser.add_argument("--stored", action="store_true", help="only cases whose runs are in the store")
    parser.add_argument(
        "--only", type=int, nargs=2, metavar=("M", "CHANNELS"), help="simulate this case, write nothing"
    )
    chosen, store = parser.parse_args(arguments), Store()
    if chosen.only:
        print(simulate(Case(*chosen.only), store).slowdowns)
        return
    found = {case: simulate(case, store) for case in (*CASES, *BLIND) if not chosen.stored or stored(case, store)}
    write_page(TABLE, table(found))
    write_predictions(found)


if __name__ == "__main__":
    main()
