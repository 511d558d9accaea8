"""Instructions of the host's processor that Python has no word for, each with its plain twin.

Bit counts; quotients by what is nearly always a power of two (numbers of channels, banks and sets need not be, but a
division costs ten times as much as the shift); and searches of sixteen numbers at once, the heart of every tag look-up.
"""

from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from tracer.jit import kernel

BLOCK = 16
"""Numbers that are searched together: one cache line of int32."""
WORD, HALF = ir.IntType(64), ir.IntType(32)
BLOCK_TYPE = ir.VectorType(HALF, BLOCK)


@intrinsic
def _trailing_zeros(typing_context, value):
    def generate(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


def _splat(builder, value):
    """A vector of sixteen times the same int32."""
    one = builder.insert_element(ir.Constant(BLOCK_TYPE, ir.Undefined), builder.trunc(value, HALF), HALF(0))
    return builder.shuffle_vector(one, one, ir.Constant(BLOCK_TYPE, [0] * BLOCK))


def _load_block(context, builder, array_type, array, first):
    """Sixteen int32 of a one-dimensional array."""
    data = make_array(array_type)(context, builder, array).data
    return builder.load(builder.bitcast(builder.gep(data, [first]), BLOCK_TYPE.as_pointer()), align=4)


@intrinsic
def _equal_in_block(typing_context, numbers, first, value):
    def generate(context, builder, signature, arguments):
        block = _load_block(context, builder, signature.args[0], arguments[0], arguments[1])
        equal = builder.icmp_signed("==", block, _splat(builder, arguments[2]))
        return builder.zext(builder.bitcast(equal, ir.IntType(BLOCK)), WORD)

    return types.int64(numbers, types.int64, types.int64), generate


@intrinsic
def _least_in_block(typing_context, numbers, first, count):
    def generate(context, builder, signature, arguments):
        block = _load_block(context, builder, signature.args[0], arguments[0], arguments[1])
        place = ir.Constant(BLOCK_TYPE, list(range(BLOCK)))
        counted = builder.icmp_signed("<", place, _splat(builder, arguments[2]))
        block = builder.select(counted, block, ir.Constant(BLOCK_TYPE, [(1 << 31) - 1] * BLOCK))
        smallest = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(HALF, [BLOCK_TYPE]), f"llvm.vector.reduce.smin.v{BLOCK}i32"
        )
        return builder.sext(builder.call(smallest, [block]), WORD)

    return types.int64(numbers, types.int64, types.int64), generate


def _plain_trailing_zeros(value):
    value = int(value)
    return (value & -value).bit_length() - 1


def _plain_equal_in_block(numbers, first, value):
    return sum(int(number == value) << k for k, number in enumerate(numbers[first : first + BLOCK]))


def _plain_least_in_block(numbers, first, count):
    return int(min(numbers[first : first + min(count, BLOCK)], default=(1 << 31) - 1))


PLAIN = config.DISABLE_JIT  # type: ignore[attr-defined]

trailing_zeros = _plain_trailing_zeros if PLAIN else _trailing_zeros
"""trailing_zeros(value): index of the lowest set bit of a non-zero int64."""
equal_in_block = _plain_equal_in_block if PLAIN else _equal_in_block
"""equal_in_block(numbers, first, value): bit k is set where numbers[first + k], an int32, equals value; k < 16."""
least_in_block = _plain_least_in_block if PLAIN else _least_in_block
"""least_in_block(numbers, first, count): smallest of the int32 from `first` on, at most `count` and at most 16 of them;
2**31 - 1 where there are none."""


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
