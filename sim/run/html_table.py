"""A table as HTML, with which a result shows itself in a notebook."""

from collections.abc import Iterable
from html import escape


def html_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Title and table. Numbers are right-aligned, with four significant digits, or whole from 1000 on."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<p><strong>{escape(title)}</strong></p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f'<td style="text-align:right">{value:{",.0f" if abs(value) >= 1000 else ".4g"}}</td>'
    if isinstance(value, int):
        return f'<td style="text-align:right">{value:,}</td>'
    return f"<td>{escape(str(value))}</td>"
