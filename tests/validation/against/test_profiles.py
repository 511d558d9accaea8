"""Kernels of public profiles: simulated without their times, complete, and what the page and its notes say of them."""

import re
from collections import defaultdict

import pytest

from sim.presets import load_preset
from tests.support.profiles import layer, write_profile
from validation.against import profiles
from validation.against.profiles import (
    NOTES,
    PREDICTIONS,
    PROFILES,
    SHORT_NS,
    TABLE,
    predicted_rows,
    table,
    todays_rows,
    with_excess,
)
from validation.csv_file import read_csv, write_csv

PADDING = ",pad=dense"
"""Field of GEMMs with odd rows, which the predictions lack."""


@pytest.fixture
def one_profile(tmp_path, monkeypatch):
    """The module with one small profile, and files in a folder."""
    write_profile(tmp_path / "p.json", layer(), gpus=4)
    monkeypatch.setattr(profiles, "PROFILES", {"p.json": "h100_sxm"})
    monkeypatch.setattr(profiles, "TODAY", tmp_path / "today.csv")
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))
    write_csv(tmp_path / "today.csv", profiles.SIMULATED, [("kept", "b200", "matrix", "x", "y", 1, 2.0, 3.0, "dram")])
    return tmp_path


def test_a_simulated_time_does_not_depend_on_measured_ones(one_profile):
    def simulated():
        profiles.simulate_all(one_profile, ["p.json"], workers=1)
        return {row["work"]: (row["simulated_ns"], row["bound_by"]) for row in read_csv(one_profile / "today.csv")}

    before = simulated()
    slower = [{**event, "dur": 3 * event["dur"]} if event["cat"] == "kernel" else event for event in layer()]
    write_profile(one_profile / "p.json", slower, gpus=4)
    assert simulated() == before


def test_measured_times_stand_beside_simulated_ones(one_profile):
    profiles.simulate_all(one_profile, ["p.json"], workers=1)
    rows = todays_rows()
    assert [(row.work.split(":")[0], row.calls, row.measured_ns) for row in rows] == [
        ("all_reduce of 512 KiB, 4 GPUs", 2, 30_000),
        ("gemm", 2, 8_000),
        ("layernorm", 2, 4_000),
        ("y", 1, 2.0),  # rows of other profiles stay
    ]
    assert all(row.error == row.simulated_ns / row.measured_ns - 1 for row in rows)


def test_the_excess_is_that_of_the_shortest_kernel_of_a_profile(one_profile):
    profiles.simulate_all(one_profile, ["p.json"], workers=1)
    exchange, gemm, norm, other = with_excess(todays_rows())
    assert norm.error_with_excess == 0 < norm.excess_ns == gemm.excess_ns
    assert [row.calibrates for row in (exchange, gemm, norm)] == [False, False, True]
    assert exchange.excess_ns == other.excess_ns == 0  # an exchange is no kernel; the other is simulated too slow


def test_every_prediction_is_blind_and_has_its_measured_time(tmp_path, monkeypatch):
    predictions = read_csv(PREDICTIONS)
    assert {row["kind"] for row in predictions} == {"blind"}
    assert len(predicted_rows()) == len(predictions) == 222
    fewer = tmp_path / "fewer.csv"
    write_csv(fewer, predictions[0], [row.values() for row in predictions[1:]])
    monkeypatch.setattr(profiles, "PREDICTIONS", fewer)
    with pytest.raises(ValueError, match="not in both of"):
        predicted_rows()


def test_todays_gemms_are_those_of_the_predictions():
    """The same calls and measured times, also where kernels of two names ran one of them."""

    def gemms(rows):
        found = defaultdict(lambda: [0, 0.0])
        for row in rows:
            if row.work.startswith("gemm"):
                text = row.work.split(",family=")[0].replace(PADDING, "")
                found[row.profile, text][0] += row.calls
                found[row.profile, text][1] += row.calls * row.measured_ns
        return found

    today, predicted = gemms(todays_rows()), gemms(predicted_rows())
    assert {row.profile for row in todays_rows()} == PROFILES.keys()
    assert today.keys() == predicted.keys()
    assert all(today[key] == pytest.approx(predicted[key], rel=1e-3) for key in today)


def test_a_calibrating_kernel_is_no_result_and_gives_the_value():
    """The rows that are left out are the two that the preset names."""
    rows = [row for row in read_csv(profiles.TODAY) if row["preset"] == "mi300x"]
    today = {row.work for row in todays_rows() if row.preset == "mi300x"}
    left = sorted((row for row in rows if row["work"] not in today), key=lambda row: float(row["measured_ns"]))
    workgroups = [int(re.search(r"rows=(\d+)", row["work"])[1]) for row in left]
    few_ns, many_ns = (float(row["measured_ns"]) for row in left)
    rate_ps = 1000 * (many_ns - few_ns) / (workgroups[1] - workgroups[0])
    assert load_preset("mi300x").machine.dispatch.workgroup_ps == pytest.approx(rate_ps, rel=1e-3)


def test_the_page_is_made_from_the_committed_files():
    assert TABLE.read_text(encoding="utf-8") == table(with_excess(predicted_rows()), with_excess(todays_rows()))


def test_the_notes_have_the_figures_of_the_page():
    text = NOTES.read_text(encoding="utf-8")
    for preset, count in (("h100_sxm", 16), ("mi300x", 22)):
        errors = [abs(row.error) for row in predicted_rows() if row.preset == preset and _plain(row)]
        assert len(errors) == count
        assert f"{100 * sum(errors) / count:.1f} %" in text


def _plain(row):
    """A GEMM of 10 us and more that is no batch, with aligned rows."""
    found = re.fullmatch(r"gemm:m=\d+,n=(\d+),k=(\d+),dtype=\w+", row.work)
    return found and row.measured_ns >= SHORT_NS and not int(found[1]) % 8 and not int(found[2]) % 8
