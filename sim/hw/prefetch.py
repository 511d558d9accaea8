"""Memory of the host: aligned records, huge pages, and hints which records are read soon. Only the host's time changes.

The tag stores of a machine are megabytes, accessed in no order. The host loads the next set while this set is in use,
which hides most of its memory latency. This is not a prefetcher of the simulated machine.
"""

import mmap

import numpy as np
from llvmlite import ir
from numba.core import config, types
from numba.extending import intrinsic

from tracer.compile.jit import compiled

HOST_LINE_BYTES = 64
HUGE_PAGE_BYTES = 2 << 20


def host_aligned(shape, record_type):
    """An array of zeroed records, aligned to a cache line of the host."""
    size_bytes = int(np.prod(shape)) * record_type.itemsize
    room = np.zeros(size_bytes + HOST_LINE_BYTES, np.uint8)
    first = -room.ctypes.data % HOST_LINE_BYTES
    return room[first : first + size_bytes].view(record_type).reshape(shape)


def host_record(fields):
    """A record of an odd number of the host's cache lines.

    So equal fields of many records use different places of the host's cache, whose sizes are powers of two.
    """
    size_bytes = np.dtype(fields, align=True).itemsize
    lines = -(-size_bytes // HOST_LINE_BYTES) | 1
    room_bytes = lines * HOST_LINE_BYTES - size_bytes
    return np.dtype([*fields, ("host_pad", "u1", room_bytes)] if room_bytes else fields, align=True)


def in_huge_pages(arrays):
    """Move arrays, by name, into one block of huge pages if the system has them. Each is aligned to a cache line.

    `arrays` is empty afterwards, so what nobody else holds is released.

    A run goes through all records of its machine in every time window. In pages of 4 KB the translation of their
    addresses takes 7 % of the CPU time.
    """
    sizes = [-(-array.nbytes // HOST_LINE_BYTES) * HOST_LINE_BYTES for array in arrays.values()]
    size_bytes = sum(sizes) + HUGE_PAGE_BYTES
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        block = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        block.madvise(mmap.MADV_HUGEPAGE)
    else:
        block = mmap.mmap(-1, size_bytes)
    room = np.frombuffer(block, np.uint8)
    first = -room.ctypes.data % HUGE_PAGE_BYTES
    copies = {}
    for name, size in zip(list(arrays), sizes, strict=True):
        array = arrays.pop(name)
        copies[name] = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
        copies[name].view(np.uint8)[...] = array.view(np.uint8)
        first += size
    return copies


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


@compiled(inline=True)
def prefetch_lines(record, lines):
    """Load the first `lines` of the host's cache lines of a record."""
    for line in range(lines):
        prefetch(record, line * HOST_LINE_BYTES)
