"""Options of the verbs that keep a checkpoint: where, and how often."""

from collections.abc import Callable

import click

from sim.host.checkpoint import Checkpoint
from traces.errors import UserError
from traces.write import output_path

CHECKPOINT_EVERY_S = 300.0


def with_checkpoint(command: Callable) -> Callable:
    """A decorator that adds the options to a command."""
    command = click.option(
        "--checkpoint-every",
        type=click.FloatRange(min=0),
        default=CHECKPOINT_EVERY_S,
        show_default=True,
        metavar="SECONDS",
        help="Least time between two checkpoints.",
    )(command)
    where = click.option(
        "--checkpoint", "checkpoint_file", type=click.Path(), help="Keep how far it is; go on from there."
    )
    return where(command)


def checkpoint_of(file: str | None, every_s: float, output: str | None) -> Checkpoint | None:
    """The checkpoint that was asked for; says where it goes on from.

    Raises:
        UserError: a place that cannot be written, or that of the results.
    """
    if file is None:
        return None
    checkpoint = Checkpoint(file, every_s)
    if output is not None and output_path(output) == checkpoint.path:
        raise UserError(f"--checkpoint: found {file}, which is the results archive; give it a name of its own")
    if checkpoint.path.exists():
        click.echo(f"t3sim: going on from {file}", err=True)
    return checkpoint
