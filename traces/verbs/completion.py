"""`t3sim completion`: completion of verbs and options for your shell."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_T3SIM_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL. Evaluate it in the shell's start-up file.

    bash: eval "$(t3sim completion bash)"; zsh: the same with zsh; fish: t3sim completion fish | source

    Example: t3sim completion bash
    """
    script = get_completion_class(shell)
    assert script is not None  # click has these shells
    click.echo(script(ctx.find_root().command, {}, "t3sim", VARIABLE).source())
