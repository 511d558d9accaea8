"""The benchmark of whole commands: a row for each, with an empty store and again."""

import subprocess

import pytest

from validation.bench.commands import COLUMNS, report, spend

COMMAND = "kernel gemm:m=128,n=128,k=64,dtype=fp16 --preset v100"


def test_a_command_has_a_row():
    (row,) = [line for line in report([COMMAND]).splitlines() if line.startswith(f"| {COMMAND} |")]
    wall_s, cpu_s, memory, again_s, again_memory = (cell.strip() for cell in row.split("|")[2:-1])
    assert len(COLUMNS) == 6 and min(float(wall_s), float(cpu_s), float(again_s)) > 0
    assert all(float(text.removesuffix(" MB").replace(",", "")) > 50 for text in (memory, again_memory))


def test_a_command_that_fails_is_no_row(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        spend("kernel gemm:m=0", str(tmp_path))
