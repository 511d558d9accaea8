"""Time of large GEMMs: what is replayed, what the rest of K adds, and that the table reaches its goal."""

import re

import pytest

from validation import gemm_time
from validation.gemm_time import GOAL, MACHINES, SAMPLE_K, TABLE, measured, outcome, sampled_ps

A100, MI210 = MACHINES


@pytest.fixture
def clockwork(monkeypatch):
    """Replays as a formula: 7 us to start, 3 ns per step of K and wave begun, also by one workgroup."""
    replayed = []

    def replay_ps(machine, row):
        waves = -(-gemm_time.source_of(machine, row).tiles // gemm_time.wave_workgroups(machine, row))
        replayed.append(row.k)
        return 7_000_000 + waves * row.k * 3_000

    monkeypatch.setattr(gemm_time, "replay_ps", replay_ps)
    return replayed


def test_rows_are_those_of_large_m():
    assert [row.m for row in measured(A100)] == [512 << k for k in range(7)]
    assert [row.m for row in measured(MI210)] == [512 << k for k in range(7)]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.preset)
def test_the_rest_of_k_goes_at_the_pace_between_the_samples(machine, clockwork):
    for row in measured(machine):
        found = outcome(machine, row)
        waves = found.waves + (found.rest > 0)
        assert found.time_us == pytest.approx(7 + waves * row.k * 3e-3)
    assert {*clockwork} == {*SAMPLE_K}


def test_a_short_k_is_replayed_as_it_is(clockwork):
    row = measured(A100)[0]._replace(k=SAMPLE_K[0])
    assert sampled_ps(A100, row) == 7_000_000 + 2 * SAMPLE_K[0] * 3_000
    assert clockwork == [SAMPLE_K[0]]


def test_committed_table_names_calibration_and_reaches_the_goal():
    text = TABLE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (\d+) x .* \| ([-+][\d.]+) % \| (\w+) \|$", text, re.MULTILINE)
    for machine in MACHINES:
        mine = [(int(m), abs(float(error)), kind) for preset, m, error, kind in rows if preset == machine.preset]
        assert [m for m, _, _ in mine] == [row.m for row in measured(machine)]
        assert [m for m, _, kind in mine if kind == "calibration"] == [machine.calibrated_m]
        predicted = [error for _, error, kind in mine if kind == "prediction"]
        assert sum(predicted) / len(predicted) <= 100 * GOAL
