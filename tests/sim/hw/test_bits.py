"""Bit counts, and the quotients and remainders that take a short cut for powers of two."""

import numpy as np
import pytest

from sim.hw.bits import (
    BLOCK,
    DIVIDED_BELOW,
    at_least_in_block,
    divided,
    equal_in_block,
    greatest_in_block,
    least_in_block,
    quotient,
    reciprocal,
    remainder,
    splitmix64,
    trailing_zeros,
)
from tests.support.plain_records import kernel_view
from tracer.compile.jit import compiled


@compiled
def zeros_below(mask):
    return trailing_zeros(mask)


@pytest.mark.parametrize("bit", range(64))
def test_trailing_zeros(bit):
    for above in (0, 1 << 63, ((1 << 64) - 1) << (bit + 1) & ((1 << 64) - 1)):
        assert zeros_below(np.uint64(1 << bit | (above if above >= 1 << bit else 0))) == bit


@compiled
def searched(numbers, first, value, count, mask):
    found = equal_in_block(numbers, first, value), at_least_in_block(numbers, first, value)
    return found, least_in_block(numbers, first, count), greatest_in_block(numbers, first, mask)


@pytest.mark.parametrize("kind", [np.int16, np.int32])
def test_searches_of_a_block(kind):
    random = np.random.default_rng(3)
    for count in range(1, BLOCK + 1):
        numbers = random.integers(-9, 9, 3 * BLOCK).astype(kind)
        numbers[:2] = np.iinfo(kind).min  # outside the block
        block = numbers[5 : 5 + BLOCK]
        (equal, above), least, greatest = searched(kernel_view(numbers), 5, 3, count, 6)
        for found, wanted in ((equal, block == 3), (above, block >= 3)):
            assert [(found >> k) & 1 for k in range(BLOCK + 1)] == [*wanted.astype(int), 0]
        assert least == block[:count].min() and greatest == (block & 6).max()


def test_quotient_and_remainder_are_those_of_python():
    random = np.random.default_rng(2)
    divisors = [1, 2, 3, 5, 7, 40, 64, 80, 4096, 6144, 1 << 40, *random.integers(1, 1 << 20, 200).tolist()]
    values = [0, 1, 2, 63, 64, (1 << 62) - 1, *random.integers(0, 1 << 50, 50).tolist()]
    for divisor in divisors:
        for value in (*values, divisor - 1, divisor, 17 * divisor, 17 * divisor - 1):
            assert (quotient(value, divisor), remainder(value, divisor)) == divmod(value, divisor)


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 32, 725, 1000, 65_536, DIVIDED_BELOW - 1])
def test_a_product_with_the_reciprocal_is_the_quotient(divisor):
    values = {-1, 0, 1, divisor - 1, divisor, divisor + 1, DIVIDED_BELOW - 1, DIVIDED_BELOW // divisor * divisor - 1}
    values |= set(np.random.default_rng(divisor).integers(0, DIVIDED_BELOW, 2000).tolist())
    for value in values:
        assert divided(value, reciprocal(divisor)) == value // divisor


def test_the_hash_is_the_generator_splitmix64():
    """Its first numbers, as Vigna's splitmix64.c gives them for two seeds."""
    assert [int(splitmix64(k, 0)) for k in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(splitmix64(k, 1234567)) for k in range(2)] == [6457827717110365317, 3203168211198807973]
