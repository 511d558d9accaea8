"""The decision to omit workgroups, on made-up waves: from where the rate is, and what is not certain enough."""

from types import SimpleNamespace

import numpy as np
import pytest

from sim.run.extrapolation import END_WAVES, Cut, Snapshot, Watch
from sim.run.short_kernel import Pattern

WAVE, WHOLE = 10, 400
COLUMNS = np.dtype([("read_columns", "i8"), ("write_columns", "i8")])


def snapshot(workgroups, columns):
    return Snapshot(workgroups, {"hbm": np.array([(columns, 0)], COLUMNS)})


def watch(columns_of, accuracy=0.02, waves=20):
    """A watch over 20 of 40 waves of 10 workgroups, each of 1 us. columns_of: DRAM columns after a number of waves."""
    found = object.__new__(Watch)
    found.gpu, found.start_ps, found.accuracy, found.cut = None, 0, accuracy, None
    pattern = Pattern(WHOLE, WAVE, WAVE, 0)
    found.kernel = SimpleNamespace(pattern=pattern, given=WAVE * (waves + 1), omit=lambda: pattern.left_out(210))
    found._looks = [(n * 100_000, n) for n in range(WAVE * waves + 1)]
    found._snapshots = [snapshot(WAVE * n, columns_of(n)) for n in range(waves + 1)]
    return found


def test_counters_are_extended_at_the_rate_of_the_steady_waves():
    """The first ten waves read twice as much: they do not count."""
    found = watch(lambda n: 100 * n + 100 * min(n, 10))
    found._check(100)
    assert (found.cut.left, found.cut.first.workgroups, found.cut.last.workgroups) == (190, 100, 200)
    assert found.cut.added_ps == pytest.approx(190 * 100_000, rel=1e-3)
    assert found.cut.error_ps == pytest.approx(END_WAVES * WAVE * 100_000, rel=0.01)
    last = found._snapshots[-1].counted["hbm"]
    assert found.cut.extended(last, "hbm")["read_columns"][0] == 3000 + 19 * 100


def test_the_rate_is_that_between_two_snapshots():
    first, last = snapshot(60, 600), snapshot(100, 1400)
    cut = Cut(20, 0, first, last, 0.0, 0.0)
    assert cut.extended(last.counted["hbm"], "hbm")["read_columns"][0] == 1400 + 20 * (800 / 40)


def test_traffic_that_is_not_certain_lets_the_kernel_run_on():
    """Time is steady, traffic is not: 100 and 300 columns in turn."""
    found = watch(lambda n: 200 * n + 100 * (n % 2))
    found._check(100)
    assert found.cut is None


def test_too_little_to_omit_lets_the_kernel_run_on():
    """Of 40 waves, 7 would be left: less than a fifth."""
    found = watch(lambda n: 100 * n, waves=32)
    found._check(100)
    assert found.cut is None


def test_checks_become_rarer(monkeypatch):
    """The next one is when there are 9/8 as many waves: a check at every wave would sooner or later pass by chance."""
    found, checked = watch(lambda n: 100 * n, waves=0), []
    dispatch = [{"finished": 0}]
    found.gpu = SimpleNamespace(node=SimpleNamespace(dispatch=dispatch), now_ps=0)
    found._checked = 0
    monkeypatch.setattr(found, "_counted", dict)
    monkeypatch.setattr(found, "_steady", lambda: WAVE)
    monkeypatch.setattr(found, "_check", lambda steady: checked.append(len(found._snapshots) - 1))
    for ended in range(1, 20 * WAVE + 1):
        dispatch[0]["finished"], found.gpu.now_ps = ended, ended * 1000
        found.look()
    assert checked == [*range(1, 9), 9, 11, 13, 15, 17, 20]
