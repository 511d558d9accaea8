"""`t3sim study`: simulate all points of a study; write one results archive."""

from pathlib import Path

import click

from sim import results as archives
from sim.host.team import MOST_THREADS
from sim.results import RunResult
from sim.scenario.result import COLUMN, WHOLE
from sim.study import Outcome, Study, load_study, run_study
from sim.view.heading import runs_heading
from traces.command.alone import check_alone
from traces.command.meter import Meter
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_table, print_text
from traces.errors import UserError

SHOWN = 20
"""Number of points in the printed table; the archive has all points."""
FIGURES = ("time_ns", "dram_read_sectors", "dram_write_sectors", "l2_hit_rate")
INCOMPLETE = 1


@click.command("study")
@click.argument("study_file", metavar="STUDY", type=click.Path())
@click.option("-o", "--output", default=".", show_default=True, type=click.Path(), help="Folder for the archive.")
@click.option(
    "--workers", type=click.IntRange(min=0), help="Processes; 0 = only this process, without Dask.  [one per core]"
)
@click.option("--scheduler", metavar="ADDRESS", help="Use the Dask scheduler at this address, e.g. tcp://node7:8786.")
@click.option(
    "--threads", type=click.IntRange(1, MOST_THREADS), default=1, show_default=True, help="Threads of each run."
)
@click.option("--fresh", is_flag=True, help="Simulate again, even if the store of finished runs has the results.")
@click.option("--list", "only_list", is_flag=True, help="List the points and the archive's name; simulate nothing.")
@with_format
@click.pass_context
def study(
    ctx: click.Context,
    study_file: str,
    output: str,
    workers: int | None,
    scheduler: str | None,
    threads: int,
    fresh: bool,
    only_list: bool,
    as_json: bool,
) -> None:
    """Simulate every point of the study file STUDY and write one results archive, named by the study's content.

    Each run is stored in the store of finished runs when it ends. After an interruption, start the same command again:
    it simulates only the missing runs.

    Example: t3sim study study.toml --workers 2
    """
    if only_list:
        check_alone("--list", beside="STUDY")
    loaded = load_study(study_file)
    if only_list:
        _list(loaded, as_json)
        return
    try:
        Path(output).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{output}: cannot write: {error.strerror or error}") from None
    try:
        with Meter("runs") as meter:
            outcome = run_study(
                *(loaded, Path(output), workers, scheduler),
                threads=threads,
                fresh=fresh,
                progress=lambda done, whole: meter.update(loaded.name, done, whole),
            )
    except KeyboardInterrupt:
        click.echo("\nfinished runs are stored: start the same command again to continue", err=True)
        raise
    if as_json:
        print_json({**vars(outcome), "archive": str(outcome.archive), "study": loaded.digest})
    else:
        _show(loaded, outcome)
    if outcome.lost:
        ctx.exit(INCOMPLETE)


def _list(study: Study, as_json: bool) -> None:
    points = [point.coordinates for point in study.points]
    if as_json:
        print_json({"title": study.title, "study": study.digest, "archive": study.archive_name, "points": points})
        return
    columns = list(dict.fromkeys(name for point in points for name in point))
    rows = [(str(number), *(str(point.get(name, "")) for name in columns)) for number, point in enumerate(points)]
    print_table(study.title, ("point", *columns), rows)
    click.echo(f"{len(points)} points -> {study.archive_name}")


def _show(study: Study, outcome: Outcome) -> None:
    counts = (
        f"{outcome.points} points, {outcome.failed} failed; {outcome.runs} runs, {outcome.kept} of them from the store"
    )
    if outcome.lost:
        print_text("\n".join(outcome.lost), err=True)
        click.echo(
            f"{counts}; {len(outcome.lost)} lost with their workers: start the same command again to simulate them"
        )
        return
    archive = archives.open(outcome.archive)
    columns = list(dict.fromkeys(name for run in archive.runs for name in run.point if name != COLUMN))
    results = {number: run for number, run in archive.results() if run.point.get(COLUMN, WHOLE) == WHOLE}
    shown = FIGURES if any(run.kernels for run in results.values()) else _speedups(results)
    rows = []
    for number, run in list(results.items())[:SHOWN]:
        figures = {**run.headline(), **run.ratios()} if run.kernels else run.figures
        rows.append((str(number), *(str(run.point.get(name, "")) for name in columns), *map(figures.get, shown)))
    print_table(study.title, ("run", *columns, *shown), rows)
    for number, failure in archive.failures()[:SHOWN]:
        print_text(f"run {number} failed: {failure.reason}")
    print_text("\n".join([*runs_heading(archive), counts, f"wrote {outcome.archive}"]))


def _speedups(results: dict[int, RunResult]) -> tuple[str, ...]:
    """Names of the figures of scenarios that are shown: the speed-up of each configuration."""
    names = dict.fromkeys(name for run in results.values() for name in run.figures if name.endswith(".speedup"))
    return tuple(names)
