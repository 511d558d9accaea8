"""The kernel decorator: what makes it compile again, what does not, and what several processes see."""

import importlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba.core import config

from sim.machine.engine import run_engine
from tests.support.killed import kill, started
from tracer.compile import jit
from tracer.compile.fingerprint import ROOT, import_closure, source_fingerprint
from tracer.compile.jit import compiled

PROGRAM = """
import sys
from tracer.compile import jit
import caller, other
value = float(sys.argv[1]) if len(sys.argv) > 1 else 1
print(caller.outer(1), other.alone(value), jit.compiled_functions(), jit.compile_seconds() > 0)
"""
CALLER = """
from tracer.compile.jit import compiled
from callee import inner
from numbers_of import Size
@compiled
def outer(x):
    return inner(x) * 100 + Size.BIG
"""
CALLEE = """
from tracer.compile.jit import compiled
@compiled
def inner(x):
    return x + 1
"""
NUMBERS = """
from enum import IntEnum
class Size(IntEnum):
    BIG = 7
"""
OTHER = """
from tracer.compile.jit import compiled
@compiled
def alone(x):
    return -x
"""


@pytest.fixture
def modules(tmp_path):
    """A folder with four kernel modules and a program that calls them."""
    sources = {"program": PROGRAM, "caller": CALLER, "callee": CALLEE, "numbers_of": NUMBERS, "other": OTHER}
    for name, text in sources.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def run(folder, *arguments, **settings):
    """Run the program of `folder`; returns (printed words, stderr)."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("NUMBA_", "T3SIM_"))}
    env |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "T3SIM_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, str(folder / "program.py"), *map(str, arguments)]
    done = subprocess.run(command, env=env | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def entries(cache):
    """Files of compiled functions."""
    return [path for path in cache.rglob("*") if path.suffix in (".kernel", ".apart", ".part")]


def replace_in(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.slow
def test_second_process_compiles_nothing(modules):
    first, says = run(modules)
    assert first == ["207", "-1", "3", "True"] and says.count("compiling functions, once") == 1
    second, says = run(modules)
    assert second == ["207", "-1", "0", "False"] and says == ""


def test_the_progress_promises_no_number_of_functions(capsys):
    watch = jit._CompileWatch()
    for _ in range(2):
        watch.on_start(SimpleNamespace(data={"dispatcher": run_engine}))
    assert capsys.readouterr().err == "t3sim: compiling functions, once: up to a minute\n"


@pytest.mark.slow
def test_edited_callee_in_another_file_is_noticed(modules):
    run(modules)
    replace_in(modules / "callee.py", "x + 1", "x + 2")
    assert run(modules)[0][:3] == ["307", "-1", "2"]  # caller and callee again, `other` not


@pytest.mark.slow
def test_changed_enum_in_another_file_is_noticed(modules):
    run(modules)
    replace_in(modules / "numbers_of.py", "BIG = 7", "BIG = 8")
    assert run(modules)[0][:3] == ["208", "-1", "1"]  # only the caller: `inner` comes from the cache


@pytest.mark.slow
def test_edit_of_an_unrelated_module_recompiles_only_that(modules):
    run(modules)
    replace_in(modules / "other.py", "-x", "-2 * x")
    assert run(modules)[0][:3] == ["207", "-2", "1"]


@pytest.fixture
def apart(modules):
    """`modules`, whose callee has machine code of its own."""
    replace_in(modules / "callee.py", "@compiled", "@compiled(apart=True)")
    return modules


@pytest.mark.slow
def test_a_function_apart_is_compiled_once_whatever_its_callers_do(apart):
    assert run(apart)[0][:3] == ["207", "-1", "3"]
    assert run(apart)[0][2] == "0"
    replace_in(apart / "caller.py", "* 100", "* 1000")
    assert run(apart)[0][:3] == ["2007", "-1", "1"]


@pytest.mark.slow
def test_an_edited_function_apart_is_noticed(apart):
    run(apart)
    replace_in(apart / "callee.py", "x + 1", "x + 2")
    assert run(apart)[0][:3] == ["307", "-1", "2"]


@pytest.mark.slow
def test_a_function_apart_that_is_missing_is_compiled_again(apart):
    run(apart)
    (entry,) = (apart / "cache").rglob("*.apart")
    entry.unlink()
    assert run(apart)[0][:3] == ["207", "-1", "1"]
    entry.write_bytes(b"damaged")
    assert run(apart)[0][:3] == ["207", "-1", "1"]


@pytest.mark.slow
def test_named_tuples_with_other_fields_have_entries_of_their_own(modules):
    """Even where the kernel's module does not import the tuple, and the types of the fields are the same."""
    replace_in(modules / "other.py", "-x", "x.first - 10 * x.second")
    program = PROGRAM.replace("import caller, other", "import caller, other\nfrom collections import namedtuple")
    for fields, found in (("first second", "-19"), ("second first", "-8")):
        pair = f"namedtuple('Pair', '{fields}')(1, 2)"
        (modules / "program.py").write_text(program.replace("alone(value)", f"alone({pair})"))
        assert run(modules)[0][1] == found


