"""`t3sim plot`: draw figures of a results archive as PNG, SVG or PDF."""

from pathlib import Path

import click

from sim import results
from sim.view.figures import KINDS, SPEEDUPS, check_settings, draw
from sim.view.speedup_cases import SpeedupCase, mean_speedups, speedup_cases
from sim.view.style import THEMES, check_figure, save
from traces.command.near_choice import NearChoice
from traces.command.tables import print_table
from traces.errors import UserError
from traces.output import output_path


@click.command("plot")
@click.argument("kind", type=NearChoice(KINDS))
@click.argument("archives", metavar="RESULT...", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="Figure to write, .png, .svg or .pdf.")
@click.option("--run", "number", type=int, help="Number of the run in RESULT, counted from 0.  [the first that fits]")
@click.option("--figure", help="study: the figure to draw, a column of the runs.  [time_ns, or a speed-up]")
@click.option("--over", help="study: swept field of the horizontal axis.  [the first]")
@click.option("--relative", is_flag=True, help="study: draw first value / value; for times this is the speed-up.")
@click.option(
    "--theme",
    type=NearChoice(tuple(THEMES)),
    default="screen",
    show_default=True,
    help="Size: screen, or paper (one column).",
)
@click.option("--table", is_flag=True, help="speedups: print the numbers; --output is then optional.")
def plot(
    kind: str,
    archives: tuple[str, ...],
    output: str | None,
    number: int | None,
    figure: str | None,
    over: str | None,
    relative: bool,
    theme: str,
    table: bool,
) -> None:
    """Draw a figure of the results archive RESULT.

    traffic: DRAM traffic over time by stream; queue: DRAM queues and workgroups over time (both need a run with
    --interval-ns); rates: bandwidths and hit rates of each kernel; roofline; study: a figure over a swept field;
    speedups: of the configurations, from one or several archives of t3sim t3 and of studies with run = "t3".

    Example: t3sim plot rates result.h5 -o rates.svg

    Example: t3sim plot speedups small.h5 --table -o speedups.svg
    """
    check_settings(kind, number, figure, over, relative)
    path = _checked_output(kind, archives, output, table)
    opened = [results.open(archive) for archive in archives]
    if table:
        _print_speedups(speedup_cases(opened))
    if path is None:
        return
    save(draw(kind, opened, number=number, figure=figure, over=over, relative=relative, theme=theme), path)
    click.echo(f"wrote {output}")


def _checked_output(kind: str, archives: tuple[str, ...], output: str | None, table: bool) -> Path | None:
    """Path of the figure, None = only the table.

    Raises:
        UserError: options that this kind does not have; a file that is not .png, .svg or .pdf, or cannot be written.
    """
    if kind != SPEEDUPS and (len(archives) > 1 or table):
        raise UserError(f"plot {kind}: takes one RESULT and no --table; plot {SPEEDUPS} takes several")
    if output is None:
        if not table:
            raise UserError(f"plot {kind}: --output: missing; name a .png, .svg or .pdf file")
        return None
    check_figure(Path(output))
    output_path(output)
    return Path(output)


def _print_speedups(cases: list[SpeedupCase]) -> None:
    means = mean_speedups(cases)
    rows: list[tuple[object, ...]] = [
        (" ".join(case.title.splitlines()), case.sequential_ns, *(case.speedups.get(name) for name in means))
        for case in cases
    ]
    if len(cases) > 1:
        rows.append(("geomean", None, *means.values()))
    print_table("Speed-ups over Sequential", ("scenario", "Sequential, ns", *means), rows)
