"""`t3sim run --checkpoint` and `t3sim t3 --checkpoint`: killed and started again, they end in the same bytes."""

import json
import os
import signal
import subprocess
import sys
from time import sleep

import numpy as np

from tests.support.paths import ROOT
from traces.command.cli import main

GEMM = ["run", "--gemm", "256x256x256", "--preset", "t3_2024"]


def start(arguments):
    program = f"import sys; from traces.command.cli import main; sys.exit(main({arguments!r}))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.DEVNULL)


def test_killed_and_started_again(tmp_path, capsys):
    whole, parts, file = (tmp_path / name for name in ("whole.h5", "parts.h5", "c"))
    assert main([*GEMM, "-o", str(whole)]) == 0
    arguments = [*GEMM, "-o", str(parts), "--checkpoint", str(file), "--checkpoint-every", "0"]
    with start(arguments) as process:
        while not file.exists():
            assert process.poll() is None, "it ended before its first checkpoint"
            sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL and not parts.exists()
    capsys.readouterr()
    assert main(arguments) == 0
    assert f"going on from {file}" in capsys.readouterr().err
    assert parts.read_bytes() == whole.read_bytes()
    assert not file.exists()


def test_a_foreign_file_is_one_line(tmp_path, capsys):
    np.savez(tmp_path / "c.npz", about=np.array("{}"))
    assert main([*GEMM, "--checkpoint", str(tmp_path / "c.npz")]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "the checkpoint of another run: file_type: found None" in shown.err


def test_the_results_archive_is_no_place_for_it(tmp_path, capsys):
    assert main([*GEMM, "-o", str(tmp_path / "r.h5"), "--checkpoint", str(tmp_path / "r.h5")]) == 2
    assert "--checkpoint: found" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


T3 = ["t3", "--kernel", "gemm:m=512,n=512,k=128", "--gpus", "4"]
T3 += ["--set", "cu.count=4", "--set", "l2.banks=4", "--set", "hbm.channels=2", "--set", "l2.bytes=1048576"]


def test_an_evaluation_killed_and_started_again(tmp_path, capsys):
    """Killed in the middle of a part; the same command goes on there."""
    whole, parts, file = (tmp_path / name for name in ("whole.h5", "parts.h5", "c"))
    assert main([*T3, "-o", str(whole)]) == 0
    arguments = [*T3, "-o", str(parts), "--checkpoint", str(file), "--checkpoint-every", "0"]
    with start(arguments) as process:
        while not file.exists() or not parts_done(file):
            assert process.poll() is None, "it ended before it could be killed"
            sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL and not parts.exists() and parts_done(file) < 6
    capsys.readouterr()
    assert main(arguments) == 0
    assert f"going on from {file}" in capsys.readouterr().err
    assert parts.read_bytes() == whole.read_bytes()
    assert not file.exists()


def parts_done(file):
    with np.load(file) as content:
        return len(json.loads(str(content["facts"]))["done"])


def test_the_checkpoint_of_a_run_is_none_of_an_evaluation(tmp_path, capsys):
    np.savez(tmp_path / "c.npz", about=np.array("{}"))
    assert main([*T3, "--checkpoint", str(tmp_path / "c.npz")]) == 2
    assert "the checkpoint of another run" in capsys.readouterr().err
    assert main([*T3, "-o", str(tmp_path / "r.h5"), "--checkpoint", str(tmp_path / "r.h5")]) == 2
    assert "which is the results archive" in capsys.readouterr().err
