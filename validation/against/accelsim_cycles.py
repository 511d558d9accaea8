"""Cycles of Accel-Sim on identical traces: `python -m validation.against.accelsim_cycles` writes
`tables/accelsim_cycles.md`.

The two synthetic traces are in the project. The FlashInfer trace is read from the folder named by T3SIM_DATA; without
this folder it is left out. Cycles are compared without the launch latency, which is one number in both simulators.
"""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from sim.host.gpu import Gpu
from sim.host.team import use_threads
from sim.presets import Preset, load_preset
from sim.results import KernelResult
from sim.run.one_gpu import simulate
from tracer.accelsim.reader import open_accelsim
from tracer.compile.process import cpu_s
from traces.archive import open_archive, write_archive
from traces.command.document import Heading, Table, Text, notes, to_markdown, write_page
from traces.command.script import without_options
from traces.source import KernelInfo, KernelSource, Prefill, Workgroup
from traces.units import period_ps
from validation.csv_file import read_csv

HERE = Path(__file__).parents[1]
REFERENCE = HERE / "references" / "accelsim.csv"
TRACES = HERE / "references" / "accelsim_traces"
NOTES = HERE / "against" / "accelsim_cycles_notes.md"
TABLE = HERE / "tables" / "accelsim_cycles.md"
VARIABLE = "T3SIM_DATA"
TOLERANCE = 0.15
REPLAYS = 5
"""Runs of each kind; the fastest counts."""


class Case(NamedTuple):
    """A row of REFERENCE, the preset of its machine and the folder of its trace."""

    name: str
    preset: str
    trace: Path


def cases() -> list[Case]:
    """The traces that are available."""
    known_cases = [
        Case("gemm_512x512x256", "accelsim_qv100", TRACES / "gemm_512x512x256_sm70"),
        Case("copy_512KiB", "accelsim_qv100", TRACES / "copy_512KiB_sm70"),
        Case(
            "flashinfer_prefill",
            "accelsim_a100",
            Path(os.environ.get(VARIABLE, ""), "real-traces", "sm80-v5-flashinfer-prefill"),
        ),
    ]
    return [case for case in known_cases if case.trace.is_dir()]


def reference(case: Case) -> dict[str, str]:
    """Accel-Sim's figures."""
    return next(row for row in read_csv(REFERENCE) if row["case"] == case.name)


def theirs_cycles(case: Case) -> int:
    """Accel-Sim's cycles without the launch."""
    row = reference(case)
    return int(row["cycles"]) - int(row["launch_cycles"])


class Outcome(NamedTuple):
    """Result of our replay. Cycles are core clocks without the launch."""

    cycles: float
    result: KernelResult


def replay(case: Case) -> Outcome:
    """Replay a trace."""
    preset = load_preset(case.preset)
    result = simulate(open_accelsim(case.trace), preset, flush_l2=False).kernels[0]
    return Outcome(result.time_ps / period_ps(preset.machine.cu.clock_MHz), result)


class Costs(NamedTuple):
    """CPU seconds of a run and of its parts. Each is the fastest of REPLAYS."""

    whole_s: float
    archived_s: float  # a whole run from an archive of the same trace
    reading_s: float  # text to workgroups in memory
    machine_s: float  # records of all units, allocated
    replay_s: float  # the rest: workgroups in memory to counters


def costs(case: Case) -> Costs:
    """Measure a whole run of a trace, then its parts, on one thread. Child processes count too."""
    preset = load_preset(case.preset)
    with TemporaryDirectory() as folder, use_threads(1):
        archive = Path(folder) / "trace.h5"
        write_archive(archive, open_accelsim(case.trace))
        runs = [_timed(case, archive, preset) for _ in range(REPLAYS)]
    return Costs(*map(min, zip(*runs, strict=True)))


