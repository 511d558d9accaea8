"""A GEMM and an all-reduce at the same time on MI300X, against measurements: how much each slows the other down.

`python -m validation.against.contention` simulates CASES in all WAYS (results in the store are used) and writes
`tables/contention.md`; `--stored` takes only what the store has. Measured: `gemm_beside_allreduce_mi300x.csv` and
`gemm_beside_allreduce_cu_split_mi300x.csv` of `references` (hipBLASLt by torch, rotating buffers, RCCL on 8 GPUs). The
times of all-reduces alone calibrate `rccl_mi300x`; no value is fitted to times at once. BLIND has no measurement at
hand; its answers are in `predictions/contention_mi300x.csv`, where a row names the revision that made it and rows of
earlier revisions stay.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from sim.gemm_facts import gpu_facts
from sim.hw.request import Stream
from sim.presets import load_preset
from sim.run.library_run import BesideRun, LibraryRun
from sim.run.result import RunResult
from sim.run.run import KernelRun
from sim.run.store import Store, run_or_get
from sim.scenario.collective import Collective
from tracer.data_type import DataType
from tracer.gemm.library import choose_kernel
from tracer.gemm.source import GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from traces.command.document import Block, Heading, Table, Text, notes, to_markdown, write_page
from traces.schema import SECTOR_BYTES
from traces.units import PS_PER_MS
from validation.csv_file import read_csv, write_csv
from validation.revision import current_revision

HERE = Path(__file__).parents[1]
NOTES = HERE / "against" / "contention_notes.md"
TABLE = HERE / "tables" / "contention.md"
PREDICTIONS = HERE / "predictions" / "contention_mi300x.csv"
REFERENCES = HERE / "references"
MEASURED = ("gemm_beside_allreduce_mi300x.csv", "gemm_beside_allreduce_cu_split_mi300x.csv")
COUNTERS = REFERENCES / "memory_counters_mi300x.csv"
PRESET, GPUS, BYTES = "mi300x", 8, 2
GOAL = 0.10
COLUMNS = ("GEMM", "channels", "CUs", "figure", "measured", "ours", "error")
TIMES = ("GEMM", "channels", "CUs", "GEMM alone", "GEMM", "all-reduce alone", "all-reduce", "all channels have CUs")
ALONE = ("bytes", "channels", "measured (ms)", "ours (ms)", "error", "HBM read per byte", "written per byte")
REASONS = ("GEMM", "channels", "CUs", "waves", "L2 misses", "HBM", "waves at once", "L2 misses at once", "HBM at once")
MILLISECONDS = ("gemm_ms", "gemm_beside_ms", "all_reduce_ms", "all_reduce_beside_ms")
PREDICTED = ("m", "channels", "cus", *MILLISECONDS, "kind", "revision")
READS, WRITES = (Stream.COMPUTE_READ, Stream.COMM_READ), (Stream.COMPUTE_WRITE, Stream.COMM_WRITE)
WAIT_PS = 48_000_000
"""100,000 clocks at 2100 MHz. In the measured program (ROCm/tritonBLAS@3b84da43, benchmarks/overlap.py) the GEMM waits
so long for the all-reduce to get its CUs, and this wait is part of its time."""
WAYS: dict[str, dict[str, Any]] = {
    "apart": {},
    "shared, GEMM first": {"shared": True},
    "shared, all-reduce first": {"shared": True, "lead_ps": WAIT_PS},
}
"""Settings of `BesideRun`. Called at once, the GEMM is first: its launch is the shorter one."""


class Case(NamedTuple):
    """A GEMM in bf16 with M = N = K, and an all-reduce of its output.

    Attributes:
        channels: of RCCL; each keeps a CU from its start to the end of the all-reduce.
        gemm_slowdown, collective_slowdown, overlap: measured: time at once over time alone; both times one after the
            other over the time of both at once. 0 = not measured.
    """

    m: int
    channels: int
    gemm_slowdown: float = 0.0
    collective_slowdown: float = 0.0
    overlap: float = 0.0


CASES = (Case(8192, 56, 1.32, 2.20, 1.09), Case(8192, 32, 1.19, 0.0, 1.29), Case(12288, 56, 1.19, 2.75, 1.09))
"""torch, medians of the files' rows."""
UNSET = 56
"""Channels where the files have "unset"."""
BLIND = (Case(4096, 56), Case(4096, 32), Case(16384, 56))


