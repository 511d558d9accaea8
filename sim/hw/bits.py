"""Bit counts of the host's processor, and divisions by what is nearly always a power of two.

Numbers of channels, banks and sets need not be powers of two, but on most machines they are; a 64-bit division costs
ten times as much as the shift that does the same.
"""

from llvmlite import ir
from numba.core import config, types
from numba.extending import intrinsic

from tracer.jit import kernel


@intrinsic
def _trailing_zeros(typing_context, value):
    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


def _plain_trailing_zeros(value):
    value = int(value)
    return (value & -value).bit_length() - 1


trailing_zeros = _plain_trailing_zeros if config.DISABLE_JIT else _trailing_zeros  # type: ignore[attr-defined]
"""trailing_zeros(value): index of the lowest set bit of a non-zero int64."""


@kernel(inline=True)
def quotient(value, divisor):
    """value // divisor for divisor > 0."""
    if divisor & (divisor - 1) == 0:
        return value >> trailing_zeros(divisor)
    return value // divisor


@kernel(inline=True)
def remainder(value, divisor):
    """value % divisor for divisor > 0."""
    if divisor & (divisor - 1) == 0:
        return value & (divisor - 1)
    return value % divisor
