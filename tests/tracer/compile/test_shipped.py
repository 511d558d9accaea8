"""Machine code that comes with a wheel: used where it fits, else compiled as usual."""

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from tracer.compile import shipped

SQUARES = """
from tracer.compile.jit import compiled
@compiled
def inner(x):
    return x * x
@compiled
def outer(x):
    return inner(x) + 1
"""
PROGRAM = """
import os
from pathlib import Path
from tracer.compile import jit, shipped
shipped.FILE = Path(os.environ["SHIPPED"])
shipped.FEATURES += tuple(os.environ.get("ALSO_NEEDED", "").split())
import squares
print(squares.outer(3), jit.compiled_functions())
"""
TARGET = {"NUMBA_CPU_NAME": shipped.TARGET, "NUMBA_CPU_FEATURES": ""}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(shipped.llvm.get_host_cpu_features().get(name) for name in shipped.FEATURES),
        reason=f"this CPU is not {shipped.TARGET}",
    ),
]


def run(folder, cache, **settings):
    """Run PROGRAM with a compile cache; returns [answer, number of functions compiled]."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "T3SIM_"))}
    env |= {"PYTHONPATH": str(ROOT), "SHIPPED": str(folder / "shipped.zip"), "T3SIM_CACHE_DIR": str(folder / cache)}
    command = [sys.executable, str(folder / "program.py")]
    done = subprocess.run(command, env=env | settings, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


@pytest.fixture(params=[1, 2], ids=["one program", "and one apart"])
def packed(tmp_path, monkeypatch, request):
    """A folder with a program and the code that was shipped with it: of one program, or also of one apart."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "squares.py").write_text(
        SQUARES if request.param == 1 else SQUARES.replace("@compiled", "@compiled(apart=True)", 1)
    )
    assert run(tmp_path, "target", **TARGET) == [10, 2]
    monkeypatch.setattr(shipped, "FILE", tmp_path / "shipped.zip")
    assert shipped.pack(tmp_path / "target") == request.param
    return tmp_path


def test_a_machine_that_has_never_compiled_compiles_nothing(packed):
    assert run(packed, "empty") == [10, 0]
    assert not [file for file in (packed / "empty").rglob("*") if file.suffix in (".kernel", ".apart", ".part")]


def test_what_does_not_fit_is_compiled(packed):
    assert run(packed, "empty", ALSO_NEEDED="feature-of-another-cpu") == [10, 2]
    assert run(packed, "other", NUMBA_CPU_NAME="x86-64-v2", NUMBA_CPU_FEATURES="") == [10, 2]
    assert run(packed, "checked", NUMBA_BOUNDSCHECK="1") == [10, 2]
    squares = packed / "squares.py"
    squares.write_text(squares.read_text().replace("+ 1", "+ 2"))
    assert run(packed, "edited") == [11, 2]


def test_the_same_code_packs_to_the_same_bytes(packed):
    first = shipped.FILE.read_bytes()
    shipped.pack(packed / "target")
    assert shipped.FILE.read_bytes() == first
