"""Words that threads share: a load, a store and an addition that all threads see in one order, and a short rest.

A word is an element of a one-dimensional int64 array. What a thread wrote before a `store` or an `add`, another thread
sees after a `load` or an `add` of the same word that finds the new value. Each function has a version in plain Python,
for runs without numba; those have one thread.
"""

import ctypes
import platform
import sys

from llvmlite import binding, ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

WORD = ir.IntType(64)
YIELD, SLEEP = "t3sim_yield", "t3sim_sleep"
NAP = 1 if sys.platform == "win32" else 50
"""Argument of the system's function that sleeps: a millisecond on Windows, else 50 microseconds."""
PAUSES = {"x86_64": "llvm.x86.sse2.pause", "amd64": "llvm.x86.sse2.pause"}
"""Processor -> the instruction that makes a waiting loop cheap."""


def _name_system_functions():
    """Make the system's functions that let other threads use the core known to compiled code."""
    if sys.platform == "win32":
        functions = {YIELD: ctypes.windll.kernel32.SwitchToThread, SLEEP: ctypes.windll.kernel32.Sleep}
    else:
        library = ctypes.CDLL(None)
        functions = {YIELD: library.sched_yield, SLEEP: library.usleep}
    for name, function in functions.items():
        binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)


_name_system_functions()


def _call(builder, name, *arguments):
    """Call a function of the system that takes int32 and returns int32 (or nothing: then nobody reads it)."""
    half = ir.IntType(32)
    function_type = ir.FunctionType(half, [half] * len(arguments))
    builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), [half(one) for one in arguments])


def _pointer(context, builder, array_type, array, place):
    return builder.gep(make_array(array_type)(context, builder, array).data, [place])


@intrinsic
def _load(typing_context, words, place):
    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(pointer, "acquire", 8, typ=WORD)

    return types.int64(words, types.int64), generate


@intrinsic
def _store(typing_context, words, place, value):
    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store_atomic(arguments[2], pointer, "release", 8)
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64), generate


@intrinsic
def _add(typing_context, words, place, value):
    def generate(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments[:2])
        return builder.atomic_rmw("add", pointer, arguments[2], "acq_rel")

    return types.int64(words, types.int64, types.int64), generate


@intrinsic
def _add_field(typing_context, record, offset_bytes, value):
    def generate(context, builder, signature, arguments):
        address = builder.add(builder.ptrtoint(arguments[0], WORD), arguments[1])
        builder.atomic_rmw("add", builder.inttoptr(address, WORD.as_pointer()), arguments[2], "monotonic")
        return context.get_dummy_value()

    return types.void(record, types.int64, types.int64), generate


@intrinsic
def _pause(typing_context):
    def generate(context, builder, signature, arguments):
        name = PAUSES.get(platform.machine().lower())
        if name:
            function_type = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _give_way(typing_context):
    def generate(context, builder, signature, arguments):
        _call(builder, YIELD)
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _nap(typing_context):
    def generate(context, builder, signature, arguments):
        _call(builder, SLEEP, NAP)
        return context.get_dummy_value()

    return types.void(), generate


def _plain_load(words, place):
    return int(words[place])


def _plain_store(words, place, value):
    words[place] = value


def _plain_add(words, place, value):
    before = int(words[place])
    words[place] += value
    return before


def _plain_add_field(record, offset_bytes, value):
    name = next(name for name, field in record.dtype.fields.items() if field[1] == offset_bytes)
    record[name] += value


def _plain_rest():
    """A thread alone never waits."""


PLAIN = config.DISABLE_JIT  # type: ignore[attr-defined]

load = _plain_load if PLAIN else _load
"""load(words, place): the word."""
store = _plain_store if PLAIN else _store
"""store(words, place, value): set the word."""
add = _plain_add if PLAIN else _add
"""add(words, place, value): add to the word; returns its value before."""
add_field = _plain_add_field if PLAIN else _add_field
"""add_field(record, offset_bytes, value): add to the int64 field at this place of a record, which threads share."""
pause = _plain_rest if PLAIN else _pause
"""pause(): tell the processor that this thread waits in a loop."""
give_way = _plain_rest if PLAIN else _give_way
"""give_way(): let another thread use this core."""
nap = _plain_rest if PLAIN else _nap
"""nap(): sleep for a short time."""