class Ours(NamedTuple):
    """Times of a case in one way in ms and its counters. The GEMM's time at once has the wait in front of it.

    placed_ms: from the call of the all-reduce until all channels have places; 0 = they have CUs of their own.
    """

    gemm_ms: float
    collective_ms: float
    gemm_beside_ms: float
    collective_beside_ms: float
    placed_ms: float
    alone: RunResult
    beside: RunResult

    @property
    def slowdowns(self) -> tuple[float, float, float]:
        """GEMM, collective, and both one after the other over both at once."""
        wall_ms = max(self.gemm_beside_ms, self.collective_beside_ms)
        gemm, collective = self.gemm_beside_ms / self.gemm_ms, self.collective_beside_ms / self.collective_ms
        return gemm, collective, (self.gemm_ms + self.collective_ms) / wall_ms


class Alone(NamedTuple):
    """An all-reduce without a GEMM, and the median of its measured times."""

    data_bytes: int
    channels: int
    measured_ms: float


Found = Mapping[tuple[Case, str], Ours]
"""(Case, name of WAYS) -> what was simulated."""


def measured_alone() -> list[Alone]:
    """Every size and number of channels of which the files have an all-reduce alone."""
    times: dict[tuple[int, int], list[float]] = {}
    for name in MEASURED:
        for row in read_csv(REFERENCES / name):
            channels = row["nccl_max_nchannels"].replace("unset", f"{UNSET}")
            key = int(row["collective_tensor_bytes"]), int(channels)
            times.setdefault(key, []).append(float(row["collective_alone_ms"]))
    return [Alone(*key, median(found)) for key, found in sorted(times.items())]


def all_reduce(data_bytes: int, channels: int) -> LibraryRun:
    """An all-reduce on the machine with the links and the channels of RCCL."""
    run = Collective(load_preset(PRESET), "all_reduce", GPUS, data_bytes, channels=channels).run()
    assert isinstance(run, LibraryRun)
    return run


def runs_of(case: Case, way: str) -> tuple[KernelRun, LibraryRun, BesideRun]:
    """The GEMM alone, the all-reduce alone, both at once."""
    alone = all_reduce(case.m * case.m * BYTES, case.channels)
    problem = GemmProblem(case.m, case.m, case.m)
    source = GemmSource(problem, choose_kernel(problem, gpu_facts(alone.preset.machine), DataType.BF16))
    gemm = KernelRun(preset=load_preset(PRESET), source=CommandSequence([source]), accuracy=0.01)
    common = {name: getattr(alone, name) for name in ("preset", "kind", "gpus", "data_bytes", "choice")}
    return gemm, alone, BesideRun(source=source, **common, **WAYS[way])


def simulate(case: Case, way: str, store: Store) -> Ours:
    """Simulated times of a case."""
    runs = runs_of(case, way)
    gemm, alone, beside = (run_or_get(run, store).result for run in runs)
    assert alone.exactly_once and beside.exactly_once
    figures = {name: int(value or 0) / PS_PER_MS for name, value in beside.figures.items() if name.endswith("_ps")}
    return Ours(
        gemm_ms=gemm.time_ps / PS_PER_MS,
        collective_ms=alone.time_ps / PS_PER_MS,
        gemm_beside_ms=figures["gemm_end_ps"] + runs[-1].lead_ps / PS_PER_MS,
        collective_beside_ms=figures["collective_end_ps"],
        placed_ms=figures.get("channels_placed_ps", 0.0),
        alone=gemm,
        beside=beside,
    )


def stored(case: Case, way: str, store: Store) -> bool:
    return all(store.path(run.key).exists() for run in runs_of(case, way))


def rows_of(case: Case, way: str, ours: Ours) -> list[list[str]]:
    """Slow-downs beside the measured ones."""
    measured = (case.gemm_slowdown, case.collective_slowdown, case.overlap)
    names = ("GEMM, at once over alone", "all-reduce, at once over alone", "one after the other over at once")
    rows = []
    for name, theirs, own in zip(names, measured, ours.slowdowns, strict=True):
        error = f"{100 * (own / theirs - 1):+.1f} % (goal {GOAL:.0%})" if theirs else ""
        rows.append([*_names(case, way), name, f"{theirs:.2f}" if theirs else "", f"{own:.2f}", error])
    return rows


def _names(case: Case, way: str) -> list[str]:
    return [f"{case.m}^3", str(case.channels), way]


def _times(ours: Ours) -> list[str]:
    times = (ours.gemm_ms, ours.gemm_beside_ms, ours.collective_ms, ours.collective_beside_ms)
    return [f"{value:.3f}" for value in times]


def time_row(case: Case, way: str, ours: Ours) -> list[str]:
    return [*_names(case, way), *_times(ours), f"{ours.placed_ms:.3f}" if ours.placed_ms else "at the start"]


def alone_row(alone: Alone, result: RunResult) -> list[str]:
    """Time and traffic of an all-reduce alone. The library's software is called at time 0."""
    ours_ms, moved = result.time_ps / PS_PER_MS, result.dram_bytes
    sums = [sum(int(moved[stream]) for stream in streams) / alone.data_bytes for streams in (READS, WRITES)]
    error = f"{100 * (ours_ms / alone.measured_ms - 1):+.1f} %"
    times = (f"{alone.measured_ms:.3f}", f"{ours_ms:.3f}", error)
    return [f"{alone.data_bytes:,}", f"{alone.channels}", *times, *(f"{value:.2f}" for value in sums)]


