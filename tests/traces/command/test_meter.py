"""Progress: silent for short work, one line now and then where stderr is no terminal."""

from io import StringIO

import pytest

from traces.command import meter
from traces.command.meter import Meter


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets: clock["s"]."""
    now = {"s": 100.0}
    monkeypatch.setattr(meter, "perf_counter", lambda: now["s"])
    return now


def test_short_work_is_silent(clock, capsys):
    with Meter("workgroups") as progress:
        for done in range(100):
            clock["s"] = 100 + done * 0.019
            progress.update("gemm", done, 100)
    assert capsys.readouterr().err == ""


def test_long_work_says_how_far_how_fast_and_how_long(clock, capsys):
    with Meter("workgroups") as progress:
        for done in range(0, 2600, 100):
            clock["s"] = 100 + done / 100
            progress.update("gemm", done, 10_000)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "t3sim: gemm: 200 of 10,000 workgroups, 100/s, 98 s left",
        "t3sim: gemm: 1,200 of 10,000 workgroups, 100/s, 88 s left",
        "t3sim: gemm: 2,200 of 10,000 workgroups, 100/s, 78 s left",
    ]


def test_each_piece_of_work_has_its_own_rate(clock, capsys):
    with Meter("workgroups") as progress:
        progress.update("first", 0)
        clock["s"] += 5
        progress.update("second", 0)
        clock["s"] += 10
        progress.update("second", 50)
    assert capsys.readouterr().err.splitlines()[-1] == "t3sim: second: 50 workgroups, 5/s"


def test_work_that_was_done_before_is_not_in_the_rate(clock, capsys):
    with Meter("runs") as progress:
        progress.update("study", 10, 12)
        clock["s"] += 20
        progress.update("study", 11, 12)
    assert capsys.readouterr().err == "t3sim: study: 11 of 12 runs, 0.05/s, 20 s left\n"


def test_the_bar_of_a_terminal_shows_all_and_the_mean_rate(clock, monkeypatch):
    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(meter.sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with Meter("runs") as progress:
        for done in range(3):
            clock["s"] += 100
            progress.update("study", done, 12)
    assert "2/12 runs, 0.01/s, 1,000 s left" in terminal.getvalue()
