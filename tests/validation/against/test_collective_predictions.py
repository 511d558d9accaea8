"""Blind predictions of collectives: the committed files answer all questions, and their figures fit together."""

import csv

import pytest

from sim.scenario.collective import bus_share
from validation.against.collective_predictions import COLUMNS, FOLDER, KIND, QUESTIONS


def _rows(machine):
    with (FOLDER / f"collectives_{machine}.csv").open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        assert tuple(reader.fieldnames or ()) == COLUMNS
        return list(reader)


@pytest.mark.parametrize("machine", dict.fromkeys(asked.machine for asked in QUESTIONS))
def test_every_question_has_an_answer_of_each_size(machine):
    rows = _rows(machine)
    asked = [(one.kind, one.gpus, size) for one in QUESTIONS if one.machine == machine for size in one.sizes]
    assert [(row["collective"], int(row["gpus"]), int(row["bytes"])) for row in rows] == asked
    assert {row["kind"] for row in rows} == {KIND}


@pytest.mark.parametrize("machine", dict.fromkeys(asked.machine for asked in QUESTIONS))
def test_bandwidth_is_that_of_the_time_and_grows_with_the_size(machine):
    for asked in (one for one in QUESTIONS if one.machine == machine):
        own = [row for row in _rows(machine) if (row["collective"], int(row["gpus"])) == (asked.kind, asked.gpus)]
        for row in own:
            bus_GBps = bus_share(asked.kind, asked.gpus) * int(row["bytes"]) / float(row["time_ns"])
            assert float(row["bus_GBps"]) == pytest.approx(bus_GBps)
        assert float(own[0]["bus_GBps"]) < float(own[-1]["bus_GBps"])
        assert float(own[-1]["time_ns"]) > float(own[0]["time_ns"])
