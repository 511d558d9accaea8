"""Blind predictions of collectives: the committed files answer all questions, and their figures fit together."""

import pytest

from sim.scenario.collective import bus_share
from validation.against import collective_predictions
from validation.against.collective_predictions import COLUMNS, FOLDER, KIND, QUESTIONS, Question
from validation.csv_file import read_csv


def _rows(machine):
    rows = read_csv(FOLDER / f"collectives_{machine}.csv")
    assert tuple(rows[0]) == COLUMNS
    return rows


@pytest.mark.parametrize("machine", dict.fromkeys(asked.machine for asked in QUESTIONS))
def test_every_question_has_an_answer_of_each_size(machine):
    rows = _rows(machine)
    asked = [(one.kind, one.gpus, size) for one in QUESTIONS if one.machine == machine for size in one.sizes]
    assert [(row["collective"], int(row["gpus"]), int(row["bytes"])) for row in rows] == asked
    assert {row["kind"] for row in rows} == {KIND} and all(row["revision"] for row in rows)


ASKED = (("all_reduce", 8), ("all_to_all", 2))


def test_other_collectives_keep_their_rows(tmp_path, monkeypatch):
    """With `--only` the other rows stay as they are."""
    old = ",".join(["all_to_all", "2", "4096", *["1"] * (len(COLUMNS) - 5), KIND, "older"])
    (tmp_path / "collectives_h200.csv").write_text(f"{','.join(COLUMNS)}\n{old}\n", encoding="utf-8")
    monkeypatch.setattr(collective_predictions, "FOLDER", tmp_path)
    monkeypatch.setattr(collective_predictions, "QUESTIONS", tuple(Question("h200", *of) for of in ASKED))
    monkeypatch.setattr(collective_predictions, "SIZES_BYTES", (4096,))
    collective_predictions.main(["--only", "h200", "all_reduce"])
    head, first, second = (tmp_path / "collectives_h200.csv").read_text(encoding="utf-8").splitlines()
    assert head == ",".join(COLUMNS) and second == old
    assert first.startswith("all_reduce,8,4096,") and not first.endswith("older")


@pytest.mark.parametrize("machine", dict.fromkeys(asked.machine for asked in QUESTIONS))
def test_bandwidth_is_that_of_the_time_and_grows_with_the_size(machine):
    for asked in (one for one in QUESTIONS if one.machine == machine):
        own = [row for row in _rows(machine) if (row["collective"], int(row["gpus"])) == (asked.kind, asked.gpus)]
        for row in own:
            bus_GBps = bus_share(asked.kind, asked.gpus) * int(row["bytes"]) / float(row["time_ns"])
            assert float(row["bus_GBps"]) == pytest.approx(bus_GBps)
        assert float(own[0]["bus_GBps"]) < float(own[-1]["bus_GBps"])
        assert float(own[-1]["time_ns"]) > float(own[0]["time_ns"])
