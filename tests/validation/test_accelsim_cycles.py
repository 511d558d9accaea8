"""Cycles of Accel-Sim on identical traces: within the tolerance or explained, and the committed table is ours."""

import pytest

from validation.accelsim_cycles import NOTES, TABLE, TOLERANCE, cases, cycle_row, replay, theirs_cycles

EXPLAINED = {"copy_512KiB"}


def test_launch_is_taken_off():
    assert [theirs_cycles(case) for case in cases()][:2] == [18028 - 5000, 6830 - 5000]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_cycles_are_within_the_tolerance_or_explained(case):
    outcome = replay(case)
    within = abs(outcome.cycles / theirs_cycles(case) - 1) <= TOLERANCE
    assert within != (case.name in EXPLAINED)  # an explained gap that closes must leave the list
    assert case.name not in EXPLAINED or f"**{case.name}**" in NOTES.read_text(encoding="utf-8")
    assert cycle_row(case, outcome) in TABLE.read_text(encoding="utf-8").splitlines()
