"""Programs: their machine code does not depend on where their parts come from."""

import os
import subprocess
import sys

from tests.support.paths import ROOT

LIMITS = """
from tracer.compile.jit import compiled
@compiled
def within(value, low, high):
    return max(low, min(value, high))
@compiled
def total(numbers, low, high):
    result = 0
    for k in range(len(numbers)):
        result += within(numbers[k], low, high)
    return result
"""
PROGRAM = """
import numpy as np
from limits import total
from tracer.compile import jit
answer = total(np.arange(5), 1, 3)
_, symbols = total.overloads[total.signatures[0]].library.machine_code()
print(answer, jit.compiled_functions(), len(symbols))
"""


def test_a_program_of_stored_parts_is_that_of_new_ones(tmp_path):
    """Functions of numba are not kept beside the places where LLVM has put them, also if the parts are new."""
    (tmp_path / "limits.py").write_text(LIMITS)
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "T3SIM_"))}
    env |= {"PYTHONPATH": str(ROOT), "T3SIM_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, str(tmp_path / "program.py")]
    found = []
    for _ in range(2):
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        found.append([int(word) for word in done.stdout.split()])
        for program in (tmp_path / "cache").rglob("*.kernel"):
            program.unlink()
    (answer, compiled, symbols), stored = found
    assert answer == 10
    assert compiled > 1
    assert stored == [10, 1, symbols]
