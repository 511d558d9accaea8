"""GEMMs of an MI300X: the arithmetic of its counters, and the measured rates."""

import pytest

from validation.against.gemm_mi300x import MEASURED_TRAFFIC, counters, rates


@pytest.mark.parametrize("scenario", MEASURED_TRAFFIC)
def test_each_operand_is_read_from_memory_once(scenario):
    """Hits count writes: the misses are then A and B, 0.268 GB, within 2 %; the writes are C."""
    found = counters(scenario)
    assert found["HBM read (GB)"] == pytest.approx(2 * 8192**2 * 2 / 1e9, rel=0.02)
    assert found["HBM written (GB)"] == pytest.approx(8192**2 * 2 / 1e9, rel=0.02)


def test_the_measured_rates_are_those_of_the_library():
    assert [round(rates()[cus]) for cus in (304, 288, 256, 224)] == [675, 599, 570, 461]