@pytest.mark.slow
def test_boundscheck_has_its_own_entries(modules):
    run(modules)
    assert run(modules, NUMBA_BOUNDSCHECK="1")[0][2] == "3"
    assert run(modules)[0][2] == "0"


def test_disabled_jit_gives_plain_functions(modules):
    assert run(modules, NUMBA_DISABLE_JIT="1")[0] == ["207", "-1", "0", "False"]
    assert not (modules / "cache").exists()


@pytest.mark.slow
def test_unwritable_cache_warns_once_and_works(modules):
    (modules / "cache").write_text("a file where the folder should be")
    words, says = run(modules)
    assert words[:3] == ["207", "-1", "3"]
    assert says.count("t3sim: compiled functions cannot be kept in") == 1 and "Warning" not in says


@pytest.mark.slow
def test_a_cache_folder_that_not_even_root_can_make(modules):
    words, says = run(modules, T3SIM_CACHE_DIR="/dev/null/t3sim")
    assert words[:3] == ["207", "-1", "3"]
    assert says.count("compiled functions cannot be kept in /dev/null/t3sim") == 1 and "Traceback" not in says


@pytest.mark.slow
def test_damaged_cache_file_is_compiled_again(modules):
    run(modules)
    for file in entries(modules / "cache"):
        file.write_bytes(file.read_bytes()[:-10])
    assert run(modules)[0][:3] == ["207", "-1", "3"]
    assert run(modules)[0][2] == "0"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows keeps profiles apart")
@pytest.mark.parametrize("what", ["root", "folder", "entry"])
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_what_others_may_write_does_not_run(modules, what, mode):
    run(modules)
    cache = modules / "cache"
    places = {"root": [cache], "folder": list(cache.iterdir()), "entry": entries(cache)}
    for place in places[what]:
        place.chmod(mode)
    words, says = run(modules)
    assert words[:3] == ["207", "-1", "3"] and says.count("are not used: others may write there; chmod -R go-w") == 1
    for place in places[what]:
        place.chmod(0o755)
    assert run(modules)[0][2] == "0"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_what_belongs_to_another_user_does_not_run(modules):
    run(modules)
    os.chown(modules / "cache", 12345, -1)
    words, says = run(modules)
    assert words[:3] == ["207", "-1", "3"] and "some of it belongs to user 12345, not to you" in says


@pytest.mark.slow
def test_an_open_umask_does_not_open_the_cache(modules):
    before = os.umask(0)
    try:
        run(modules)
    finally:
        os.umask(before)
    words, says = run(modules)
    assert words[2] == "0" and says == ""


STOPPED = """
import runpy, sys, time
from pathlib import Path
def stop(*_):
    print("ready", flush=True)
    time.sleep(600)
Path.write_bytes = stop
runpy.run_path(sys.argv.pop())
"""


@pytest.mark.slow
def test_what_a_killed_process_was_compiling_goes(modules):
    cache = modules / "cache"
    path = os.pathsep.join((str(ROOT), str(modules)))
    kill(started(STOPPED, modules / "program.py", NUMBA_DISABLE_JIT="0", T3SIM_CACHE_DIR=str(cache), PYTHONPATH=path))
    assert [file.suffix for file in cache.rglob("*.*.t3sim")] == [".t3sim"]
    assert run(modules)[0][2] == "3"
    assert not list(cache.rglob("*.*.t3sim"))


@pytest.mark.slow
def test_a_kernel_that_closes_over_a_value_is_never_taken_from_the_cache(modules):
    (modules / "other.py").write_text(
        "import os\nfrom tracer.compile.jit import compiled\n"
        "def make(n):\n    @compiled\n    def scaled(x):\n        return n * x\n    return scaled\n"
        "alone = make(int(os.environ['SCALE']))\n"
    )
    assert [run(modules, SCALE=scale)[0][1] for scale in ("2", "3")] == ["2", "3"]


@pytest.mark.slow
def test_a_caller_of_such_a_kernel_is_not_taken_from_the_cache_either(modules):
    (modules / "other.py").write_text(
        "import os\nfrom tracer.compile.jit import compiled\n"
        "def make(n):\n    @compiled\n    def scaled(x):\n        return n * x\n    return scaled\n"
        "scaled = make(int(os.environ['SCALE']))\n"
        "@compiled\ndef between(x):\n    return scaled(x)\n"
        "@compiled\ndef alone(x):\n    return between(x) + 1\n"
    )
    assert [run(modules, SCALE=scale)[0][1] for scale in ("2", "3")] == ["3", "4"]


@pytest.mark.slow
def test_a_kernel_that_python_and_a_kernel_call(modules):
    program = (modules / "program.py").read_text()
    (modules / "program.py").write_text(program.replace("caller.outer(1)", "caller.inner(2) * 1000 + caller.outer(1)"))
    assert run(modules)[0] == ["3207", "-1", "4", "True"]  # `inner` for Python, and as a part of `outer`
    assert run(modules)[0] == ["3207", "-1", "0", "False"]


