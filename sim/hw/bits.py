"""Instructions of the host's processor that Python lacks. Each has a version in plain Python, for runs without numba.

There are bit counts, quotients and searches of sixteen numbers at once. A division costs ten times as much as a shift
or a multiplication. A quotient is fast if its divisor is a power of two, as numbers of channels, banks and sets nearly
always are, or if its reciprocal is at hand. Every tag look-up uses the searches. There is also a hash.
"""

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from tracer.compile.jit import compiled

SCALE_BITS = 40
DIVIDED_BELOW = 1 << SCALE_BITS // 2
BLOCK = 16
"""Numbers that are searched together: one cache line of the host, of int32."""
WORD = ir.IntType(64)


@intrinsic
def _trailing_zeros(typing_context, value):
    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


def _splat(builder, block_type, value):
    """A vector that holds the same number sixteen times."""
    one = ir.Constant(block_type, ir.Undefined)
    one = builder.insert_element(one, builder.trunc(value, block_type.element), ir.IntType(32)(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK))


def _load_block(context, builder, array_type, array, first):
    """Sixteen numbers of a one-dimensional array of int16 or int32."""
    block_type = ir.VectorType(ir.IntType(array_type.dtype.bitwidth), BLOCK)
    data = make_array(array_type)(context, builder, array).data
    pointer = builder.bitcast(builder.gep(data, [first]), block_type.as_pointer())
    return block_type, builder.load(pointer, align=array_type.dtype.bitwidth // 8)


def _reduce(builder, block_type, operation, block):
    """The smallest or the largest number of a vector, as an int64."""
    function_type = ir.FunctionType(block_type.element, [block_type])
    name = f"llvm.vector.reduce.{operation}.v{BLOCK}i{block_type.element.width}"
    return builder.sext(
        builder.call(cgutils.get_or_insert_function(builder.module, function_type, name), [block]), WORD
    )


def _compare(operator):
    """generate() of an intrinsic that compares sixteen numbers with a value, one bit each."""

    def generate(context, builder, signature, arguments):
        block_type, block = _load_block(context, builder, signature.args[0], arguments[0], arguments[1])
        found = builder.icmp_signed(operator, block, _splat(builder, block_type, arguments[2]))
        return builder.zext(builder.bitcast(found, ir.IntType(BLOCK)), WORD)

    return generate


@intrinsic
def _equal_in_block(typing_context, numbers, first, value):
    return types.int64(numbers, types.int64, types.int64), _compare("==")


@intrinsic
def _at_least_in_block(typing_context, numbers, first, value):
    return types.int64(numbers, types.int64, types.int64), _compare(">=")


@intrinsic
def _least_in_block(typing_context, numbers, first, count):
    def generate(context, builder, signature, arguments):
        block_type, block = _load_block(context, builder, signature.args[0], arguments[0], arguments[1])
        place = ir.Constant(block_type, list(range(BLOCK)))
        counted = builder.icmp_signed("<", place, _splat(builder, block_type, arguments[2]))
        beyond = ir.Constant(block_type, [(1 << block_type.element.width - 1) - 1] * BLOCK)
        return _reduce(builder, block_type, "smin", builder.select(counted, block, beyond))

    return types.int64(numbers, types.int64, types.int64), generate


@intrinsic
def _greatest_in_block(typing_context, numbers, first, mask):
    def generate(context, builder, signature, arguments):
        block_type, block = _load_block(context, builder, signature.args[0], arguments[0], arguments[1])
        return _reduce(builder, block_type, "smax", builder.and_(block, _splat(builder, block_type, arguments[2])))

    return types.int64(numbers, types.int64, types.int64), generate


def _plain_trailing_zeros(value):
    value = int(value)
    return (value & -value).bit_length() - 1


def _plain_equal_in_block(numbers, first, value):
    return sum(int(number == value) << k for k, number in enumerate(numbers[first : first + BLOCK]))


def _plain_at_least_in_block(numbers, first, value):
    return sum(int(number >= value) << k for k, number in enumerate(numbers[first : first + BLOCK]))


def _plain_least_in_block(numbers, first, count):
    return int(min(numbers[first : first + min(count, BLOCK)], default=(1 << 31) - 1))


def _plain_greatest_in_block(numbers, first, mask):
    return int(max(number & mask for number in numbers[first : first + BLOCK]))


PLAIN = config.DISABLE_JIT  # type: ignore[attr-defined]

trailing_zeros = _plain_trailing_zeros if PLAIN else _trailing_zeros
"""trailing_zeros(value): index of the lowest set bit of a non-zero int64."""
equal_in_block = _plain_equal_in_block if PLAIN else _equal_in_block
"""equal_in_block(numbers, first, value): bit k is set if numbers[first + k] equals value; k < 16. In this function and
the next three, `numbers` are int16 or int32, and value, count and mask must fit in that type."""
at_least_in_block = _plain_at_least_in_block if PLAIN else _at_least_in_block
"""at_least_in_block(numbers, first, value): bit k is set if numbers[first + k] is at least `value`; k < 16."""
least_in_block = _plain_least_in_block if PLAIN else _least_in_block
"""least_in_block(numbers, first, count): the smallest of `count` numbers from `first` on, at most 16. If count is 0, it
is the largest number of the type."""
greatest_in_block = _plain_greatest_in_block if PLAIN else _greatest_in_block
"""greatest_in_block(numbers, first, mask): the largest of sixteen numbers from `first` on, each ANDed with the mask.
The mask is not negative."""


@compiled
def splitmix64(number, seed):
    """A hash of both, uint64: number `number`, from 0, of the generator splitmix64 (Steele et al., OOPSLA 2014)."""
    z = np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled(inline=True)
def quotient(value, divisor):
    """value // divisor for divisor > 0."""
    if divisor & (divisor - 1) == 0:
        return value >> trailing_zeros(divisor)
    return value // divisor


@compiled(inline=True)
def remainder(value, divisor):
    """value % divisor for divisor > 0."""
    if divisor & (divisor - 1) == 0:
        return value & (divisor - 1)
    return value % divisor


def reciprocal(divisor):
    """The reciprocal of a divisor (also of an array of them), for `divided`: scaled by SCALE_BITS, rounded up."""
    return -(-(1 << SCALE_BITS) // divisor)


@compiled(inline=True)
def divided(value, scaled_reciprocal):
    """value // divisor, exact if both are below DIVIDED_BELOW; -1 // divisor is -1."""
    return value * scaled_reciprocal >> SCALE_BITS
