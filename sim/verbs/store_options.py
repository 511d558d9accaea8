"""Options of the verbs that simulate: stored results, checkpoints, threads, the interval of a series."""

from collections.abc import Callable
from math import isfinite
from typing import Any

import click

from sim.host.checkpoint import EVERY_S
from sim.host.team import MOST_THREADS
from sim.run.run import Run
from sim.study.fields import STUDY_BOUNDS

INTERVAL_NS = click.IntRange(1, int(STUDY_BOUNDS["interval_ns"].most))
"""Type of the option --interval-ns."""

with_threads = click.option(
    "--threads",
    type=click.IntRange(1, MOST_THREADS),
    help="Threads of a run; the results do not depend on it.  [all cores; one GPU: at most 8]",
)
"""Decorator: add the option to a click command."""


class Seconds(click.FloatRange):
    """A time. `nan` is above no limit and below none, so a range alone would take it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number of seconds."""
        seconds = super().convert(value, param, ctx)
        if not isfinite(seconds):
            self.fail(f"found {value!r}, allowed is a number of seconds, 0 or more", param, ctx)
        return seconds


_OPTIONS = (
    click.option("--fresh", is_flag=True, help="Simulate again, even if the store of finished runs has the result."),
    click.option(
        "--checkpoint",
        "checkpoint_every_s",
        is_flag=False,
        flag_value=EVERY_S,
        type=Seconds(min=0),
        metavar="[SECONDS]",
        help=f"Save the run in progress in the store every SECONDS ({EVERY_S:g}); continue from a saved run.",
    ),
    with_threads,
)


def with_store(command: Callable) -> Callable:
    """Decorator: add the options to a click command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def report_resuming(run: Run) -> None:
    """Print on stderr that a run continues from its checkpoint."""
    click.echo(f"t3sim: continuing from the checkpoint of {run.title}", err=True)
