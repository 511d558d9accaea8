"""Output of the verbs: tables for people, CSV and Markdown, and one JSON object for programs."""

import csv
import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TextIO

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from traces.command.document import Table as TableBlock
from traces.command.document import to_markdown
from traces.command.output_format import CSV, MARKDOWN, table_format
from traces.plain_text import shown
from traces.units import bytes_text, ps_to_ns, time_text

GAP = 2
"""Characters between two columns."""
COMMAND = "t3sim "
"""A line with a command is not broken, so that it can be copied."""
INDENT = "    "
FOLDED = 30
"""Text in wider columns is folded where the terminal is narrow; narrower columns stay whole."""


class Quantity(NamedTuple):
    """A number that people read as text. CSV has the number, and the unit in the name of its column.

    A column with several units has them in the names of its rows. None is an empty cell.
    """

    value: float | None
    text: str
    unit: str = ""

    def __str__(self) -> str:
        return self.text


def share(value: float) -> Quantity:
    return Quantity(value, f"{value:.1%}")


def duration(time_ps: float) -> Quantity:
    return Quantity(ps_to_ns(time_ps), time_text(time_ps), "ns")


def size(data_bytes: int) -> Quantity:
    return Quantity(data_bytes, bytes_text(data_bytes), "bytes")


def print_json(content: dict) -> None:
    """Print one JSON object and nothing else."""
    json.dump(content, sys.stdout, indent=1)
    sys.stdout.write("\n")


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table in the format that the user chose (`traces.command.output_format`).

    For people, numbers are right-aligned with separated thousands. Columns that do not fit the terminal follow in
    further blocks, each with the first column. In a pipe the table has its full width. CSV has plain values.
    """
    form, stream = table_format()
    names, cells = [shown(column) for column in columns], [list(row) for row in rows]
    numbers = [_is_number([row[place] for row in cells]) for place in range(len(names))]
    if form == CSV:
        _print_csv(title, names, cells, stream)
        return
    texts = [[shown(number_text(value)) for value in row] for row in cells]
    if form == MARKDOWN:
        right = [name for name, is_number in zip(names, numbers, strict=True) if is_number]
        print(f"**{shown(title)}**\n\n" + to_markdown([TableBlock(names, texts, right)]), file=stream)
        return
    _print_blocks(shown(title), names, numbers, texts)


def _is_number(column: Sequence[object]) -> bool:
    """Has a column numbers, and nothing else but missing values?"""
    kinds = {isinstance(value, int | float) for value in column if value is not None and value != ""}
    return kinds == {True}


def _print_csv(title: str, names: Sequence[str], cells: Sequence[Sequence[object]], stream: TextIO) -> None:
    """One table: a comment line with the title, the header, the rows, an empty line."""
    stream.write(f"# {shown(title)}\n")
    writer = csv.writer(stream, lineterminator="\n")
    columns = [[row[place] for row in cells] for place in range(len(names))]
    units = [{cell.unit for cell in column if isinstance(cell, Quantity)} for column in columns]
    writer.writerow([_with_unit(name, found) for name, found in zip(names, units, strict=True)])
    for row in cells:
        several = (cell for cell, found in zip(row, units, strict=True) if len(found) > 1)
        first, *others = map(_plain, row)
        writer.writerow([_with_unit(first, {cell.unit for cell in several if isinstance(cell, Quantity)}), *others])
    stream.write("\n")


def _with_unit(name: object, units: set[str]) -> object:
    """The name of a column or row, with the unit if it has one only."""
    return f"{name}, {unit}" if len(units) == 1 and (unit := next(iter(units))) else name


def _plain(value: object) -> object:
    if isinstance(value, Quantity):
        return value.value
    return shown(value) if isinstance(value, str) else value


def _print_blocks(title: str, names: list[str], numbers: list[bool], texts: list[list[str]]) -> None:
    console = Console()
    widths = [max(map(cell_len, column)) for column in zip(names, *texts, strict=True)]
    if not console.is_terminal:
        console = Console(width=max(len(title), sum(widths) + GAP * len(widths)))
    console.print(Text(title, style="bold"))
    for block in _blocks(widths, console.width):
        table = Table(box=None, pad_edge=False, header_style="bold")
        for place in block:
            whole = widths[place] <= FOLDED
            table.add_column(
                Text(names[place]), justify="right" if numbers[place] else "left", overflow="fold", no_wrap=whole
            )
        for row in texts:
            table.add_row(*(Text(row[place]) for place in block))
        console.print(table)


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Columns of each block that fits `room` characters. Every block begins with the first column."""
    blocks = [[0]]
    used = least = min(widths[0], FOLDED)
    for place, width in enumerate(widths[1:], 1):
        needed = GAP + min(width, FOLDED)
        if used + needed > room and len(blocks[-1]) > 1:
            blocks.append([0])
            used = least
        blocks[-1].append(place)
        used += needed
    return blocks


def print_text(text: str, err: bool = False) -> None:
    """Print lines that contain text from an input (names, titles, reasons), on stdout or stderr.

    On a terminal, lines that are too long continue below, indented.
    """
    console = Console(stderr=err)
    lines = [shown(line) for line in text.split("\n")]
    if console.is_terminal:
        lines = [part for line in lines for part in _fitted(line, console.width)]
    click.echo("\n".join(lines), err=err)


def _fitted(line: str, width: int) -> list[str]:
    """A line in parts of at most `width` characters, if its words allow that."""
    if len(line) <= width or COMMAND in line:
        return [line]
    return textwrap.wrap(line, width, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False)


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
