"""Views without ownership: numba counts references to an array each time it is handed to a kernel, which costs more
than a unit's step. The engine borrows the machine's arrays once per run; the caller keeps the owners alive."""

import numba
from numba.core import config, types
from numba.extending import intrinsic

from tracer.jit import kernel


@intrinsic
def _pointer(typing_context, address):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.intp), generate


def _without_owner(array):
    """The same array, without a reference to its owner."""
    return numba.carray(_pointer(array.ctypes.data), array.shape, array.dtype)


def _itself(array):
    """The array: plain Python counts references anyway."""
    return array


borrowed = _itself if config.DISABLE_JIT else kernel(_without_owner)  # type: ignore[attr-defined]
