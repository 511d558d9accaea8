"""Blind predictions of collectives: every question has all sizes, and larger ones take longer."""

import csv

import pytest

from validation.against.collective_predictions import COLUMNS, FOLDER, KIND, QUESTIONS, SIZES_BYTES


@pytest.mark.parametrize("asked", QUESTIONS, ids=str)
def test_every_question_has_all_sizes(asked):
    with (FOLDER / f"collectives_{asked.machine}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS and {row["kind"] for row in rows} == {KIND}
    own = [row for row in rows if (row["collective"], int(row["gpus"])) == (asked.kind, asked.gpus)]
    assert [int(row["bytes"]) for row in own] == list(SIZES_BYTES)
    times = {int(row["bytes"]): float(row["time_ns"]) for row in own}
    assert all(times[4 * size] > times[size] for size in SIZES_BYTES[4:-2])
