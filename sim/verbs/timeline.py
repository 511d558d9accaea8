"""`t3sim timeline`: export the timeline of runs for Perfetto or as an HTML page."""

from pathlib import Path

import click

from sim.results import ResultsArchive, RunResult
from sim.results import open as open_results
from sim.scenario.archive import is_scenario, open_scenario
from sim.scenario.result import NEEDS, SEQUENTIAL, T3, T3_MCA
from sim.view.lanes import Section, section
from sim.view.perfetto import chrome_trace
from sim.view.timeline_page import timeline_page
from tracer.elf.names import short_names
from traces.choices import nearest
from traces.errors import UserError
from traces.output import output_path, replacing

IN_ORDER = (SEQUENTIAL, T3, T3_MCA)
"""Configurations whose runs follow each other."""
FORMATS = {".json": chrome_trace, ".html": timeline_page}


@click.command()
@click.argument("archive", type=click.Path())
@click.option(
    "--run",
    "names",
    multiple=True,
    metavar="NAME",
    help="Of a t3sim t3 archive: a configuration (Sequential, T3, T3-MCA) or a run (gemm, rs, rs_nmc, ag, t3, t3_mca); "
    "of others: a number. Can be repeated.  [Sequential and T3-MCA, or the first run with a time series]",
)
@click.option("-o", "--output", required=True, type=click.Path(), help="FILE.json (Perfetto) or FILE.html.")
def timeline(archive: str, names: tuple[str, ...], output: str) -> None:
    """Export the timeline of an ARCHIVE of t3sim t3 or run: kernels, CUs, warps, DMA engines, Tracker, link, DRAM.

    Open the .json in Perfetto's UI (ui.perfetto.dev), or the .html in any browser. Of several configurations, one
    stands above the other on one axis of time. If every GPU was simulated (t3 --explicit), each has its own lanes.

    Example: t3sim timeline small.h5 --run T3 -o small.json
    """
    path = output_path(output)
    if path.suffix not in FORMATS:
        raise UserError(f"timeline: found {output}, allowed is a name that ends with {' or '.join(FORMATS)}")
    sections, title = _chosen(archive, names)
    with replacing(path) as temporary:
        Path(temporary).write_text(FORMATS[path.suffix](sections, title), encoding="utf-8")
    click.echo(f"wrote {output}")


def _chosen(archive: str, names: tuple[str, ...]) -> tuple[list[Section], str]:
    """The sections, and a title."""
    opened = open_results(archive)
    if not is_scenario(opened):
        return _of_runs(opened, names)
    row, runs = open_scenario(archive)
    m, n, k, gpus = (row.options.get(name, "?") for name in ("m", "n", "k", "gpus"))
    title = f"GEMM {m} x {n} x {k} on {gpus} GPUs, {row.preset.name}"
    return [_section(name, runs) for name in names or _preferred(runs)], title


def _of_runs(opened: ResultsArchive, names: tuple[str, ...]) -> tuple[list[Section], str]:
    """Runs by number: of a study, or the only one. Without a number the first that has a time series."""
    first = next((number for number, run in opened.results() if run.series), 0)
    try:
        numbers = [int(name) for name in names] or [first]
    except ValueError:
        raise UserError(
            f"--run: found {names[0]!r}, allowed are 0 to {len(opened.runs) - 1}: no t3sim t3 archive"
        ) from None
    runs = [opened.run(number) for number in numbers]
    title = f"{_title(runs[0])}, {runs[0].preset.name}"
    labels = [
        _title(run) if len(opened.runs) == 1 else f"run {number}" for number, run in zip(numbers, runs, strict=True)
    ]
    return [section(label, [(label, run)]) for label, run in zip(labels, runs, strict=True)], title


def _title(run: RunResult) -> str:
    return short_names([kernel.name for kernel in run.kernels]) or "no kernel"


def _preferred(runs: dict[str, RunResult]) -> list[str]:
    """Sequential, and T3 with MCA or without; where their runs are not in the archive, its first run."""
    whole = [name for name in IN_ORDER if set(NEEDS[name]) <= runs.keys()]
    if {T3, T3_MCA} <= set(whole):
        whole.remove(T3)
    return whole or list(runs)[:1]


def _section(name: str, runs: dict[str, RunResult]) -> Section:
    """The section of a configuration or of a run."""
    if name in runs:
        return section(name, [(name, runs[name])])
    if name in IN_ORDER and set(NEEDS[name]) <= runs.keys():
        return section(name, [(run, runs[run]) for run in NEEDS[name]])
    allowed = [*(one for one in IN_ORDER if set(NEEDS[one]) <= runs.keys()), *runs]
    raise UserError(f"--run: found {name!r}, {nearest(name, allowed)}")
