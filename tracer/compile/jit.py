"""The decorator of compiled functions, and counts of what this process has compiled.

`@compiled` compiles a function with numba in nopython mode and stores the machine code on disk
(`tracer.compile.cache`). With NUMBA_DISABLE_JIT=1 the function stays plain Python; it then needs `np.recarray` views of
the same records. NUMBA_BOUNDSCHECK=1 checks every index. A compiled function that is passed as an argument, or that
closes over variables, is compiled again in every process. So call compiled functions by name.
"""

import os
import sys
from functools import partial
from time import perf_counter

from numba.core import config, types
from numba.core.event import Listener, register
from numba.np import arrayobj

from tracer.compile import kept  # noqa: F401
from tracer.compile.dispatcher import Dispatcher

REPORT_EVERY_S = 5.0
"""Time between two progress lines of a long compilation."""


def compiled(function=None, *, allocates=False, inline=False, apart=False, checked=False):
    """Compile `function` with numba in nopython mode, cached on disk.

    Division by zero follows numpy (no exception). The interpreter lock is released, so a progress display can update
    while a compiled function runs.

    Args:
        allocates: True if the function makes arrays. Other functions run without numba's reference counts (with them
            atomic increments took two thirds of a run's time). Every array that they use belongs to a caller in
            Python, and an index must not be negative.
        inline: True to always inline the function into its callers. For hot functions with array arguments: an array
            is seven words on the stack, and passing a few arrays costs more than the work of most functions.
        apart: True for machine code of its own: large functions that are called rarely. LLVM then optimises them apart
            from their callers, in another process if one helps, and again only if they change.
        checked: True to check every index: IndexError if it is outside, also below 0.
    """
    if function is None:
        return partial(compiled, allocates=allocates, inline=inline, apart=apart, checked=checked)
    if config.DISABLE_JIT:
        return function
    path = function.__code__.co_filename
    stored = os.path.isfile(path) and function.__closure__ is None  # a notebook cell has no file for a fingerprint
    options = {
        "nopython": True,
        "boundscheck": checked or None,
        "error_model": "numpy",
        "nogil": True,
        "_nrt": allocates,
        "forceinline": inline,
    }
    return Dispatcher(function, options, path if stored else None, apart)


def _count_from_the_end(context, builder, index_type, index, length, wrap=arrayobj.fix_integer_index):
    """Replacement of numba's check for negative indices, which count from the end of an array.

    Functions without reference counts (only functions of this project) never use negative indices. A check at every
    access would cost a seventh of a run's time.
    """
    if context.enable_nrt:
        return wrap(context, builder, index_type, index, length)
    return context.cast(builder, index, index_type, types.intp)


arrayobj.fix_integer_index = _count_from_the_end


def compile_seconds():
    """Wall time in seconds that this process has spent on compilation. Cache hits cost nothing."""
    return _watch.seconds


def compiled_functions():
    """Number of signatures that this process has compiled. Cache hits do not count."""
    return _watch.count


def stop_compiling(stopped=True):
    """Let other threads of this process compile nothing more: the next function raises KeyboardInterrupt there.

    stopped: False ends this.
    """
    _watch.stopped = stopped


class _CompileWatch(Listener):
    """Counts compilations, measures the time of the outermost one, and reports progress on stderr."""

    def __init__(self):
        self.seconds = 0.0
        self.count = 0
        self.stopped = False
        self._depth = 0
        self._began_s = 0.0
        self._reported_s = 0.0

    def on_start(self, event):
        now_s = perf_counter()
        if self._depth == 0:
            self._began_s = now_s
        if self.count == 0:
            self._report("compiling functions, once: up to a minute", now_s)
        elif now_s > self._reported_s + REPORT_EVERY_S:
            self._report(f"{self.count} functions compiled so far", now_s)
        self._depth += 1
        self.count += 1
        if self.stopped:
            raise KeyboardInterrupt

    def on_end(self, event):
        self._depth -= 1
        if self._depth == 0:
            self.seconds += perf_counter() - self._began_s

    def _report(self, text, now_s):
        print(f"t3sim: {text}", file=sys.stderr, flush=True)
        self._reported_s = now_s


_watch = _CompileWatch()
register("numba:compile", _watch)
