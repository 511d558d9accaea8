"""Time of large GEMMs: that all of a row is replayed, and that the table reaches its goal."""

import re

import pytest

from validation.against.gemm_time import GOAL, MACHINES, TABLE, measured, outcome, replay_ps

A100, MI210 = MACHINES


def test_rows_are_those_of_large_m():
    assert [row.m for row in measured(A100)] == [512 << k for k in range(7)]
    assert [row.m for row in measured(MI210)] == [512 << k for k in range(7)]


@pytest.mark.parametrize(("machine", "wave"), [(A100, 108), (MI210, 104)])
def test_an_outcome_is_the_whole_row(machine, wave):
    """Of a shallow one: all its tiles, one workgroup per CU at a time."""
    row = measured(machine)[1]._replace(k=64)
    found = outcome(machine, row)
    assert found.waves * wave + found.rest == 4 * 96
    assert found.time_us == replay_ps(machine, row) / 1e6
    assert found.time_us > 2 * outcome(machine, row._replace(m=256)).time_us  # 96 tiles, one wave


@pytest.mark.slow
def test_a_committed_row_is_what_the_simulator_says():
    row = measured(A100)[0]
    (line,) = (line for line in TABLE.read_text(encoding="utf-8").splitlines() if f"{A100.preset} | {row.m} x " in line)
    assert f" {outcome(A100, row).time_us:,.1f} " in line


def test_committed_table_names_calibration_and_reaches_the_goal():
    text = TABLE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (\d+) x .* \| ([-+][\d.]+) % \| (\w+) \|$", text, re.MULTILINE)
    for machine in MACHINES:
        mine = [(int(m), abs(float(error)), kind) for preset, m, error, kind in rows if preset == machine.preset]
        assert [m for m, _, _ in mine] == [row.m for row in measured(machine)]
        assert [m for m, _, kind in mine if kind == "calibration"] == [machine.calibrated_m]
        predicted = [error for _, error, kind in mine if kind == "prediction"]
        assert sum(predicted) / len(predicted) <= 100 * GOAL
