"""The number of set bits: an instruction of the host's processor that Python lacks in compiled functions."""

from numba.core import config, types
from numba.extending import intrinsic


@intrinsic
def _ones(typing_context, value):
    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


def _plain_ones(value):
    return (int(value) & (1 << 64) - 1).bit_count()


ones = _plain_ones if config.DISABLE_JIT else _ones  # type: ignore[attr-defined]
"""ones(value): number of set bits of an int64 or uint64."""
