"""`t3sim validate`: compare published and measured numbers with simulated ones."""

import sys
from pathlib import Path

import click

from sim.run.store import Store
from sim.view.style import WITHOUT_MATPLOTLIB, can_draw
from tracer.compile.process import process_costs
from traces.command.alone import check_alone
from traces.command.meter import Meter
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_table
from traces.output import output_path
from validation.experiments.experiment import Experiment
from validation.experiments.load import load_experiments
from validation.report.answers import Findings, answer_claims
from validation.report.archive import write_findings
from validation.report.compare import BASELINE, NOT_RUN, accept, worse
from validation.report.draw import draw_figures
from validation.report.page import CLAIM_COLUMNS, claim_cells, summary, write_report

LEFT = 1
"""Exit status where a claim has left its tolerance, as for anything else that failed."""


@click.command()
@click.option("--full", is_flag=True, help="Every experiment but those of hours; else those of about a minute.")
@click.option("--only", multiple=True, metavar="EXPERIMENT", help="This experiment (may be repeated).")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes; 2 need Dask.")
@click.option("--fresh", is_flag=True, help="Simulate anew, whatever the store of finished runs has.")
@click.option("--out", type=click.Path(), default="t3sim-validation", show_default=True, help="Folder of the report.")
@click.option("--accept", "accepting", is_flag=True, help="Make the claims that are inside now the baseline.")
@click.option("--list", "listing", is_flag=True, help="List the experiments and leave.")
@with_format
def validate(
    full: bool,
    only: tuple[str, ...],
    workers: int,
    fresh: bool,
    out: str,
    accepting: bool,
    listing: bool,
    as_json: bool,
) -> None:
    """Simulate the experiments behind the claims and compare: published, simulated, error, verdict, kind.

    Writes report.md, report.html, validation.h5 and figures into the folder --out. Finished runs are kept in the store
    (T3SIM_STORE), so that an interrupted call goes on where it stopped. Exit status 1: a claim has left its tolerance.

    All but the searches, hours on a slow machine: --full --workers 2.

    Example: t3sim validate --only gemm_counters --out report
    """
    if listing:
        check_alone("--list")
        _list(load_experiments(), as_json)
        return
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    output_path(folder / "validation.h5")
    if not can_draw():
        click.echo(f"the report will have no figures: {WITHOUT_MATPLOTLIB}", err=True)
    with Meter("runs") as meter:
        found = answer_claims(
            Store(),
            full=full,
            only=only,
            workers=workers,
            fresh=fresh,
            progress=lambda done, whole: meter.update("validate", done, whole),
        )
    write_findings(folder / "validation.h5", found)
    write_report(folder, found, {})  # the numbers are safe, whatever happens to the figures
    if can_draw():
        write_report(folder, found, draw_figures(found, folder))
    lost = worse(found.rows, BASELINE)
    if accepting:
        accept(found.rows, BASELINE)
    if as_json:
        print_json(as_dict(found) | process_costs())
    else:
        _show(found, folder)
    for row in lost:
        print(f"claim {row.claim.id} has left its tolerance: now {row.simulated}, {row.verdict}", file=sys.stderr)
    if lost and not accepting:
        raise click.exceptions.Exit(LEFT)


def as_dict(found: Findings) -> dict:
    """Plain values for JSON."""
    return {
        "claims": [row.as_dict() for row in found.rows],
        "answers": found.answers,
        "failed": found.failed,
    }


def _show(found: Findings, folder: Path) -> None:
    """The claims that have run, as a table."""
    rows = [claim_cells(row) for row in found.rows if row.verdict != NOT_RUN]
    print_table("published - simulated", CLAIM_COLUMNS, rows)
    click.echo(summary(found.rows))
    for name, why in found.failed.items():
        click.echo(f"{name} failed: {why}")
    click.echo(f"wrote {folder}/report.md, report.html and validation.h5{' and figures' if can_draw() else ''}")


def _list(experiments: dict[str, Experiment], as_json: bool) -> None:
    if as_json:
        print_json(
            {name: {"title": each.title, "full": each.full, "named": each.named} for name, each in experiments.items()}
        )
        return
    rows = [(name, _runs_with(name, each), each.title) for name, each in experiments.items()]
    print_table("experiments", ("name", "runs with", "what"), rows)


def _runs_with(name: str, experiment: Experiment) -> str:
    """The option that runs an experiment."""
    if experiment.named:
        return f"--only {name}"
    return "full" if experiment.full else "quick"
