"""How far simulated times of a machine are from measurements: the figures of the pages in validation/tables, in words.

`measured.csv` has a row for each kind of quantity; a test compares its numbers with the page.
"""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_suffix(".csv")


class Measured(NamedTuple):
    """Name of the preset, what was compared and how far it is off, and the page in validation/tables."""

    preset: str
    error: str
    page: str


@cache
def measured(name: str) -> tuple[Measured, ...]:
    """The comparisons of a preset; none of a file of the user, whose values may be others."""
    with TABLE.open(encoding="utf-8", newline="") as rows:
        return tuple(row for row in map(Measured._make, csv.reader(rows)) if row.preset == name)
