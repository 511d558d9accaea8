"""Prefetching on the host: aligned records, and hints which records are read soon. Only the host's time changes.

The tag stores of a machine are megabytes, accessed in no order. The host loads the next set while this set is in use,
which hides most of its memory latency. This is not a prefetcher of the simulated machine.
"""

import numpy as np
from llvmlite import ir
from numba.core import config, types
from numba.extending import intrinsic

HOST_LINE_BYTES = 64


def host_aligned(shape, record_type):
    """An array of zeroed records, aligned to a cache line of the host."""
    size_bytes = int(np.prod(shape)) * record_type.itemsize
    room = np.zeros(size_bytes + HOST_LINE_BYTES, np.uint8)
    first = -room.ctypes.data % HOST_LINE_BYTES
    return room[first : first + size_bytes].view(record_type).reshape(shape)


@intrinsic
def _prefetch(typing_context, record, offset_bytes):
    def generate(context, builder, signature, arguments):
        word = ir.IntType(64)
        address = builder.add(builder.ptrtoint(arguments[0], word), arguments[1])
        pointer = builder.inttoptr(address, context.get_value_type(types.voidptr))
        flag = ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], function_type)
        builder.call(function, [pointer, flag(0), flag(3), flag(1)])  # read, keep close, data
        return context.get_dummy_value()

    return types.void(record, types.intp), generate


def _nothing(record, offset_bytes):
    """The version for plain Python: no prefetch."""


prefetch = _nothing if config.DISABLE_JIT else _prefetch  # type: ignore[attr-defined]
"""prefetch(record, offset_bytes): load the host's cache line that holds this byte of the record."""
