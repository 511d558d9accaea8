"""The loops of `validation.bench.units` in C: what the same work on the same records costs without numba.

`c_loops/*.c` are our kernels written once more in plain C. The C compiler of this machine (`CC`, else `cc`) builds them
when they are first wanted; the structs of `records.h` are made from the numpy record types (`validation.c_records`), so
kernel and C loop work on the same bytes and must leave the same bytes behind.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from traces.errors import UserError
from validation.c_records import records_header

SOURCES = Path(__file__).parent / "c_loops"
FLAGS = ("-std=c11", "-O3", "-march=native", "-shared", "-fPIC")
ROUNDS = 5
"""Kernel and C loop run in turns this often; the fastest of each counts."""


class Loop(NamedTuple):
    """A benchmark's loop: the kernel, its C function and what both are called with, all state new."""

    kernel: Callable[..., int | None]
    c_name: str
    fresh: Callable[[], tuple[Any, ...]]


class Cost(NamedTuple):
    """CPU time of the kernel and of the C loop (None where there is none), in seconds."""

    kernel_s: float
    c_s: float | None


def compiler() -> str | None:
    """Path of this machine's C compiler, None where there is none."""
    return shutil.which(os.environ.get("CC", "cc"))


def compiler_version() -> str | None:
    """First line that the compiler says of itself, None without one."""
    command = compiler()
    if command is None:
        return None
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=False).stdout
    return next(iter(said.splitlines()), command)


@cache
def _library() -> ctypes.CDLL | None:
    """The C loops, compiled; None without a compiler."""
    command = compiler()
    if command is None:
        return None
    with TemporaryDirectory() as folder:
        Path(folder, "records.h").write_text(records_header(), encoding="utf-8")
        library = Path(folder, "loops.so")
        sources = sorted(map(str, SOURCES.glob("*.c")))
        done = subprocess.run(
            [command, *FLAGS, f"-I{folder}", f"-I{SOURCES}", "-o", str(library), *sources],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise UserError(f"{command} did not compile the loops of {SOURCES.name}:\n{done.stderr}")
        return ctypes.CDLL(str(library))  # stays loaded without its file


def run_c(loop: Loop, arguments: tuple[Any, ...]) -> int:
    """Call a C loop: of each array its address and the length of each axis, other arguments as int64.

    Raises:
        UserError: no compiler, or the arguments want something that the C loop leaves out.
    """
    library = _library()
    if library is None:
        raise UserError("no C compiler: set CC, or install cc")
    function = getattr(library, loop.c_name)
    function.restype = ctypes.c_int64
    words: list[Any] = []
    for value in arguments:
        if isinstance(value, np.ndarray):
            words += [ctypes.c_void_p(value.ctypes.data), *map(ctypes.c_int64, value.shape)]
        else:
            words.append(ctypes.c_int64(value))
    result = int(function(*words))
    if result < 0:
        raise UserError(f"{loop.c_name}: the arguments want something that the C loop leaves out")
    return result


def difference(loop: Loop) -> str | None:
    """What kernel and C loop leave different, None where they agree to the byte."""
    ours, theirs = loop.fresh(), loop.fresh()
    results = int(loop.kernel(*ours) or 0), run_c(loop, theirs)
    if results[0] != results[1]:
        return f"{loop.c_name} returned {results[1]}, the kernel {results[0]}"
    for place, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if isinstance(mine, np.ndarray) and mine.tobytes() != other.tobytes():
            return f"{loop.c_name} left argument {place} ({_first_field(mine, other)}) different"
    return None


def _first_field(mine: np.ndarray, other: np.ndarray) -> str:
    """Name of the first field that differs."""
    fields = (name for name in mine.dtype.names or () if not np.array_equal(mine[name], other[name]))
    return next(fields, "values")


def race(loop: Loop) -> Cost:
    """Time kernel and C loop in turns, after a first run of both that must agree; the fastest of ROUNDS.

    Raises:
        UserError: the two disagree.
    """
    with_c = compiler() is not None
    if with_c and (found := difference(loop)):
        raise UserError(found)
    kernel_s, c_s = [], []
    loop.kernel(*loop.fresh())
    for _ in range(ROUNDS):
        kernel_s.append(_seconds(loop.kernel, loop.fresh()))
        if with_c:
            arguments = loop.fresh()
            c_s.append(_seconds(lambda *given: run_c(loop, given), arguments))
    return Cost(min(kernel_s), min(c_s, default=None))


def _seconds(function: Callable[..., object], arguments: tuple[Any, ...]) -> float:
    began_s = process_time()
    function(*arguments)
    return process_time() - began_s
