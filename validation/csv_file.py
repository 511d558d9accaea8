"""Read and write the CSV files of references, predictions, tables and claims."""

import csv
from collections.abc import Iterable
from pathlib import Path

from traces.output import replacing


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a file, each with its columns as keys. Lines that begin with # are comments."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def write_csv(path: Path, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a file completely, or not at all."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
