"""Extrapolated GEMMs against whole runs.

`python -m validation.against.extrapolation --save` writes `tables/extrapolation.md`. Every GEMM is run with
extrapolation. If the run is cut, the GEMM is also run whole. `first` is a cut at the first possible moment, with any
uncertainty. It shows why the criterion of `sim.run.extrapolation` is needed.
"""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from time import process_time
from typing import NamedTuple

import click

from sim.presets import load_preset
from sim.results import RunResult
from sim.run.extrapolation import FROM, OF, TIME_BOUND, Promise, simulate_gemm
from sim.run.one_gpu import simulate
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from tracer.sequence import CommandSequence
from tracer.workloads import DEFAULT_KERNEL, PAPER_CASES, aligned_problem, named_sublayer
from traces.command.document import Heading, Table, Text, notes, table_line, to_markdown, write_page
from traces.units import PS_PER_US

HERE = Path(__file__).parents[1]
NOTES = HERE / "against" / "extrapolation_notes.md"
TABLE = HERE / "tables" / "extrapolation.md"
PROMISE = Promise()
PROMISED_ERROR = 0.01
"""Of time."""
ANY = Promise(inf, inf)
COLUMNS = (
    *("GEMM", "preset", "whole (us)", "workgroups simulated", "extrapolated (us)", "error of time", "uncertainty"),
    *("error of DRAM reads", "of writes", "CPU s", "first"),
)
SKIPPED_LAYER = "fc1"
"""It has the same shape as fc2."""


class Case(NamedTuple):
    """A GEMM on a machine."""

    title: str
    preset: str
    problem: GemmProblem
    kernel: GemmKernel = DEFAULT_KERNEL

    def source(self) -> CommandSequence:
        return CommandSequence([GemmSource(self.problem, self.kernel)])


SHAPES = (
    ("v100", (4096, 4096, 4096)),
    ("a100_80g", (4096, 4096, 4096)),
    ("t3_2024", (2048, 2048, 256)),
    ("t3_2024", (3000, 5000, 1000)),
    ("t3_2024", (16384, 8192, 512)),
    ("t3_2024", (16384, 16384, 256)),
    ("t3_2024", (16384, 16384, 512)),
    ("t3_2024", (65536, 4096, 256)),
    ("t3_2024", (20000, 30000, 200)),
    ("a100_80g", (16384, 16384, 256)),
    ("a100_80g", (32768, 16384, 256)),
)


def cases() -> Iterator[Case]:
    """The paper's sub-layers, then square, irregular and long GEMMs."""
    for model, layer, tp in PAPER_CASES:
        if layer != SKIPPED_LAYER:
            name = f"{model}/{layer}/tp{tp}"
            yield Case(name, "t3_2024", named_sublayer(name)[0])
    for preset, (m, n, k) in SHAPES:
        yield Case(f"{m} x {n} x {k}", preset, aligned_problem(m, n, k))


class Run(NamedTuple):
    """A run and its CPU time, s."""

    results: RunResult
    cpu_s: float


class Outcome(NamedTuple):
    """A case extrapolated, whole (the same run if it was not cut), and cut at the first moment."""

    case: Case
    cut: Run
    whole: Run
    first: Run | None


def extrapolated(case: Case, promise: Promise) -> Run:
    """Run a case with extrapolation."""
    began = process_time()
    results = simulate_gemm(case.source(), load_preset(case.preset), promise=promise)
    return Run(results, process_time() - began)


def outcome(case: Case) -> Outcome:
    """Run a case extrapolated and, if it was cut, also whole and cut at the first moment."""
    cut = extrapolated(case, PROMISE)
    if FROM not in cut.results.figures:
        return Outcome(case, cut, cut, None)
    first = extrapolated(case, ANY)
    began = process_time()
    results = simulate(case.source(), load_preset(case.preset))
    return Outcome(case, cut, Run(results, process_time() - began), first)


def error(run: Run, whole: Run, counter: str | None = None) -> float:
    """Relative error of the time, or of a counter."""
    if counter is None:
        return run.results.time_ps / whole.results.time_ps - 1
    return run.results.totals[counter] / whole.results.totals[counter] - 1


def table_row(outcome: Outcome) -> list[str]:
    """One row of the table."""
    figures, whole = outcome.cut.results.figures, outcome.whole
    cells = [outcome.case.title, outcome.case.preset, f"{whole.results.time_ps / PS_PER_US:,.1f}"]
    if FROM in figures:
        cells += [f"{figures[FROM]:,} of {figures[OF]:,}", f"{outcome.cut.results.time_ps / PS_PER_US:,.1f}"]
        cells += [f"{100 * error(outcome.cut, whole):+.2f} %", f"{100 * float(figures[TIME_BOUND]):.2f} %"]
        cells += [f"{100 * error(outcome.cut, whole, f'hbm.{name}_columns'):+.2f} %" for name in ("read", "write")]
        cells += [f"{whole.cpu_s:.1f} / {outcome.cut.cpu_s:.1f}"]
    else:
        cells += ["all", *["-"] * 5, f"{whole.cpu_s:.1f}"]
    first = "-"
    if outcome.first:
        first = f"{100 * error(outcome.first, whole):+.2f} %"
        first += f" ({int(outcome.first.results.figures[FROM]) / int(outcome.first.results.figures[OF]):.0%})"
    return [*cells, first]


def report(outcomes: list[Outcome]) -> str:
    """All rows as Markdown, with the explanation of NOTES."""
    cut = [o for o in outcomes if FROM in o.cut.results.figures]
    errors = [abs(error(o.cut, o.whole)) for o in cut]
    head = (
        "Generated by `python -m validation.against.extrapolation --save`. Promised: time within "
        f"{PROMISED_ERROR:.0%}, DRAM reads and writes within {PROMISE.traffic:.0%}; `uncertainty` is the "
        f"uncertainty of time that the run reported (at most {PROMISE.time:.2%}). `all`: the criterion refused a cut; "
        "the run is whole and exact. CPU seconds: whole / extrapolated, on a shared machine. Last column: error of "
        "time (share simulated) of a cut at the first moment, without the criterion."
    )
    summary = (
        f"{len(outcomes)} GEMMs, {len(cut)} extrapolated: mean absolute error {100 * sum(errors) / len(errors):.2f} "
        f"%, largest {100 * max(errors):.2f} %."
    )
    title = Heading("Extrapolated GEMMs against whole runs", 1)
    return to_markdown([title, Text(head), Table(COLUMNS, [*map(table_row, outcomes)]), Text(summary), notes(NOTES)])


@click.command()
@click.option("--only", default="", help="Only GEMMs whose title or preset contains this text; prints their rows.")
@click.option("--save", is_flag=True, help=f"Write tables/{TABLE.name}.")
def main(only: str, save: bool) -> None:
    outcomes = []
    for case in cases():
        if only in f"{case.title} {case.preset}":
            outcomes.append(outcome(case))
            click.echo(table_line(table_row(outcomes[-1])))
    if save and not only:
        write_page(TABLE, report(outcomes))


if __name__ == "__main__":
    main()
