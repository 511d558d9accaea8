"""Predictions of kernels of public profiles: made without times, complete, and what the page says of them."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.profiles import layer, write_profile
from tracer.profile.kineto import read_profile
from validation.against import profiles
from validation.against.profiles import PREDICTIONS, REFERENCE, TABLE, rows_of, table, without_times
from validation.csv_file import read_csv


@pytest.fixture
def one_profile(tmp_path, monkeypatch):
    """The module with one small profile, and files in a folder."""
    write_profile(tmp_path / "p.json", layer(), gpus=4)
    monkeypatch.setattr(profiles, "PROFILES", {"p.json": "h100_sxm"})
    monkeypatch.setattr(profiles, "PREDICTIONS", tmp_path / "predictions.csv")
    monkeypatch.setattr(profiles, "REFERENCE", tmp_path / "reference.csv")
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))
    return tmp_path


def test_a_prediction_does_not_depend_on_times(one_profile):
    profiles.predict(one_profile, workers=1)
    before = (one_profile / "predictions.csv").read_bytes()
    slower = [{**event, "dur": 3 * event["dur"]} if event["cat"] == "kernel" else event for event in layer()]
    write_profile(one_profile / "p.json", slower, gpus=4)
    profiles.predict(one_profile, workers=1)
    assert (one_profile / "predictions.csv").read_bytes() == before
    profile = without_times(read_profile(one_profile / "p.json"))
    assert {call.time_ns for call in profile.calls} == {1}


def test_measured_times_join_their_predictions(one_profile):
    profiles.predict(one_profile, workers=1)
    profiles.measure(one_profile)
    rows = rows_of(read_csv(one_profile / "predictions.csv"), read_csv(one_profile / "reference.csv"))
    assert [(row.work.split(":")[0], row.calls, row.measured_ns) for row in rows] == [
        ("all_reduce of 512 KiB, 4 GPUs", 2, 30_000),
        ("gemm", 2, 8_000),
        ("layernorm", 2, 4_000),
    ]
    assert all(row.error == row.simulated_ns / row.measured_ns - 1 for row in rows)


def test_every_prediction_is_blind_and_has_its_measurement():
    assert {row["kind"] for row in read_csv(PREDICTIONS)} == {"blind"}
    assert len(rows_of(read_csv(PREDICTIONS), read_csv(REFERENCE))) == len(read_csv(REFERENCE)) > 200
    with pytest.raises(ValueError, match="differ in"):
        rows_of(read_csv(PREDICTIONS)[1:], read_csv(REFERENCE))


def test_the_page_is_made_from_the_committed_files():
    rows = rows_of(read_csv(PREDICTIONS), read_csv(REFERENCE))
    assert TABLE.read_text(encoding="utf-8") == table(rows)
