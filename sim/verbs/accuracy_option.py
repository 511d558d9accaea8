"""The option `--accuracy` of the verbs that simulate kernels on one GPU."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from sim.run.accuracy import accuracy_of, accuracy_text
from traces.errors import UserError


class Accuracy(click.ParamType):
    """Type of the option: a percentage or "exact"; its value is a relative error, 0.0 = exact."""

    name = "accuracy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return value if isinstance(value, float) else accuracy_of(value, "--accuracy")


def with_accuracy(default: str) -> Callable:
    """Decorator: add the option to a click command. default: a percentage or "exact"."""
    return click.option(
        "--accuracy",
        type=Accuracy(),
        default=default,
        show_default=True,
        metavar="PERCENT|exact",
        help="Largest error of time that the run may state. A long kernel is simulated in part. exact: in whole.",
    )


def check_exact_for(given: Mapping[str, Any], accuracy: float) -> None:
    """Refuse options that need a run in whole. given: option -> its value, None = not given."""
    for name, value in given.items():
        if accuracy and value is not None:
            raise UserError(f"{name}: found --accuracy {accuracy_text(accuracy)}, allowed with it is --accuracy exact")
