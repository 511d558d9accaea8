"""`t3sim diff` and `t3sim merge`: two results archives compared, several put into one."""

from dataclasses import asdict

import click

from sim.results import open as open_archive
from sim.results import write_runs
from sim.results.diff import Move, moves
from traces.command.tables import print_json, print_table
from traces.write import output_path

MOVED = 1
"""Exit status of a diff that found something, as that of diff(1)."""


@click.command("diff")
@click.argument("one", type=click.Path())
@click.argument("other", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_context
def diff(ctx: click.Context, one: str, other: str, as_json: bool) -> None:
    """Name every counter, time, series and value of the machine that differs between two results archives.

    Exit status 0: nothing does, 1: something does. Instances: how many instances of the unit (or intervals of the
    series) differ; a counter whose sum stayed while its instances moved is listed too.

    Example: t3sim diff result.h5 result.h5
    """
    archives = open_archive(one), open_archive(other)
    found = moves(*archives)
    if as_json:
        print_json({"moved": [asdict(move) | {"change": move.change} for move in found]})
    elif found:
        columns = ("run", "kernel", "name", one, other, "change", "instances")
        print_table(f"{len(found)} differences", columns, map(_row, found))
    else:
        click.echo(f"no differences in {len(archives[0].runs)} runs")
    ctx.exit(MOVED if found else 0)


def _row(move: Move) -> tuple[object, ...]:
    change = "" if move.change is None else f"{move.change:+.4%}"
    places = (str(number) if number >= 0 else "" for number in (move.run, move.kernel))
    return (*places, move.name, move.before, move.after, change, str(move.instances or ""))


@click.command("merge")
@click.argument("results", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Results archive to write.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def merge(results: tuple[str, ...], output: str, as_json: bool) -> None:
    """Put the runs of several RESULTS archives into one, in their order, in the newest version of the format.

    Example: t3sim merge result.h5 result.h5 -o both.h5
    """
    output_path(output)
    for path in results:
        open_archive(path)  # a mistake before anything is written
    write_runs(output, (run for path in results for run in open_archive(path).runs))
    runs = len(open_archive(output).runs)
    if as_json:
        print_json({"output": output, "runs": runs})
    else:
        click.echo(f"wrote {output}: {runs} runs")
