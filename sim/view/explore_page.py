"""The page of `t3sim explore` as one HTML file: rows, columns, and a library of charts.

Vega-Lite draws the charts. Its scripts come from the package vl-convert-python and stand in the page, so the page needs
no network.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from sim.results import ResultsArchive
from sim.view.explore_rows import Column, Row, differs_within, rows_of
from sim.view.page import page
from traces.errors import UserError

DIGITS = 6
"""Significant digits of numbers in the page."""
SNIPPET = "window.vegaEmbed = vegaEmbed;"
"""What the page uses of the library."""
WITHOUT_LIBRARY = "explore needs a library of charts: pip install 't3sim[explore]'"


def explore_page(archives: Iterable[ResultsArchive], title: str) -> str:
    """The page as text.

    Raises:
        UserError: vl-convert-python is not installed, or the archives hold no run.
    """
    rows, columns, failed = rows_of(archives)
    if not rows:
        raise UserError("explore: found no run; " + (failed[0] if failed else "the store is empty"))
    data = {
        "title": title,
        "columns": [_column(column, rows) for column in columns.values()],
        "rows": [_row(row, columns) for row in rows],
        "failed": failed,
    }
    return page("explore", f"t3sim explore: {title}", data, [_charts()], ("explore_tables", "explore_charts"))


@cache
def _charts() -> str:
    """The scripts of Vega, Vega-Lite and Vega-Embed."""
    try:
        import vl_convert
    except ImportError:
        raise UserError(WITHOUT_LIBRARY) from None
    return str(vl_convert.javascript_bundle(SNIPPET))


def _column(column: Column, rows: list[Row]) -> dict[str, Any]:
    values = [row.values.get(column.name) for row in rows]
    known = [value for value in values if value is not None]
    return {
        "name": column.name,
        "meaning": column.meaning,
        "place": column.place,
        "figure": column.is_figure,
        "number": all(isinstance(value, int | float) and not isinstance(value, bool) for value in known),
        "differs": len({str(value) for value in values}) > 1,
        "listed": not column.of_machine or differs_within(column.name, rows),
    }


def _row(row: Row, columns: dict[str, Column]) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "label": row.label,
        "values": [_plain(row.values.get(name)) for name in columns],
        "times": {part: _plain(time) for part, time in row.times.items()},
        "traffic": {part: _plain(volume) for part, volume in row.traffic.items()},
        "origin": row.origin,
        "machine": row.machine,
        "kinds": _kinds(row),
    }


def _kinds(row: Row) -> dict[str, int]:
    """Number of values of the machine by kind of their sources."""
    return dict(Counter(source.kind for source in row.preset.sources.values()))


def _plain(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