def _timed(case: Case, archive: Path, preset: Preset) -> list[float]:
    """One run of each kind, in the order of Costs."""
    times = [cpu_s()]
    simulate(open_accelsim(case.trace), preset, flush_l2=False)
    times.append(cpu_s())
    simulate(open_archive(archive), preset, flush_l2=False)
    times.append(cpu_s())
    commands = [held(command) for command in open_accelsim(case.trace).commands()]
    times.append(cpu_s())
    gpu = Gpu(preset.machine)
    times.append(cpu_s())
    for command in commands:
        if isinstance(command, Prefill):
            gpu.prefill(command.address, command.bytes)
        else:
            gpu.run_kernel(command, gpu.rest_ps, None)
    gpu.counted()
    times.append(cpu_s())
    return [after - before for before, after in pairwise(times)]


class HeldKernel:
    """A kernel whose workgroups are already in memory."""

    def __init__(self, source: KernelSource):
        self.info: KernelInfo = source.info
        self._workgroups = list(source.workgroups())

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        return iter(self._workgroups[start:])

    def fingerprint(self) -> str:
        return ""


def held(command: Prefill | KernelSource) -> Prefill | HeldKernel:
    """A command with all of its workgroups in memory."""
    return command if isinstance(command, Prefill) else HeldKernel(command)


def cycle_row(case: Case, outcome: Outcome) -> list[str]:
    """Cycles and the error."""
    theirs = theirs_cycles(case)
    error = outcome.cycles / theirs - 1
    verdict = f"within {TOLERANCE:.0%}" if abs(error) <= TOLERANCE else "explained below"
    return [case.name, case.preset, f"{theirs:,}", f"{outcome.cycles:,.0f}", f"{100 * error:+.1f} %", verdict]


CYCLE_COLUMNS = ("trace", "preset", "Accel-Sim", "ours", "error", "verdict")
COST_COLUMNS = (
    *("trace", "warp instructions", "Accel-Sim (s)", "ours (s)", "from archive (s)", "reading (s)", "machine (s)"),
    *("replay (s)", "Accel-Sim (us per instruction)", "ours", "ratio"),
    *("from archive", "ratio", "replay alone", "ratio"),
)


def cost_row(case: Case, outcome: Outcome, spent: Costs) -> list[str]:
    """CPU time of both simulators, in total and per warp instruction."""
    theirs_us = float(reference(case)["cpu_s"]) / int(reference(case)["warp_instructions"]) * 1e6
    instructions = outcome.result.totals["cu.warp_instructions"]
    ours_us = [seconds / instructions * 1e6 for seconds in (spent.whole_s, spent.archived_s, spent.replay_s)]
    return [
        *(case.name, f"{instructions:,}", f"{float(reference(case)['cpu_s']):.1f}"),
        *(f"{seconds:.3f}" for seconds in spent),
        f"{theirs_us:,.0f}",
        *(cell for our_us in ours_us for cell in (f"{our_us:.2f}", f"1/{theirs_us / our_us:,.0f}")),
    ]


def table() -> str:
    """All traces as Markdown, with the explanation of NOTES."""
    outcomes = [(case, replay(case)) for case in cases()]
    head = (
        "Generated by `python -m validation.against.accelsim_cycles`; reference: "
        "`validation/references/accelsim.csv`.\n"
        "Core cycles without the launch latency. Every value comes from that simulator's configuration and source.\n"
        "The last mechanisms (acknowledgements of stores, order of banks) were chosen when the gap of the copy was\n"
        "known."
    )
    about_costs = (
        f"CPU time, each figure the fastest of {REPLAYS}, without compilation. `ours` reads the text,\n"
        "`from archive` reads an archive of the same trace; `replay` begins with workgroups in memory.\n"
        "Accel-Sim's seconds were measured on another machine of the same size and include its reading of text."
    )
    return to_markdown(
        [
            Heading("Cycles of Accel-Sim on identical traces", 1),
            Text(head),
            Table(CYCLE_COLUMNS, [cycle_row(case, outcome) for case, outcome in outcomes]),
            Text(about_costs),
            Table(COST_COLUMNS, [cost_row(case, outcome, costs(case)) for case, outcome in outcomes]),
            notes(NOTES),
        ]
    )


def main() -> None:
    write_page(TABLE, table())


if __name__ == "__main__":
    without_options(__doc__)
    main()
