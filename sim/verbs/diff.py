"""`t3sim diff`: differences between two results archives."""

import re
from dataclasses import asdict

import click

from sim.results import open as open_archive
from sim.results.diff import Move, moves
from traces.command.output_format import with_format
from traces.command.tables import Quantity, print_json, print_table

MOVED = 1
"""Exit status if there are differences, as of diff(1)."""
DIGITS = 12
"""Digits of a SHA-256 in a table; --json has all."""


@click.command("diff")
@click.argument("one", type=click.Path())
@click.argument("other", type=click.Path())
@with_format
@click.pass_context
def diff(ctx: click.Context, one: str, other: str, as_json: bool) -> None:
    """List everything that differs between two results archives: first the causes, then the results.

    Causes are the input (the kernel and its tiles), options, values of the machine, and versions. Results are figures,
    times, counters and series.

    Exit status 0: no differences, 1: differences. The column "instances" counts the instances of the unit (or the
    intervals of the series) that differ. A counter is listed too if its instances differ but its sum does not.

    Example: t3sim diff result.h5 result.h5
    """
    archives = open_archive(one), open_archive(other)
    differences = moves(*archives)
    if as_json:
        print_json({"moved": [asdict(move) | {"change": move.change} for move in differences]})
    elif differences:
        causes = [move for move in differences if move.cause]
        found = [move for move in differences if not move.cause]
        print_table(f"{len(causes)} causes", ("run", "name", one, other), map(_cause_row, causes))
        columns = ("run", "kernel", "name", one, other, "change", "instances")
        click.echo()
        print_table(f"{len(found)} differences of results", columns, map(_row, found))
    else:
        click.echo(f"no differences in {len(archives[0].runs)} runs")
    ctx.exit(MOVED if differences else 0)


def _cause_row(move: Move) -> tuple[object, ...]:
    return (str(move.run) if move.run >= 0 else "all", move.name, _cut(move.before), _cut(move.after))


def _cut(value: object) -> object:
    """A digest as its first digits; other values unchanged."""
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return f"{value[:DIGITS]}..."
    return value


def _row(move: Move) -> tuple[object, ...]:
    change = "" if move.change is None else Quantity(move.change, f"{move.change:+.4%}")
    places = (str(number) if number >= 0 else "" for number in (move.run, move.kernel))
    return (*places, move.name, move.before, move.after, change, str(move.instances or ""))
