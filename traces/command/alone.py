"""A check that the user gave an option alone: what is beside it would have no effect."""

import click
from click.core import ParameterSource

from traces.errors import UserError


def check_alone(option: str, beside: str = "") -> None:
    """Refuse what the user gave beside an option that leaves the rest of the verb without effect.

    Args:
        option: the user gave it.
        beside: metavar of an argument that it needs.

    Raises:
        UserError: names another argument or option. `--format` and `--json` are allowed.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "") == ParameterSource.COMMANDLINE
        name = parameter.human_readable_name if isinstance(parameter, click.Argument) else parameter.opts[0]
        if given and name not in (option, beside, "--format", "--json"):
            raise UserError(f"{option}: found {name} beside it, which would have no effect: leave it out")
