"""Machines of today: the near, far and memory-side latencies are those measured; the arithmetic of the counters."""

import pytest

from sim.presets import load_preset
from traces.units import period_ps
from validation.against.gemm_mi300x import MEASURED_TRAFFIC, counters, rates
from validation.against.machines_of_today import FAR_COLUMN, MACHINES, SIDE_CACHE, far_latency_ps, measured
from validation.against.microbenchmarks import LATENCY_TOLERANCE, kind_of, latency_ps

BY_NAME = {machine.preset: machine for machine in MACHINES}


def close(name, column, ps):
    row = measured(BY_NAME[name].row)
    assert ps / period_ps(float(row["clock_MHz"])) == pytest.approx(float(row[column]), rel=LATENCY_TOLERANCE)
    assert kind_of(load_preset(name), column) == "calibration"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a100_80g_halves", "h100_sxm"])
def test_a_far_line_is_as_far_as_measured(name):
    close(name, FAR_COLUMN, far_latency_ps(BY_NAME[name]))


@pytest.mark.slow
def test_the_memory_side_cache_is_as_far_as_measured():
    close("mi300x", SIDE_CACHE.column, latency_ps(load_preset("mi300x"), SIDE_CACHE))


@pytest.mark.parametrize("scenario", MEASURED_TRAFFIC)
def test_each_operand_is_read_from_memory_once(scenario):
    """Hits count writes: the misses are then A and B, 0.268 GB, within 2 %; the writes are C."""
    found = counters(scenario)
    assert found["HBM read (GB)"] == pytest.approx(2 * 8192**2 * 2 / 1e9, rel=0.02)
    assert found["HBM written (GB)"] == pytest.approx(8192**2 * 2 / 1e9, rel=0.02)


def test_the_measured_rates_are_those_of_the_library():
    assert [round(rates()[cus]) for cus in (304, 288, 256, 224)] == [675, 599, 570, 461]
