"""`t3sim run --checkpoint`: killed and started again, it ends in the same bytes and leaves no checkpoint."""

import os
import signal
import subprocess
import sys
from time import sleep

import numpy as np

from tests.validation.paths import ROOT
from validation.cli import main

GEMM = ["run", "--gemm", "256x256x256", "--preset", "t3_2024"]


def start(arguments):
    program = f"import sys; from validation.cli import main; sys.exit(main({arguments!r}))"
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
