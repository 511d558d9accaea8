"""The ledger: agrees with a perfect run, and names every single thing that is off by one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from sim.collective import ledger
from sim.collective.check import follow
from sim.collective.ledger import SIDES, sector_sums
from sim.collective.on_cus import all_gather, reduce_scatter, steps_queue
from sim.collective.plans import fused, tell_contributors
from sim.collective.space import make_wavefronts
from sim.hw.space import contributor_weight, fingerprint
from sim.spec import Topology
from tests.support.plain_records import kernel_view
from tests.support.t3_cases import TILE, T3Case
from tests.support.tile_shapes import sectors_of, shapes, tile_record

CASE = T3Case(96, 80, 32, 3, kernel=replace(TILE, warps_m=2), sizes=(2, 4, 3))


def plans_of(make):
    output = CASE.source.output_tiles()
    plans = [make(output, CASE.chunks, gpu, Topology.RING) for gpu in range(3)]
    queues = None if make is fused else [steps_queue(plan) for plan in plans]
    tell_contributors(plans, follow([plan.regions for plan in plans], plans[0].buffers, queues))
    return plans


def perfect(plan):
    """TILE records as a run without a fault leaves them."""
    tiles, sums = plan.tiles.copy(), sector_sums(plan.tiles)
    with np.errstate(over="ignore"):
        for side in SIDES:
            tiles[f"{side}_bytes"] = getattr(plan.counts, side) * tiles["bytes"]
        tiles["local_sum"], tiles["sent_sum"] = plan.counts.local * sums, plan.counts.sent * sums
        for behind in (1, 2):
            came = plan.counts.contributors >> behind & 1
            tiles["arrived_sum"] += came * sums * int(contributor_weight(1 << behind))
    tiles["triggers"], tiles["arrived"] = plan.counts.triggers, plan.counts.contributors
    return tiles


def perfect_wavefronts(plan):
    """WAVEFRONT records likewise."""
    found = make_wavefronts(plan.tiles)
    found["counted_bytes"], found["triggers"] = found["threshold_bytes"], found["threshold_bytes"] > 0
    found["arrived"] = np.where(found["threshold_bytes"] > 0, plan.counts.contributors[:, None], 0)
    return found


def close(plans, ran, wavefronts=None):
    return ledger.close(plans, ran, wavefronts or [perfect_wavefronts(plan) for plan in plans])


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
        *[(f"{side}_bytes", 32, f"{side} bytes") for side in ("local", "arrived", "sent")],
        *[(f"{side}_bytes", -32, f"{side} bytes") for side in ("local", "arrived", "sent")],
        *[(f"{side}_sum", 1, f"{side} sectors") for side in ("local", "arrived", "sent")],
        ("triggers", 1, "triggers"),
        ("triggers", -1, "triggers"),
        ("arrived", 8, "contributors"),
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


@pytest.mark.parametrize(
    ("field", "by", "words"),
    [
        ("counted_bytes", 32, "bytes of wavefronts"),
        ("counted_bytes", -32, "bytes of wavefronts"),
        ("triggers", 1, "triggers of wavefronts"),
        ("triggers", -1, "triggers of wavefronts"),
    ],
)
def test_a_counter_of_a_wavefront_that_is_off_by_one_is_named(field, by, words):
    plans = plans_of(fused)
    ran, counters = [perfect(plan) for plan in plans], [perfect_wavefronts(plan) for plan in plans]
    counters[2][field][4, 1] += by
    assert close(plans, ran, counters).wrong == (f"GPU 2: {words} of 1 tiles, the first is 4",)


def test_bytes_credited_to_another_wavefront_are_named():
    plans = plans_of(fused)
    ran, counters = [perfect(plan) for plan in plans], [perfect_wavefronts(plan) for plan in plans]
    counters[0]["counted_bytes"][8] += [32, -32]
    assert close(plans, ran, counters).wrong == ("GPU 0: bytes of wavefronts of 1 tiles, the first is 8",)


def test_a_final_part_that_a_contributor_never_reached_is_named():
    plans = plans_of(fused)
    ran, counters = [perfect(plan) for plan in plans], [perfect_wavefronts(plan) for plan in plans]
    owned = np.flatnonzero(plans[1].counts.final)
    counters[1]["arrived"][owned[0], 1] = 0b100
    assert close(plans, ran, counters).wrong == (
        f"GPU 1: contributors of wavefronts of 1 tiles, the first is {owned[0]}",
    )


def test_at_most_five_faults_are_told():
    plans = plans_of(fused)
    ran = [perfect(plan) for plan in plans]
    for tiles in ran:
        for side in SIDES:
            tiles[f"{side}_bytes"] += 32
    assert len(close(plans, ran).wrong) == 5
