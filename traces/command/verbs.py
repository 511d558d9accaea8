"""Verbs: found as entry points, listed by their modules' first lines, imported when they are called.

A package adds a verb by an entry point of the group `t3sim.verbs`: its name is the verb ("trace.make" = `t3sim trace
make`), its value names a click command. The first line of that module says what the verb does: "`t3sim run`: replay a
trace". A verb loads and compiles only what it needs.
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

from traces.errors import UserError

GROUP = "t3sim.verbs"
OWN = "t3sim"
"""The distribution whose verbs come first: nobody else's replaces them."""


@cache
def verbs() -> dict[str, EntryPoint]:
    """Verb, with its group before a dot -> entry point, in alphabetical order."""
    found: dict[str, EntryPoint] = {}
    points = sorted(
        entry_points(group=GROUP), key=lambda point: (point.dist is None or point.dist.name != OWN, point.name)
    )
    for point in points:
        found.setdefault(point.name, point)
    return dict(sorted(found.items()))


def summary_of(point: EntryPoint) -> str:
    """What the first line of the verb's module says after the colon; nothing where there is no such line."""
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
        UserError: a verb of another package that cannot be imported, or that is no click command.
    """
    if point.dist is None or point.dist.name == OWN:
        command = getattr(importlib.import_module(point.module), point.attr)
    else:
        try:
            command = point.load()
        except Exception as error:  # whatever another package raises
            raise UserError(f"verb {point.name} of {point.dist.name}: {type(error).__name__}: {error}") from error
    if not isinstance(command, click.Command):
        raise UserError(f"verb {point.name}: {point.value} is no click command")
    return command


class VerbGroup(click.Group):
    """The verbs whose names begin with `prefix`, as a click group."""

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
            raise click.UsageError(f"no verb {args[0]!r}; allowed are {', '.join(self._points())}", ctx)
        if self._before_verb:
            self._before_verb(args)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        point = self._points().get(cmd_name)
        return load_verb(point) if point else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs with their summaries, without importing them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        points = self._points().items()
        return [CompletionItem(name, help=summary_of(point)) for name, point in points if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, summary_of(point)) for name, point in self._points().items()])
