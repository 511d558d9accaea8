"""`t3sim run --checkpoint` and `t3sim t3 --checkpoint`: killed and started again, they end in the same bytes."""

import os
import signal
import subprocess
import sys
from time import sleep

import pytest

from sim.run.store import Store
from tests.support.paths import ROOT
from traces.command.cli import main

GEMM = ["run", "--gemm", "256x256x256", "--preset", "t3_2024"]


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """A store of its own."""
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))
    return Store()


def start(arguments):
    program = f"import sys; from traces.command.cli import main; sys.exit(main({arguments!r}))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.DEVNULL)


def kill_when(process, ready):
    while not ready():
        assert process.poll() is None, "it ended before it could be killed"
        sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL


def in_progress(store):
    """Checkpoints of runs without a result. A run that has just ended has both files for a moment."""
    entries = store.entries()
    finished = {entry.key for entry in entries if entry.finished}
    return [entry for entry in entries if entry.key not in finished]


@pytest.mark.slow
def test_killed_and_started_again(store, tmp_path, capsys):
    whole, parts = tmp_path / "whole.h5", tmp_path / "parts.h5"
    arguments = [*GEMM, "-o", str(parts), "--checkpoint", "0"]
    with start(arguments) as process:
        kill_when(process, lambda: in_progress(store))
    assert not parts.exists()
    capsys.readouterr()
    assert main(arguments) == 0
    assert "continuing from the checkpoint of gemm_256x256x256 on t3_2024" in capsys.readouterr().err
    assert main([*GEMM, "-o", str(whole), "--fresh"]) == 0
    assert parts.read_bytes() == whole.read_bytes()
    assert not in_progress(store) and len(store.entries()) == 1


def test_an_interval_that_is_no_number_is_one_line(capsys):
    assert main([*GEMM, "--checkpoint", "c.npz"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "'c.npz' is not a valid float" in shown.err


T3 = ["t3", "--kernel", "gemm:m=512,n=256,k=64", "--gpus", "4"]
T3 += ["--set", "cu.count=4", "--set", "l2.banks=4", "--set", "hbm.channels=2", "--set", "l2.bytes=1048576"]


@pytest.mark.slow
def test_a_scenario_killed_and_started_again(store, tmp_path, capsys):
    """Killed in the middle of a run; the same command continues there."""
    whole, parts = tmp_path / "whole.h5", tmp_path / "parts.h5"
    arguments = [*T3, "-o", str(parts), "--checkpoint", "0"]
    with start(arguments) as process:
        kill_when(process, lambda: in_progress(store) and len(store.entries()) > 1)
    assert not parts.exists() and len(store.entries()) < 7
    left = bool(in_progress(store))  # False if the run in progress ended just before the signal came
    capsys.readouterr()
    assert main(arguments) == 0
    assert ("continuing from the checkpoint of" in capsys.readouterr().err) == left
    assert main([*T3, "-o", str(whole), "--fresh"]) == 0
    assert parts.read_bytes() == whole.read_bytes()
    assert all(entry.finished for entry in store.entries())


@pytest.mark.parametrize("seconds", ["nan", "inf", "soon"])
def test_a_time_that_never_comes_is_refused(seconds, capsys):
    assert main([*GEMM, f"--checkpoint={seconds}"]) == 2
    assert "Invalid value for '--checkpoint'" in capsys.readouterr().err