@pytest.mark.slow
def test_a_part_whose_callee_is_lost_is_compiled_again(modules):
    run(modules)
    replace_in(modules / "caller.py", "* 100", "* 10")
    for entry in entries(modules / "cache"):
        if entry.name.startswith("inner"):
            entry.unlink()
    assert run(modules)[0][:3] == ["27", "-1", "2"]


@pytest.mark.slow
def test_parallel_processes_share_a_cold_cache(modules):
    arguments = [[], ["1.5"], [], ["1.5"]]  # two signatures of one function, each compiled by two processes
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda argument: run(modules, *argument)[0][1], arguments))
    assert answers == ["-1", "-1.5", "-1", "-1.5"]
    assert run(modules)[0][1:3] == ["-1", "0"]
    assert run(modules, "1.5")[0][1:3] == ["-1.5", "0"]


def test_users_policy_is_part_of_the_key(monkeypatch, tmp_path):
    policy, user = tmp_path / "mine.py", tmp_path / "uses_slot.py"
    policy.write_text("A = 1\n")
    user.write_text("import sim.hw.policy\n")
    decorator = ROOT / "tracer" / "compile" / "jit.py"  # has nothing to do with policies

    def fingerprints():
        return source_fingerprint("uses_slot", user), source_fingerprint("tracer.compile.jit", decorator)

    monkeypatch.delenv("T3SIM_POLICY", raising=False)
    found = [fingerprints()]
    monkeypatch.setenv("T3SIM_POLICY", str(policy))
    found.append(fingerprints())
    policy.write_text("A = 2  # edited\n")
    found.append(fingerprints())
    assert len({with_slot for with_slot, _ in found}) == 3
    assert len({without_slot for _, without_slot in found}) == 1


def test_functions_of_a_module_share_a_fingerprint_until_it_is_loaded_again(modules, monkeypatch):
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    many = OTHER + "@compiled\ndef second(x):\n    return x\n"
    (modules / "reloaded.py").write_text(many)
    module = importlib.import_module("reloaded")
    folders = {module.alone._cache.folder}
    assert module.second._cache.folder in folders
    (modules / "reloaded.py").write_text(many.replace("-x", "x - 1"))
    folders.add(importlib.reload(module).alone._cache.folder)
    assert len(folders) == 2 and module.second._cache.folder in folders
    assert module.alone(7) == 6


def test_closure_follows_every_form_of_import(tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from . import b\nfrom .c import VALUE\nimport numpy\n")
    (package / "b.py").write_text("def f():\n    from pack import d\n")
    for leaf in "cd":
        (package / f"{leaf}.py").write_text("VALUE = 1\n")
    closure = import_closure("pack.a", package / "a.py")
    assert set(closure) == {"pack", "pack.a", "pack.b", "pack.c", "pack.d"}


def test_closure_of_a_script_has_what_it_imports_from_elsewhere(tmp_path, monkeypatch):
    script, far = tmp_path / "own" / "script.py", tmp_path / "far"
    for folder in (far, script.parent):
        folder.mkdir()
    script.write_text("import random\nimport numpy\nfrom sim.hw.request import NEVER\nfrom order import FIRST\n")
    (far / "order.py").write_text("from order_of import FIRST\n")
    (far / "order_of.py").write_text("FIRST = 1\n")
    monkeypatch.syspath_prepend(str(far))
    closure = import_closure("script", script)
    assert closure["order"] == far / "order.py" and {"script", "order_of", "sim.hw.request"} <= set(closure)
    assert not {"random", "numpy"} & set(closure)


def test_closure_of_a_room_module():
    closure = import_closure("sim.hw.fifo", ROOT / "sim" / "hw" / "fifo.py")
    assert {
        "sim.hw.fifo",
        "sim.hw.request",
        "tracer.compile.jit",
        "tracer.compile.cache",
        "tracer.compile.fingerprint",
    } <= set(closure)
    assert "validation" not in closure


@compiled
def number_at(numbers, index):
    return numbers[index]


@compiled(allocates=True)
def number_of_a_copy_at(numbers, index):
    return numbers.copy()[index]


@numba.njit
def anybodys_number_at(numbers, index):
    return numbers[index]


@pytest.mark.slow
@pytest.mark.skipif(config.DISABLE_JIT, reason="plain Python counts from the end")
def test_only_our_kernels_are_without_indices_from_the_end():
    """What `tracer.compile.jit` does to numba's indices concerns kernels without reference counts alone."""
    numbers = np.arange(10)
    assert anybodys_number_at(numbers[5:], -1) == number_of_a_copy_at(numbers[5:], -1) == 9
    if not config.BOUNDSCHECK:
        assert number_at(numbers[5:], -1) == 4  # the one before the first
