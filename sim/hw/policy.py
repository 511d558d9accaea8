"""A user's own arbiter. It is bound here, before anything is compiled.

`T3SIM_POLICY=/path/to/file.py` names a Python file with a function `pick(channel, now_ps)`, plain or compiled. It
returns the stream whose head enters the DRAM queue next, or -1 for none. `channel.head_ps[stream]` is the time since
which a stream's head waits, NEVER if it cannot be taken (`sim.hw.arbiter`). A machine with `arbiter = "user"` uses the
policy. The file runs with the rights of the user, so use only files that you trust.
"""

import importlib.util
import inspect
import os
import sys

from sim.hw.stream_heads import oldest_head
from tracer.compile.jit import compiled
from traces.errors import UserError, error_in_file
from traces.own_file import running

VARIABLE = "T3SIM_POLICY"
"""It is part of the cache key of every compiled function that imports this module (tracer.compile.fingerprint)."""
MODULE = "t3sim_user_policy"


def bound_policy(path):
    """The compiled `pick` of the file at `path`, or the default if the path is empty."""
    if not path:
        return oldest_head
    if not os.path.isfile(path):
        raise UserError(f"{VARIABLE}: no file {path}")
    module_spec = importlib.util.spec_from_file_location(MODULE, path)
    if module_spec is None or module_spec.loader is None:
        raise UserError(f"{path}: a policy is a Python file whose name ends in .py")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[MODULE] = module  # a compiled function from the disk cache looks up its module by name
    try:
        with running(path):
            module_spec.loader.exec_module(module)
    except BaseException as error:  # it is the user's file: SystemExit too is a mistake in it
        raise error_in_file(path, path, error) from error
    function = getattr(module, "pick", None)
    plain = getattr(function, "py_func", function)
    if not inspect.isfunction(plain):
        raise UserError(f"{path} has no function pick(channel, now_ps)")
    signature = inspect.signature(plain)
    try:
        signature.bind("channel", "now_ps")
    except TypeError:
        raise UserError(f"{path}: found pick{signature}, allowed is pick(channel, now_ps)") from None
    return compiled(plain, checked=True)


pick = bound_policy(os.environ.get(VARIABLE, ""))
