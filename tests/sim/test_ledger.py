"""The ledger: agrees with a perfect run, and names every single thing that is off by one."""

import numpy as np
import pytest
from hypothesis import given, settings

from sim.collective.plans import all_gather, fused, reduce_scatter
from sim.hw.space import fingerprint
from sim.ledger import SIDES, close, sector_sums
from sim.spec import Topology
from tests.hw.tile_shapes import sectors_of, shapes, tile_record
from tests.plain_records import kernel_view
from tests.sim.t3_cases import T3Case

CASE = T3Case(96, 80, 32, 3, sizes=(2, 4, 3))


def plans_of(make):
    output = CASE.source.output_tiles()
    return [make(output, CASE.chunks, gpu, Topology.RING) for gpu in range(3)]


def perfect(plan):
    """TILE records as a run without a fault leaves them."""
    tiles, sums = plan.tiles.copy(), sector_sums(plan.tiles)
    with np.errstate(over="ignore"):
        for side in SIDES:
            times = getattr(plan.counts, side)
            tiles[f"{side}_bytes"], tiles[f"{side}_sum"] = times * tiles["bytes"], times * sums
    tiles["triggers"] = plan.counts.triggers
    tiles["arrived"] = np.where(plan.counts.final == 1, 0b110, 0)
    return tiles


@given(shape=shapes())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_sum_of_a_tile_is_that_of_its_sectors(shape):
    tile = tile_record(shape)
    one_by_one = sum(
        int(fingerprint(kernel_view(tile)[0], address // 128 * 128, 1 << address // 32 % 4))
        for address in sectors_of(shape)
    )
    assert (int(sector_sums(tile)[0]) - one_by_one) % (1 << 64) == 0


@pytest.mark.parametrize("make", [fused, reduce_scatter, all_gather])
def test_a_perfect_run_is_exactly_once(make):
    plans = plans_of(make)
    verdict = close(plans, [perfect(plan) for plan in plans])
    assert verdict.exactly_once and verdict.wrong == ()
    assert verdict.tiles == (0 if make is all_gather else CASE.chunks.tiles)


@pytest.mark.parametrize(
    ("field", "by", "words"),
    [
        *[(f"{side}_bytes", 32, f"{side} bytes") for side in SIDES],
        *[(f"{side}_bytes", -32, f"{side} bytes") for side in SIDES],
        *[(f"{side}_sum", 1, f"{side} sectors") for side in SIDES],
        ("triggers", 1, "triggers"),
        ("triggers", -1, "triggers"),
        ("doubled", 1, "a contributor twice"),
        ("early", 1, "sent on before all had come"),
    ],
)
@pytest.mark.parametrize("tile", [0, 8])
def test_whatever_is_off_by_one_is_named_with_its_gpu_and_tile(field, by, words, tile):
    plans = plans_of(fused)
    ran = [perfect(plan) for plan in plans]
    ran[1][field][tile] += by
    verdict = close(plans, ran)
    assert not verdict.exactly_once and verdict.wrong == (f"GPU 1: {words} of 1 tiles, the first is {tile}",)


def test_a_contributor_that_is_missing_in_a_final_sum_is_named():
    plans = plans_of(fused)
    ran = [perfect(plan) for plan in plans]
    owned = np.flatnonzero(plans[2].counts.final)
    ran[2]["arrived"][owned[1]] = 0b010
    assert close(plans, ran).wrong == (f"GPU 2: contributors of 1 tiles, the first is {owned[1]}",)


def test_at_most_five_faults_are_told():
    plans = plans_of(fused)
    ran = [perfect(plan) for plan in plans]
    for tiles in ran:
        for side in SIDES:
            tiles[f"{side}_bytes"] += 32
    assert len(close(plans, ran).wrong) == 5
