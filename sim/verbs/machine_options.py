"""Options of the verbs that choose a machine: `--preset` and `--set`."""

from collections.abc import Callable
from typing import Any

import click

from sim.verbs.completions import FIELD, PRESET


def with_machine(preset: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: add the options to a click command. preset: the default."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        change = "Change one value of the machine."
        command = click.option(
            "--set", "overrides", multiple=True, metavar="UNIT.FIELD=VALUE", shell_complete=FIELD, help=change
        )(command)
        machine = "Machine: a preset's name or a .toml file."
        return click.option("--preset", default=preset, show_default=True, shell_complete=PRESET, help=machine)(command)

    return decorated
