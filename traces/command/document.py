"""A report as blocks, rendered as Markdown and as one HTML file without further files."""

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from traces.plain_text import shown

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #111; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 13px; }
th, td { border: 1px solid #bbb; padding: 2px 8px; text-align: left; vertical-align: top; }
th { background: #eee; } td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.inside { color: #005a3c; } .outside, .failed { color: #a33a00; font-weight: bold; }
img { max-width: 100%; }
"""


class Heading(NamedTuple):
    text: str
    level: int


class Text(NamedTuple):
    text: str


class Bullets(NamedTuple):
    lines: Sequence[str]


class Table(NamedTuple):
    """A table whose cells are text.

    numbers: names of the columns that are aligned to the right; None: the Markdown sets no alignment.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str] | None = None


class Picture(NamedTuple):
    """A PNG. path: relative to the report; caption: its content in words."""

    path: str
    caption: str


Block = Heading | Text | Bullets | Table | Picture


def to_markdown(blocks: Iterable[Block]) -> str:
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def to_html(blocks: Sequence[Block], title: str, folder: Path) -> str:
    """One HTML file. folder: the paths of pictures are relative to it."""
    body = "\n".join(_html(block, folder) for block in blocks)
    head = f'<meta charset="utf-8"><title>{escape(shown(title))}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def notes(path: Path) -> Text:
    """The notes of a person below a generated table, unchanged."""
    return Text(path.read_text(encoding="utf-8").rstrip("\n"))


def write_page(path: Path, text: str) -> None:
    """Write a generated page of Markdown and print it."""
    path.write_text(text, encoding="utf-8")
    print(text)


def table_line(cells: Iterable[str]) -> str:
    """One row of a Markdown table."""
    return "| " + " | ".join(map(markdown_text, cells)) + " |"


def markdown_text(text: str) -> str:
    """A text with escapes where Markdown would see a tag, a link or the end of a cell."""
    return re.sub(r"\||<(?=[A-Za-z/!?])|\](?=\()", lambda match: f"\\{match[0]}", shown(text))


def from_markdown(text: str) -> list[Block]:
    """The blocks of notes: headings, paragraphs and lists of one level."""
    blocks: list[Block] = []
    for part in text.strip().split("\n\n"):
        if part.startswith("#"):
            marks, _, words = part.partition(" ")
            blocks.append(Heading(words, len(marks)))
        elif part.startswith("* "):
            blocks.append(Bullets([" ".join(line.split()) for line in part[2:].split("\n* ")]))
        else:
            blocks.append(Text(" ".join(part.split())))
    return blocks


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {shown(text)}"
        case Text(text):
            return text
        case Bullets(lines):
            return "\n".join(f"* {line}" for line in lines)
        case Table(columns, rows, numbers):
            rule = "|---" * len(columns) + "|"
            if numbers is not None:
                rule = table_line("---:" if column in numbers else "---" for column in columns)
            return "\n".join((table_line(columns), rule, *map(table_line, rows)))
        case Picture(path, caption):
            return f"![{markdown_text(caption)}]({path})"
    raise TypeError(f"no such block: {block!r}")


def _html(block: Block, folder: Path) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(shown(text))}</h{level}>"
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Bullets(lines):
            return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
        case Table(columns, rows, numbers):
            head = "".join(f"<th>{escape(column)}</th>" for column in columns)
            body = "".join(f"<tr>{''.join(_cells(columns, row, numbers or ()))}</tr>" for row in rows)
            return f"<table><tr>{head}</tr>{body}</table>"
        case Picture(path, caption):
            data = b64encode((folder / path).read_bytes()).decode("ascii")
            words = escape(shown(caption))
            image = f'<img src="data:image/png;base64,{data}" alt="{words}">'
            return f"<figure>{image}<figcaption>{words}</figcaption></figure>"
    raise TypeError(f"no such block: {block!r}")


def _cells(columns: Sequence[str], row: Sequence[str], numbers: Sequence[str]) -> list[str]:
    cells = []
    for column, cell in zip(columns, row, strict=True):
        name = "number" if column in numbers else cell if column == "verdict" and cell.isalpha() else ""
        kind = f' class="{name}"' if name else ""
        cells.append(f"<td{kind}>{escape(shown(cell))}</td>")
    return cells
