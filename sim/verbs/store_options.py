"""Options of the verbs that simulate: whether the store's result will do, and how often a run in progress is kept."""

from collections.abc import Callable

import click

from sim.host.checkpoint import EVERY_S
from sim.run.run import Run

_OPTIONS = (
    click.option("--fresh", is_flag=True, help="Simulate anew, whatever the store of finished runs has."),
    click.option(
        "--checkpoint",
        "checkpoint_every_s",
        is_flag=False,
        flag_value=EVERY_S,
        type=click.FloatRange(min=0),
        metavar="[SECONDS]",
        help=f"Keep runs in progress in the store every SECONDS ({EVERY_S:g}); go on from there.",
    ),
)


def with_store(command: Callable) -> Callable:
    """A decorator that adds the options to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def report_resuming(run: Run) -> None:
    """A line on stderr about a run that goes on from its checkpoint."""
    click.echo(f"t3sim: going on from the checkpoint of {run.title}", err=True)
