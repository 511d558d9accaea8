"""The benchmark of whole commands: a row for each, with an empty store and again."""

import subprocess

import pytest

from validation.bench.commands import BEFORE_COLUMNS, COLUMNS, report, spend

COMMAND = "kernel gemm:m=128,n=128,k=64,dtype=fp16 --preset v100"


def test_a_command_has_a_row():
    (row,) = [line for line in report([COMMAND]).splitlines() if line.startswith(f"| {COMMAND} |")]
    wall_s, cpu_s, memory, again_s, again_memory = (cell.strip() for cell in row.split("|")[2:-1])
    assert len(COLUMNS) == 6 and min(float(wall_s), float(cpu_s), float(again_s)) > 0
    assert all(float(text.removesuffix(" MB").replace(",", "")) > 50 for text in (memory, again_memory))


def test_another_revision_takes_turns(tmp_path):
    other = tmp_path / "t3sim"
    other.write_text("#!/bin/sh\nsleep 0.1\n")
    other.chmod(0o755)
    (row,) = [line for line in report([COMMAND], str(other)).splitlines() if line.startswith(f"| {COMMAND} |")]
    wall_s, _, before_s, _, ratio, _ = (cell.strip() for cell in row.split("|")[2:-1])
    assert len(BEFORE_COLUMNS) == 7 and 0.1 <= float(before_s) < 5
    assert float(ratio) == pytest.approx(float(wall_s) / float(before_s), rel=0.6)  # of rounded times


def test_a_command_that_fails_is_no_row(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        spend("kernel gemm:m=0", str(tmp_path))
