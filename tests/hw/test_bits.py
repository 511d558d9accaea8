"""Bit counts, and the quotients and remainders that take a short cut for powers of two."""

import numpy as np
import pytest

from sim.hw.bits import quotient, remainder, trailing_zeros
from tracer.jit import kernel


@kernel
def zeros_below(mask):
    return trailing_zeros(mask)


@pytest.mark.parametrize("bit", range(64))
def test_trailing_zeros(bit):
    for above in (0, 1 << 63, ((1 << 64) - 1) << (bit + 1) & ((1 << 64) - 1)):
        assert zeros_below(np.uint64(1 << bit | (above if above >= 1 << bit else 0))) == bit


def test_quotient_and_remainder_are_those_of_python():
    random = np.random.default_rng(2)
    divisors = [1, 2, 3, 5, 7, 40, 64, 80, 4096, 6144, 1 << 40, *random.integers(1, 1 << 20, 200).tolist()]
    values = [0, 1, 2, 63, 64, (1 << 62) - 1, *random.integers(0, 1 << 50, 50).tolist()]
    for divisor in divisors:
        for value in (*values, divisor - 1, divisor, 17 * divisor, 17 * divisor - 1):
            assert (quotient(value, divisor), remainder(value, divisor)) == divmod(value, divisor)
