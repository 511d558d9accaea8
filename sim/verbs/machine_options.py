"""Options of the verbs that choose a machine: `--preset` and `--set`, with a user's arbiter (`--policy`)."""

from collections.abc import Callable
from typing import Any

import click

from sim.presets import Preset, load_preset
from sim.run.policy_file import check_asked, check_bound
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


def machine_of(preset: str, overrides: tuple[str, ...], policy: str | None) -> Preset:
    """The machine of these options. With a policy its arbiter is `user`.

    Raises:
        UserError: as `load_preset`; this process has not bound the policy, or a value names another arbiter.
    """
    if policy is None:
        return load_preset(preset, overrides)
    check_bound(policy)
    machine = load_preset(preset, ("hbm.arbiter=user", *overrides))
    check_asked(policy, machine.machine)
    return machine
