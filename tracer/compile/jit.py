"""The one decorator of compiled functions, and the account of what was compiled in this process.

`@compiled` compiles a function with numba in nopython mode and keeps the machine code on disk
(`tracer.compile.cache`). With NUMBA_DISABLE_JIT=1 the function stays plain Python; it then wants `np.recarray` views
of the same records. NUMBA_BOUNDSCHECK=1 checks every index. Kernels passed as arguments, or that close over variables,
are compiled again in every process: call them by name.
"""

import os
import sys
from functools import partial
from time import perf_counter

import numba
from numba.core import config, types
from numba.core.event import Listener, register
from numba.np import arrayobj

from tracer.compile.cache import KernelCache

SAY_EVERY_S = 5.0
"""A long compilation says how far it is."""


def compiled(function=None, *, allocates=False, inline=False):
    """Compile `function` with numba in nopython mode, cached on disk.

    Division by zero follows numpy (no exception), and the interpreter lock is released, so that a progress display
    can move while a kernel runs.

    Args:
        allocates: the kernel makes arrays. The others run without numba's reference counts: every array they touch
            belongs to a caller in Python (with them two thirds of a run's time were atomic increments), and an index
            must not be negative.
        inline: the kernel always becomes part of its callers. For hot kernels that take arrays: an array goes as seven
            words on the stack, and handing over a few of them costs more than what most kernels do.
    """
    if function is None:
        return partial(compiled, allocates=allocates, inline=inline)
    if config.DISABLE_JIT:
        return function
    dispatcher = numba.njit(error_model="numpy", nogil=True, _nrt=allocates, forceinline=inline)(function)
    path = function.__code__.co_filename
    if os.path.isfile(path) and function.__closure__ is None:  # a notebook cell has no file to take a fingerprint of
        dispatcher._cache = KernelCache(function, path)
    return dispatcher


def _count_from_the_end(context, builder, index_type, index, length, wrap=arrayobj.fix_integer_index):
    """An index as numba's arrays take it. Kernels that make no arrays (nobody else compiles without reference counts)
    never count from the end; to ask at every access whether they do would cost a seventh of a run's time."""
    if context.enable_nrt:
        return wrap(context, builder, index_type, index, length)
    return context.cast(builder, index, index_type, types.intp)


arrayobj.fix_integer_index = _count_from_the_end


def compile_seconds():
    """Wall time that this process has spent compiling functions (cache hits cost none)."""
    return _watch.seconds


def compiled_functions():
    """Number of signatures that this process has compiled itself."""
    return _watch.count


class _CompileWatch(Listener):
    """Counts compilations, times the outermost one, and says that compiling has begun and goes on."""

    def __init__(self):
        self.seconds = 0.0
        self.count = 0
        self._depth = 0
        self._began_s = 0.0
        self._said_s = 0.0

    def on_start(self, event):
        now_s = perf_counter()
        if self._depth == 0:
            self._began_s = now_s
        if self.count == 0:
            self._say("compiling functions, once", now_s)
        elif now_s > self._said_s + SAY_EVERY_S:
            self._say(f"{self.count} functions compiled", now_s)
        self._depth += 1
        self.count += 1

    def on_end(self, event):
        self._depth -= 1
        if self._depth == 0:
            self.seconds += perf_counter() - self._began_s

    def _say(self, text, now_s):
        print(f"t3sim: {text}", file=sys.stderr, flush=True)
        self._said_s = now_s


_watch = _CompileWatch()
register("numba:compile", _watch)
