"""Output of the verbs: tables for people, one JSON object for programs."""

import json
import sys
from collections.abc import Iterable

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from traces.plain_text import shown

WIDE = 100_000
"""Columns of a console on which every table fits."""


def print_json(content: dict) -> None:
    """One JSON object on stdout and nothing else."""
    json.dump(content, sys.stdout, indent=1)
    sys.stdout.write("\n")


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A table on stdout; numbers to the right, with thousands separated. In a pipe it is as wide as it needs to be."""
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
    """Lines of text on stdout or stderr that hold words of an input (names, titles, reasons)."""
    click.echo("\n".join(map(shown, text.split("\n"))), err=err)


def print_warnings(lines: Iterable[str]) -> None:
    """What a reader of trace text found odd or left out, on stderr."""
    for line in lines:
        print(f"warning: {shown(line)}", file=sys.stderr)


def number_text(value: object) -> str:
    """Whole numbers with separators, small floats with four digits, nothing for None, anything else as it is."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
