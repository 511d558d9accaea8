"""Verbs of the command line. They are found as entry points and imported only when they are called.

A package adds a verb with an entry point of the group `t3sim.verbs`. Its name is the verb ("trace.make" = `t3sim trace
make`). Its value names a click command. The help text of the verb is the first line of that module after the colon:
"`t3sim run`: replay a trace". A verb loads and compiles only the code that it needs.
"""

import ast
import importlib
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from traces.choices import nearest
from traces.errors import UserError

GROUP = "t3sim.verbs"
OWN = "t3sim"
"""The distribution whose verbs come first. Verbs of other packages cannot replace them."""


@cache
def verbs() -> dict[str, EntryPoint]:
    """Verb (with its group before a dot) -> entry point, in alphabetical order."""
    verb_points: dict[str, EntryPoint] = {}
    points = sorted(
        entry_points(group=GROUP), key=lambda point: (point.dist is None or point.dist.name != OWN, point.name)
    )
    for point in points:
        verb_points.setdefault(point.name, point)
    return dict(sorted(verb_points.items()))


def summary_of(point: EntryPoint) -> str:
    """The first line of the verb's module after the colon; an empty text if there is no such line."""
    try:
        spec = find_spec(point.module)
        text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        first_line = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    except (ImportError, OSError, SyntaxError, ValueError):
        return ""
    return first_line.partition(": ")[2].rstrip(".")


def load_verb(point: EntryPoint) -> click.Command:
    """Import a verb.

    Raises:
        UserError: a verb of another package cannot be imported, or a verb is no click command.
    """
    if point.dist is None or point.dist.name == OWN:
        command = getattr(importlib.import_module(point.module), point.attr)
    else:
        try:
            command = point.load()
        except Exception as error:  # another package can raise anything
            raise UserError(f"verb {point.name} of {point.dist.name}: {type(error).__name__}: {error}") from error
    if not isinstance(command, click.Command):
        raise UserError(f"verb {point.name}: {point.value} is no click command")
    return command


class VerbGroup(click.Group):
    """A click group of the verbs whose names begin with `prefix`."""

    def __init__(self, prefix: str = "", before_verb: Callable[[list[str]], None] | None = None, **settings) -> None:
        """before_verb: called with the arguments before a verb is imported."""
        super().__init__(no_args_is_help=True, **settings)
        self._prefix, self._before_verb = prefix, before_verb

    def _points(self) -> dict[str, EntryPoint]:
        own = {
            name.removeprefix(self._prefix): point for name, point in verbs().items() if name.startswith(self._prefix)
        }
        return {name: point for name, point in own.items() if "." not in name}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._points())

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self._points():
            raise click.UsageError(f"no verb {args[0]!r}; {nearest(args[0], self._points())}", ctx)
        if self._before_verb:
            self._before_verb(args)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        point = self._points().get(cmd_name)
        return load_verb(point) if point else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs with their summaries. Imports no verb."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        points = self._points().items()
        return [CompletionItem(name, help=summary_of(point)) for name, point in points if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, summary_of(point)) for name, point in self._points().items()])
