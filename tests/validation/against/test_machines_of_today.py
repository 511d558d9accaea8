"""Machines of today: near, far and memory-side latencies are those measured; claims; the arithmetic of counters."""

import pytest

from sim.presets import load_preset
from traces.units import period_ps
from validation.against.gemm_mi300x import MEASURED_TRAFFIC, counters, rates
from validation.against.gpu_rows import CHASES
from validation.against.machines_of_today import (
    FAR_COLUMN,
    MACHINES,
    SIDE_CACHE,
    SMALL_L2,
    STREAMS,
    far_latency_ps,
    measured,
)
from validation.against.microbenchmarks import L2_COLUMN, LATENCY_TOLERANCE, kind_of, latency_ps
from validation.claims.claim import load_claims

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
    close("mi300x", SIDE_CACHE.column, latency_ps(load_preset("mi300x", SMALL_L2), SIDE_CACHE))


def test_every_measured_number_has_a_claim_of_its_kind():
    claims = {c.id: c for c in load_claims() if c.experiment.startswith("machine_of_today_")}
    found = {(c.experiment, c.answer): (c.published, c.kind) for c in claims.values()}
    expected = {}
    for machine in MACHINES:
        preset, row = load_preset(machine.preset), measured(machine.row)
        for column in (
            *(chase.column for chase in (*CHASES, SIDE_CACHE)),
            FAR_COLUMN,
            L2_COLUMN,
            *dict(STREAMS).values(),
        ):
            if row[column]:
                name = f"machine_of_today_{machine.preset}"
                expected[name, column] = (float(row[column]), kind_of(preset, column))
    assert found == expected


@pytest.mark.parametrize("scenario", MEASURED_TRAFFIC)
def test_each_operand_is_read_from_memory_once(scenario):
    """Hits count writes: the misses are then A and B, 0.268 GB, within 2 %; the writes are C."""
    found = counters(scenario)
    assert found["HBM read (GB)"] == pytest.approx(2 * 8192**2 * 2 / 1e9, rel=0.02)
    assert found["HBM written (GB)"] == pytest.approx(8192**2 * 2 / 1e9, rel=0.02)


def test_the_measured_rates_are_those_of_the_library():
    assert [round(rates()[cus]) for cus in (304, 288, 256, 224)] == [675, 599, 570, 461]
