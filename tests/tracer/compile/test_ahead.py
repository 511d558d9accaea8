"""The process that compiles parts of a program: what it saves, how it ends, and that it changes nothing."""

import os
import subprocess
import sys
import time

import numba
import pytest

from sim.host import crew
from sim.host.gpu import Gpu
from sim.host.team import use_threads
from tests.support.killed import kill, started
from tests.support.paths import ROOT
from tests.support.programs import small_preset
from tracer.compile.atomics import PLAIN
from tracer.compile.cache import _key
from tracer.gemm.source import GemmProblem, GemmSource

MODULE = """
from tracer.compile.jit import compiled
@compiled
def inner(x):
    return x + 1
@compiled
def outer(x):
    return inner(x) * 100
"""
PROGRAM = """
import sys
from tracer.compile import jit
from tracer.compile.ahead import Helper
import both
status = Helper([(both.inner, (1,))]).wait() if sys.argv[1] == "helped" else 0
print(both.outer(1), jit.compiled_functions(), status)
"""
WRONG_NAME = """
import both
from tracer.compile.ahead import Helper
both.inner.__module__ = "not_there"
print(Helper([(both.inner, (1,))]).wait() != 0, both.outer(1))
"""
PARENT = """
import time
from types import SimpleNamespace
from tracer.compile.ahead import Helper
helper = Helper([(SimpleNamespace(__module__="endless", __qualname__="function"), (1,))])
print("ready", flush=True)
time.sleep(60)
"""
ENDLESS = """
import time
from pathlib import Path
for k in range(1200):
    Path(__file__).with_name("beats").write_text(str(k))
    time.sleep(0.05)
"""
"""A module whose import lasts a minute."""


@pytest.fixture
def run(tmp_path):
    """Runs a program with a compile cache; returns the words that it prints."""
    (tmp_path / "both.py").write_text(MODULE)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "T3SIM_"))}
    env["PYTHONPATH"] = str(ROOT)

    def call(text, cache, *words):
        (tmp_path / "program.py").write_text(text)
        command = [sys.executable, str(tmp_path / "program.py"), *words]
        done = subprocess.run(
            command, env=env | {"T3SIM_CACHE_DIR": str(tmp_path / cache)}, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    return call


@pytest.mark.slow
def test_what_a_helper_has_compiled_is_not_compiled_again(run):
    assert run(PROGRAM, "alone", "alone") == ["200", "2", "0"]
    assert run(PROGRAM, "shared", "helped") == ["200", "1", "0"]


@pytest.mark.slow
def test_a_helper_that_fails_changes_nothing(run):
    assert run(WRONG_NAME, "cache") == ["True", "200"]


def test_a_helper_ends_with_the_process_that_it_helps(tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    parent = started(PARENT, PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path)]))
    beats = tmp_path / "beats"
    wait_for(beats.exists)
    kill(parent)
    wait_for(lambda: stands_still(beats))


def wait_for(condition):
    began_s = time.monotonic()
    while not condition():
        assert time.monotonic() - began_s < 30
        time.sleep(0.05)


def stands_still(file):
    before = file.read_text()
    time.sleep(0.5)
    return file.read_text() == before


@pytest.mark.skipif(PLAIN, reason="plain Python")
@pytest.mark.slow
def test_helpers_are_asked_for_functions_that_the_engine_has(monkeypatch):
    asked = []
    machine = small_preset().machine
    after_kernel = Gpu(machine, threads=1)
    after_kernel.run_kernel(GemmSource(GemmProblem(64, 64, 32)), 0, None)  # the engine is compiled, without a helper
    monkeypatch.setattr(crew.Crew, "_helped", False)
    monkeypatch.setattr(crew, "is_compiled", lambda function: False)
    monkeypatch.setattr(crew, "Helper", asked.append)
    for threads, helpers in ((1, 0), (2, 1), (3, 2), (16, crew.MAX_HELPERS)):
        asked.clear()
        monkeypatch.setattr(crew.Crew, "_helped", False)
        with use_threads(threads):
            Gpu(machine)
        assert len(asked) == helpers
    calls = [call for of_one in asked for call in of_one]
    assert sorted(function.__name__ for function, _ in calls) == sorted(function.__name__ for function in crew.AHEAD)
    for function, arguments in calls:
        kinds = tuple(numba.typeof(value) for value in arguments)
        assert function._cache._file("apart", _key(kinds, function.targetctx.codegen())).is_file()


@pytest.mark.skipif(PLAIN, reason="plain Python")
def test_a_run_does_without_a_helper_that_cannot_start(monkeypatch):
    def refused(calls):
        raise OSError("no more processes")

    monkeypatch.setattr(crew.Crew, "_helped", False)
    monkeypatch.setattr(crew, "is_compiled", lambda function: False)
    monkeypatch.setattr(crew, "Helper", refused)
    with use_threads(2):
        gpu = Gpu(small_preset().machine)
    assert gpu.threads >= 1 and crew.Crew._helped
