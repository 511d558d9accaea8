"""`t3sim diff`: differences between two results archives."""

from dataclasses import asdict

import click

from sim.results import open as open_archive
from sim.results.diff import Move, moves
from traces.command.tables import print_json, print_table

MOVED = 1
"""Exit status if there are differences, as of diff(1)."""


@click.command("diff")
@click.argument("one", type=click.Path())
@click.argument("other", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def diff(ctx: click.Context, one: str, other: str, as_json: bool) -> None:
    """List every counter, time, series, figure and value of the machine that differs between two results archives.

    Exit status 0: no differences, 1: differences. The column "instances" counts the instances of the unit (or the
    intervals of the series) that differ. A counter is listed too if its instances differ but its sum does not.

    Example: t3sim diff result.h5 result.h5
    """
    archives = open_archive(one), open_archive(other)
    differences = moves(*archives)
    if as_json:
        print_json({"moved": [asdict(move) | {"change": move.change} for move in differences]})
    elif differences:
        columns = ("run", "kernel", "name", one, other, "change", "instances")
        print_table(f"{len(differences)} differences", columns, map(_row, differences))
    else:
        click.echo(f"no differences in {len(archives[0].runs)} runs")
    ctx.exit(MOVED if differences else 0)


def _row(move: Move) -> tuple[object, ...]:
    change = "" if move.change is None else f"{move.change:+.4%}"
    places = (str(number) if number >= 0 else "" for number in (move.run, move.kernel))
    return (*places, move.name, move.before, move.after, change, str(move.instances or ""))
