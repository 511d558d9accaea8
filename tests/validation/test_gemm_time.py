"""Time of large GEMMs: which parts are replayed, what the steady parts add, and that the table reaches its goal."""

import re

import pytest

from validation import gemm_time
from validation.gemm_time import GOAL, MACHINES, SAMPLE_K, TABLE, FirstWorkgroups, measured, outcome, sampled_ps

A100, MI210 = MACHINES


@pytest.fixture
def clockwork(monkeypatch):
    """Replays as a formula: 7 us to start, 3 ns per step of K and wave begun, also by one workgroup."""
    replayed = []

    def replay_ps(machine, row, count):
        wave = gemm_time.wave_workgroups(machine, row)
        replayed.append((row.k, count))
        return 7_000_000 + -(-count // wave) * row.k * 3_000

    monkeypatch.setattr(gemm_time, "replay_ps", replay_ps)
    return replayed


def test_rows_are_those_of_large_m():
    assert [row.m for row in measured(A100)] == [512 << k for k in range(7)]
    assert [row.m for row in measured(MI210)] == [512 << k for k in range(7)]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.preset)
def test_steady_parts_add_up_to_the_whole(machine, clockwork):
    for row in measured(machine):
        waves = -(-gemm_time.source_of(machine, row).tiles // gemm_time.wave_workgroups(machine, row))
        assert outcome(machine, row).time_us == pytest.approx(7 + waves * row.k * 3e-3)
    assert {k for k, _ in clockwork} == set(SAMPLE_K)
    assert max(count for _, count in clockwork) < 4 * gemm_time.wave_workgroups(machine, row)


def test_a_short_k_is_replayed_as_it_is(clockwork):
    row = measured(A100)[0]._replace(k=SAMPLE_K[0])
    assert sampled_ps(A100, row, 5) == 7_000_000 + SAMPLE_K[0] * 3_000
    assert clockwork == [(SAMPLE_K[0], 5)]


def test_first_workgroups_are_those_of_the_kernel():
    source = gemm_time.source_of(MI210, measured(MI210)[0]._replace(k=64))
    part = FirstWorkgroups(source, 3)
    assert [w.index for w in part.workgroups()] == [0, 1, 2]
    assert [w.index for w in part.workgroups(2)] == [2]
    assert part.info.workgroups == 3
    assert part.fingerprint() != source.fingerprint()


def test_committed_table_names_calibration_and_reaches_the_goal():
    text = TABLE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (\d+) x .* \| ([-+][\d.]+) % \| (\w+) \|$", text, re.MULTILINE)
    for machine in MACHINES:
        mine = [(int(m), abs(float(error)), kind) for preset, m, error, kind in rows if preset == machine.preset]
        assert [m for m, _, _ in mine] == [row.m for row in measured(machine)]
        assert [m for m, _, kind in mine if kind == "calibration"] == [machine.calibrated_m]
        predicted = [error for _, error, kind in mine if kind == "prediction"]
        assert sum(predicted) / len(predicted) <= 100 * GOAL
