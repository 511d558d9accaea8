"""A hint to the host's processor: this record will be read soon. Changes nothing but the time a run takes.

Tag stores of a whole machine are megabytes, touched in no order; asking for the next set while this one is served
hides most of the memory latency of the host. Not to be confused with a prefetcher of the simulated machine.
"""

from llvmlite import ir
from numba.core import config, types
from numba.extending import intrinsic

HOST_LINE_BYTES = 64


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
    """Plain Python has no caches to warm."""


prefetch = _nothing if config.DISABLE_JIT else _prefetch  # type: ignore[attr-defined]
"""prefetch(record, offset_bytes): ask for the host's cache line that holds this byte of the record."""
