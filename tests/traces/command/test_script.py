"""Every script of the project says what it does before it does anything."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INTERNAL = {"tracer/compile/ahead.py"}
"""Begun by t3sim itself, with the folder of its caller on standard input."""
READ_ARGUMENTS = ("without_options(", "ArgumentParser(", "@click.")


def scripts():
    for room in ("traces", "tracer", "sim", "validation"):
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if '__name__ == "__main__"' in text and str(path.relative_to(ROOT)) not in INTERNAL:
                yield path, text


def test_every_script_reads_its_arguments():
    silent = [path.name for path, text in scripts() if not any(one in text for one in READ_ARGUMENTS)]
    assert silent == []


@pytest.mark.parametrize(
    ("argument", "status", "words"), [("--help", 0, "usage: "), ("x", 2, "unrecognized arguments: x")]
)
def test_a_script_without_options_does_nothing_else(argument, status, words):
    command = [sys.executable, "-m", "sim.view.counter_names", argument]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert words in done.stdout + done.stderr
    assert "# Counters under" not in done.stdout
