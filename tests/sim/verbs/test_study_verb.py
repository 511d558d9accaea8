"""`t3sim study`: table, list, JSON, what a lost worker and Ctrl-C say; a policy on the command line and in a study."""

import json
import os
import signal
import subprocess
import sys
import time

import click
import numpy as np
import pytest

from sim import results
from sim.study import Outcome
from tests.support.doc_blocks import file_of
from tests.support.paths import ROOT
from tracer.compile.jit import compiled
from traces.command.cli import main

STUDY = 'title = "Queues"\nkernel = "gemm:m=64,n=64,k=32"\n[axes]\nhbm.queue_entries = [16, 64]\nl2.ways = [24, 5]\n'
NEWEST = file_of("policies.md", "newest_first.py")
"""Compiling the machine with it takes a while, once."""


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "newest.py").write_text(NEWEST)
    return tmp_path


def t3sim(*arguments):
    """A process of its own, as a policy is bound when the machine is imported."""
    program = "import sys; from traces.command.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_table_and_list(desk, capsys):
    assert main(["study", "study.toml", "--list"]) == 0
    listed = capsys.readouterr().out
    name = listed.split()[-1]
    assert "4 points -> study-" in listed and not (desk / name).exists()
    assert main(["study", "study.toml", "--workers", "0"]) == 0
    shown = capsys.readouterr().out
    assert (
        shown.startswith("Queues\n")
        and f"wrote {name}" in shown
        and "2 failed; 2 runs, 0 of them from the store" in shown
    )
    assert "run 1 failed: v100: l2.bytes" in shown
    assert main(["study", "study.toml", "--workers", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[name] for name in ("points", "runs", "kept", "failed", "lost")] == [4, 2, 2, 2, []]
    assert results.open(found["archive"]).study == found["study"]
    assert main(["study", "study.toml", "--workers", "0", "-o", "new/folder"]) == 0
    assert (desk / "new" / "folder" / name).read_bytes() == (desk / name).read_bytes()


@pytest.mark.slow
def test_time_series_of_the_configurations_can_be_drawn(desk, capsys):
    (desk / "t3.toml").write_text(
        'run = "t3"\npreset = "t3_2024"\ninterval_ns = 1000\nkernel = "gemm:m=256,n=256,k=64"\nt3.gpus = 2\n'
        't3.configurations = ["T3", "Sequential"]\n[axes]\nhbm.queue_entries = [32, 64]\n'
    )
    assert main(["study", "t3.toml", "--workers", "0"]) == 0
    shown = capsys.readouterr().out
    assert "T3.speedup" in shown and "part" not in shown
    archive = str(next(desk.glob("t3-*.h5")))
    assert main(["plot", "traffic", archive, "--run", "9", "-o", "t3.png"]) == 0
    assert main(["plot", "traffic", archive, "--run", "5", "-o", "t3.png"]) == 2
    assert "no time series" in capsys.readouterr().err  # the run of figures
    assert main(["plot", "study", archive, "--figure", "T3.speedup", "-o", "lines.png"]) == 0
    assert main(["plot", "speedups", archive, "--table"]) == 0
    assert "hbm.queue_entries = 32" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.toml"], ["none.toml", "no such file"]),
        (["study.toml", "-o", "study.toml"], ["study.toml", "File exists"]),
        (["study.toml", "--workers", "-1"], ["--workers", "-1"]),
        (["newest.py"], ["newest.py", "not a TOML file"]),
        (["study.toml", "--scheduler", "tcp://127.0.0.1:1"], ["--scheduler", "no Dask scheduler answers"]),
    ],
)
def test_mistakes(arguments, words, desk, capsys, monkeypatch):
    monkeypatch.setattr("sim.run.workers.SCHEDULER_PATIENCE_S", 0.5)
    assert main(["study", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and all(word in error for word in words), error


def test_lost_points_are_named_and_the_status_is_1(desk, capsys, monkeypatch):
    outcome = Outcome(desk / "x.h5", 4, 2, 0, 0, ["point 3: KilledWorker: gone"])
    monkeypatch.setattr("sim.verbs.study.run_study", lambda *_, **__: outcome)
    assert main(["study", "study.toml"]) == 1
    shown = capsys.readouterr()
    assert "1 lost with their workers: start the same command again" in shown.out
    assert shown.err == "point 3: KilledWorker: gone\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("send", "number", "status", "word"),
    [
        (os.killpg, signal.SIGINT, 130, "interrupted"),
        (os.killpg, signal.SIGTERM, 143, "terminated"),
        (os.kill, signal.SIGTERM, 143, "terminated"),
    ],
)
def test_a_signal_is_one_word_and_keeps_the_runs(send, number, status, word, desk):
    """To the whole group, as a terminal or `timeout` sends it: workers must not answer it with tracebacks."""
    (desk / "study.toml").write_text(STUDY.replace("24, 5", "24, 12") + f"dispatch.seed = {[*range(50)]}\n")
    program = "import sys; from traces.command.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "study", "study.toml", "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until = time.monotonic() + 300
    while not list(desk.glob("store/*.h5")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    send(process.pid, number)
    out, err = process.communicate()  # the workers have these pipes, too, so they have ended
    assert process.returncode == status, err
    assert "start the same command again to continue" in err and f"t3sim: {word}" in err
    assert out.strip() == "" and not any(noise in err for noise in ("Traceback", "Warning", "semaphore")), err
    assert list(desk.glob("store/*.h5")) and not list(desk.glob("*.h5"))


@pytest.mark.slow
def test_a_policy_on_the_command_line(desk):
    done = t3sim("run", "--gemm", "256x256x64", "--policy", "newest.py", "-o", "newest.h5")
    assert done.returncode == 0, done.stderr
    found = results.open(desk / "newest.h5").run()
    assert found.preset.values()["hbm.arbiter"] == "user" and len(found.options["policy_sha256"]) == 64
    again = t3sim("run", "--gemm", "256x256x64", "--policy=newest.py", "--json")
    assert json.loads(again.stdout)["compile_s"] == 0  # compiled once, then from the cache


@pytest.mark.parametrize("verb", [("run",), ("t3", "--gpus", "2")])
def test_a_policy_beside_another_arbiter_is_refused(verb, desk):
    """The policy would be ignored."""
    common = (*verb, "--kernel", "gemm:m=256,n=256,k=64", "--policy", "newest.py", "--estimate", "--set")
    done = t3sim(*common, "hbm.arbiter=mca")
    assert done.returncode == 2 and "found hbm.arbiter = mca" in done.stderr, done.stderr
    assert t3sim(*common, "hbm.arbiter=user").returncode == 0


@pytest.mark.slow
def test_a_policy_in_a_study(desk):
    """Reads and writes meet at the DRAM where the L2 is much smaller than the matrices."""
    (desk / "study.toml").write_text(
        'preset = "t3_2024"\nkernel = "gemm:m=1024,n=1024,k=256"\n[set]\nl2.bytes = 131072\nhbm.queue_entries = 8\n'
        '[[points]]\npolicy = "newest.py"\n[[points]]\nhbm.arbiter = "fcfs"\n'
    )
    assert main(["study", "study.toml", "--workers", "0"]) == 0
    found = results.open(next(desk.glob("*.h5")))
    arbiters = [run.preset.values()["hbm.arbiter"] for run in found.runs]
    assert arbiters == ["user", "fcfs"]
    waits = [run.totals["hbm.wait_ps.compute_write"] for run in found.runs]
    assert waits[0] != waits[1] and found.runs[0].headline()["l2_write_sectors"] > 0
    assert found.runs[0].point == {"policy": "newest.py"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def pick(:\n", "invalid syntax"),
        ("x = 1\n", "no function pick"),
        (None, "no file"),
    ],
)
def test_a_wrong_policy_is_one_line(text, words, desk):
    if text:
        (desk / "wrong.py").write_text(text)
    done = t3sim("run", "--gemm", "64x64x64", "--policy", "wrong.py")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert words in done.stderr and "wrong.py" in done.stderr


def test_a_policy_that_does_not_compile_is_one_line(monkeypatch, capsys):
    """A stand-in for the arbiter, which would take the whole machine to compile."""

    @click.command()
    def compiling():
        compiled(lambda channel: channel.colour)(np.zeros(1, [("size", "i8")])[0])

    monkeypatch.setattr("traces.command.verbs.load_verb", lambda _: compiling)
    monkeypatch.setenv("T3SIM_POLICY", "wrong.py")
    assert main(["warm"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("t3sim: wrong.py: cannot be compiled: ") and "colour" in said[-1]
    monkeypatch.setenv("T3SIM_POLICY", "")
    with pytest.raises(Exception, match="colour"):
        main(["trace"])


def test_a_policy_that_comes_too_late(desk, capsys, monkeypatch):
    """This process has bound its arbiter; the option would be ignored."""
    monkeypatch.setenv("T3SIM_POLICY", "")
    assert main(["run", "--gemm", "64x64x64", "--policy", "newest.py"]) == 2
    assert "has bound its arbiter before" in capsys.readouterr().err
