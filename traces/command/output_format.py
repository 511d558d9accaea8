"""The form in which a verb prints its tables: `--format table|json|csv|markdown`.

With csv, standard output has tables only; the other lines of the verb go to stderr.
"""

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import wraps
from typing import Any, TextIO

import click

TABLE, JSON, CSV, MARKDOWN = FORMATS = ("table", "json", "csv", "markdown")
META = "t3sim.format"
"""Key in the context of click: (format, stream for tables)."""


def with_format(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--format` and its short form `--json` to a verb. The verb gets `as_json`; `print_table` knows the rest."""

    @click.option(
        "--format", "output_format", type=click.Choice(FORMATS), default=TABLE, show_default=True, help="Of tables."
    )
    @click.option("--json", "as_json", is_flag=True, help="Short for --format json: one JSON object.")
    @wraps(verb)
    def formatted(*args: Any, output_format: str, as_json: bool, **given: Any) -> Any:
        chosen = JSON if as_json else output_format
        click.get_current_context().meta[META] = (chosen, sys.stdout)
        with redirect_stdout(sys.stderr if chosen == CSV else sys.stdout):
            return verb(*args, as_json=chosen == JSON, **given)

    return formatted


def table_format() -> tuple[str, TextIO]:
    """(format, stream) of tables; outside a verb with `--format`: table on standard output."""
    context = click.get_current_context(silent=True)
    found: tuple[str, TextIO] = context.meta.get(META, (TABLE, sys.stdout)) if context else (TABLE, sys.stdout)
    return found
