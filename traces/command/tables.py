"""Output of the verbs: tables for people and one JSON object for programs."""

import json
import sys
from collections.abc import Iterable

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from traces.plain_text import shown

WIDE = 100_000
"""Width of a console in characters on which every table fits."""


def print_json(content: dict) -> None:
    """Print one JSON object and nothing else."""
    json.dump(content, sys.stdout, indent=1)
    sys.stdout.write("\n")


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table. Numbers are right-aligned with separated thousands. In a pipe the table has its full width."""
    cells = [list(row) for row in rows]
    title = shown(title)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        numbers = all(isinstance(row[place], int | float) for row in cells)
        table.add_column(Text(shown(column)), justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(shown(number_text(value))) for value in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
        console = Console(width=max(len(title), console.measure(table).maximum))
    console.print(Text(title, style="bold"))
    console.print(table)


def print_text(text: str, err: bool = False) -> None:
    """Print lines that contain text from an input (names, titles, reasons), on stdout or stderr."""
    click.echo("\n".join(map(shown, text.split("\n"))), err=err)


def print_warnings(lines: Iterable[str]) -> None:
    """Print the warnings of a reader of trace text on stderr."""
    for line in lines:
        print(f"warning: {shown(line)}", file=sys.stderr)


def number_text(value: object) -> str:
    """A value as text: whole numbers with separators, small floats with four digits, `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