def counted() -> str:
    """What AMD's counters say of an all-reduce."""
    row = next(row for row in read_csv(COUNTERS) if row["kernel"] == "RCCL")
    read, written = row["read_bytes_per_payload_byte"], row["write_bytes_per_payload_byte"]
    return (
        "An all-reduce alone. Two values are calibrated with these times (`rccl_mi300x`). AMD's counters, 536,870,912 "
        f"bytes: {read} bytes read and {written} written per byte, {row['LLC(MALL)_hit_pct']} % of the accesses hit "
        "the memory-side cache."
    )


def reason_row(case: Case, way: str, ours: Ours) -> list[str]:
    """What can slow the GEMM down: CUs that channels have, hence more waves of tiles; or misses."""
    *_, beside = runs_of(case, way)
    of, tiles = beside.preset.machine, beside.source.tiles
    cus, launch_ps = of.cu.count, of.dispatch.launch_ps
    waves = -(-tiles // cus)
    wave_ps = (ours.alone.time_ps - launch_ps) / waves
    at_once = (int(ours.beside.figures["gemm_end_ps"] or 0) - launch_ps) / wave_ps
    cells = _names(case, way)
    for said, result in ((f"{waves} of {tiles} tiles", ours.alone), (f"{at_once:.1f}", ours.beside)):
        missed, read = result.totals["l2.read_miss_sectors"] * SECTOR_BYTES, result.dram_bytes[Stream.COMPUTE_READ]
        cells += [said, f"{missed / 1e9:.2f}", f"{read / 1e9:.2f}"]
    return cells


def table(found: Found, alone: Mapping[Alone, RunResult]) -> str:
    """All cases as Markdown, with the explanation of NOTES."""
    missing = [(case, way) for case in (*CASES, *BLIND) for way in WAYS if (case, way) not in found]
    blocks: list[Block] = [
        Heading("A GEMM beside an all-reduce on MI300X", 1),
        Text(
            "Generated by `python -m validation.against.contention`. Measured: `validation/references/"
            "gemm_beside_allreduce*_mi300x.csv`. Nothing is fitted to times at once."
        ),
        Table(COLUMNS, [row for key, ours in found.items() for row in rows_of(*key, ours)]),
        Text(counted()),
        Table(ALONE, [alone_row(each, result) for each, result in alone.items()]),
        Text("Times in ms from the call of each, alone and at once:"),
        Table(TIMES, [time_row(*key, ours) for key, ours in found.items()]),
        Text(
            "Why: waves of tiles (at once: the GEMM's time over that of a wave alone), reads that miss L2 (GB) and HBM "
            "reads of the GEMM (GB):"
        ),
        Table(REASONS, [reason_row(*key, ours) for key, ours in found.items()]),
    ]
    if missing:
        names = [f"{case.m}^3 with {case.channels} channels ({way})" for case, way in missing]
        blocks.append(Text("Not run: " + "; ".join(names)))
    return to_markdown([*blocks, notes(NOTES)])


def write_predictions(found: Found) -> None:
    """Add the blind answers that are new. Those of earlier revisions stay."""
    rows = [tuple(row.values()) for row in read_csv(PREDICTIONS)]
    known = {row[:-1] for row in rows}
    revision = current_revision()
    for (case, way), ours in found.items():
        answer = (str(case.m), str(case.channels), way, *_times(ours), "blind")
        if case in BLIND and answer not in known:
            rows.append((*answer, revision))
    write_csv(PREDICTIONS, PREDICTED, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A GEMM beside an all-reduce on MI300X.")
    parser.add_argument("--stored", action="store_true", help="only cases whose runs are in the store")
    parser.add_argument(
        "--only", type=int, nargs=2, metavar=("M", "CHANNELS"), help="simulate this case, write nothing"
    )
    chosen, store = parser.parse_args(arguments), Store()
    if chosen.only:
        for way in WAYS:
            print(way, simulate(Case(*chosen.only), way, store).slowdowns, flush=True)
        return
    asked = [(case, way) for case in (*CASES, *BLIND) for way in WAYS]
    found = {key: simulate(*key, store) for key in asked if not chosen.stored or stored(*key, store)}
    runs = {each: all_reduce(each.data_bytes, each.channels) for each in measured_alone()}
    alone = {
        each: run_or_get(run, store).result
        for each, run in runs.items()
        if not chosen.stored or store.path(run.key).exists()
    }
    write_page(TABLE, table(found, alone))
    write_predictions(found)


if __name__ == "__main__":
    main()
