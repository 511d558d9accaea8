"""Kernels of public profiles: simulated without their times, complete, and what the page and its notes say of them."""

import re

import pytest

from tests.support.profiles import layer, write_profile
from tracer.profile.kineto import read_profile
from validation.against import profiles
from validation.against.profiles import (
    NOTES,
    PREDICTIONS,
    REFERENCE,
    SHORT_NS,
    TABLE,
    TODAY,
    rows_of,
    table,
    without_times,
)
from validation.csv_file import read_csv, write_csv


@pytest.fixture
def one_profile(tmp_path, monkeypatch):
    """The module with one small profile, and files in a folder."""
    write_profile(tmp_path / "p.json", layer(), gpus=4)
    monkeypatch.setattr(profiles, "PROFILES", {"p.json": "h100_sxm"})
    monkeypatch.setattr(profiles, "TODAY", tmp_path / "today.csv")
    monkeypatch.setattr(profiles, "REFERENCE", tmp_path / "reference.csv")
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))
    return tmp_path


def test_a_simulated_time_does_not_depend_on_measured_ones(one_profile):
    profiles.simulate_all(one_profile, workers=1)
    before = (one_profile / "today.csv").read_bytes()
    slower = [{**event, "dur": 3 * event["dur"]} if event["cat"] == "kernel" else event for event in layer()]
    write_profile(one_profile / "p.json", slower, gpus=4)
    profiles.simulate_all(one_profile, workers=1)
    assert (one_profile / "today.csv").read_bytes() == before
    profile = without_times(read_profile(one_profile / "p.json"))
    assert {call.time_ns for call in profile.calls} == {1}


def test_measured_times_join_simulated_ones(one_profile):
    profiles.simulate_all(one_profile, workers=1)
    profiles.measure(one_profile)
    today = one_profile / "today.csv"
    rows = rows_of(one_profile / "reference.csv", today, today)
    assert [(row.work.split(":")[0], row.calls, row.measured_ns) for row in rows] == [
        ("all_reduce of 512 KiB, 4 GPUs", 2, 30_000),
        ("gemm", 2, 8_000),
        ("layernorm", 2, 4_000),
    ]
    assert all(row.error == row.error_today == row.today_ns / row.measured_ns - 1 for row in rows)


def test_every_prediction_is_blind_and_all_files_have_the_same_kernels(tmp_path):
    predictions = read_csv(PREDICTIONS)
    assert {row["kind"] for row in predictions} == {"blind"}
    rows = rows_of(REFERENCE, PREDICTIONS, TODAY)
    assert len(rows) == len(predictions) == 222
    assert all(row.today_ns for row in rows if row.preset == "h100_sxm")
    fewer = tmp_path / "fewer.csv"
    write_csv(fewer, predictions[0], [row.values() for row in predictions[1:]])
    with pytest.raises(ValueError, match="not in all of"):
        rows_of(REFERENCE, fewer, TODAY)


def test_the_page_is_made_from_the_committed_files():
    assert TABLE.read_text(encoding="utf-8") == table(rows_of(REFERENCE, PREDICTIONS, TODAY))


def test_the_notes_have_the_figures_of_the_page():
    rows = rows_of(REFERENCE, PREDICTIONS, TODAY)
    text = NOTES.read_text(encoding="utf-8")
    for preset, count in (("h100_sxm", 16), ("mi300x", 22)):
        errors = [abs(row.error) for row in rows if row.preset == preset and _plain(row)]
        assert len(errors) == count
        assert f"{100 * sum(errors) / count:.1f} %" in text


def _plain(row):
    """A GEMM of 10 us and more that is no batch, with aligned rows."""
    found = re.fullmatch(r"gemm:m=\d+,n=(\d+),k=(\d+),dtype=\w+", row.work)
    return found and row.measured_ns >= SHORT_NS and not int(found[1]) % 8 and not int(found[2]) % 8
