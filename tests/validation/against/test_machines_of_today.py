"""Machines of today: the near, far and memory-side latencies are those measured."""

import pytest

from sim.presets import load_preset
from traces.units import period_ps
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
