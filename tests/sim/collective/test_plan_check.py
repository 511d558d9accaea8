"""The check of plans: what loses, doubles or mixes sums, or could wait for a Tracker entry, is refused."""

from dataclasses import replace

import numpy as np
import pytest

from sim.collective.check import Limits, check_regions, follow
from sim.collective.chunks import even_chunks
from sim.collective.plans import fused_regions
from sim.collective.space import OUTPUT, Buffer, Region, Send
from sim.collective.tables import Queue
from sim.hw.request import Op
from sim.spec import Topology
from tracer.gemm.source import OUTPUT_TILE
from traces.errors import UserError


def ring(gpus=3, tiles=6):
    """The regions of T3 on a ring, per GPU, in walk order."""
    chunks = even_chunks(tiles, gpus)
    return [fused_regions(chunks, gpu, Topology.RING) for gpu in range(gpus)]


def at(regions, tile):
    return next(k for k, region in enumerate(regions) if region.first <= tile < region.end)


def changed(plans, gpu, tile, **fields):
    """Plans in which a GPU maps the region of a tile differently."""
    plans = [list(regions) for regions in plans]
    k = at(plans[gpu], tile)
    plans[gpu][k] = replace(plans[gpu][k], **fields)
    return plans


# Tile 0 of three GPUs: GPU 0 stores it to GPU 1, which adds its own and sends both to GPU 2, which keeps the sum.
@pytest.mark.parametrize(
    ("gpu", "fields", "words"),
    [
        (0, {"to": (0,), "op": Op.WRITE}, "GPU 0 keeps its part of tile 0 to itself: the sum would lose it"),
        (2, {"expects": 0, "op": Op.WRITE}, "GPU 2 keeps its part of tile 0"),
        (1, {"sends": ()}, r"tile 0 is final on GPUs \[1, 2\], allowed is exactly one"),
        (2, {"sends": (Send(1),)}, r"tile 0 is final on GPUs \[\], allowed is exactly one"),
        (
            *(1, {"to": (1,), "expects": 0, "sends": ()}),
            r"GPU 1 expects nothing for tile 0 of output, so what arrives for it from GPUs \[0\] would be lost",
        ),
        (1, {"expects": 3}, "GPU 1 waits for 3 contributions to tile 0 of output, but 2 come: it would wait for ever"),
        (
            1,
            {"expects": 1},
            "GPU 1 waits for 1 contributions to tile 0 of output, but 2 come: it would continue too early",
        ),
        (2, {"expects": 4}, "GPU 2 waits for 4 contributions to tile 0 of output, but 2 come: it would wait for ever"),
        (0, {"to": (2,)}, "GPU 1 waits for 2 contributions to tile 0 of output, but 1 come"),
        (0, {"to": (1, 2)}, "GPU 2 waits for 2 contributions to tile 0 of output, but 3 come"),
        (1, {"sends": (Send(2),)}, r"GPU 0 expects nothing for tile 0 .* arrives for it from GPUs \[1\] would be lost"),
        (1, {"op": Op.WRITE}, "GPU 1, tile 0 of output is stored and gets other contributions"),
        (1, {"sends": (Send(1, Op.WRITE),)}, "GPU 2, tile 0 of output is stored and gets other contributions"),
        (0, {"op": Op.WRITE}, "GPU 1, tile 0 of output is stored and gets other contributions"),
        (0, {"to": (0, 1)}, "GPU 0, tile 0 of output is updated but expects nothing: updates would not be counted"),
        (0, {"gate": 0}, "GPU 0, tile 0 of output has a gate but expects nothing: the gate would never open"),
    ],
)
def test_a_plan_that_loses_or_doubles_a_sum_is_refused(gpu, fields, words):
    check_regions(ring(), 6)
    with pytest.raises(UserError, match=words):
        check_regions(changed(ring(), gpu, 0, **fields), 6)


def test_sums_that_go_in_a_circle_are_refused():
    """GPUs 0 and 1 send tile 0 to each other, GPU 2 keeps its own."""
    plans = changed(ring(), 0, 0, to=(0,), sends=(Send(1),), expects=2)
    plans = changed(plans, 1, 0, sends=(Send(2),), expects=2)
    plans = changed(plans, 2, 0, expects=1)
    words = r"contributions to GPU 0, tile 0 of output wait for each other in a circle \(GPUs \[0, 1\]\)"
    with pytest.raises(UserError, match=words):
        check_regions(plans, 6)


def test_a_contribution_that_comes_twice_is_refused():
    """As many come as are expected, but GPU 1 sends its sum twice; or its stores go to GPU 2 as well."""
    twice = changed(changed(ring(), 1, 0, sends=(Send(1), Send(1))), 2, 0, expects=3)
    with pytest.raises(UserError, match=r"contributions of GPUs \[0, 1\] come twice to tile 0 of output on GPU 2"):
        check_regions(twice, 6)
    both = changed(changed(ring(), 1, 0, to=(0, 1)), 2, 0, expects=3)
    with pytest.raises(UserError, match=r"contributions of GPUs \[1\] come twice to tile 0 of output on GPU 2"):
        check_regions(both, 6)


def test_a_final_tile_to_which_not_all_contribute_is_refused():
    """GPU 0 keeps tile 0 as well: two sums of fewer."""
    plans = changed(ring(), 0, 0, to=(0, 1), expects=1)
    with pytest.raises(UserError, match=r"tile 0 is final on GPUs \[0, 2\]"):
        check_regions(plans, 6)


def test_a_sum_that_never_reaches_the_final_tile_is_refused():
    """GPU 0 stores tile 0 nowhere, and GPU 1 does not wait for it."""
    plans = changed(changed(ring(), 0, 0, to=()), 1, 0, expects=1)
    with pytest.raises(UserError, match=r"the sums of GPUs \[0\] never reach the final tile 0 on GPU 2"):
        check_regions(plans, 6)


@pytest.mark.parametrize("by", ["stores", "DMA engines"])
def test_a_part_of_one_tile_that_is_added_to_another_is_refused(by):
    """GPU 0, or GPU 1, sends tile 0 to tile 1 and tile 1 to tile 0: each gets one contribution of each GPU."""
    gpu, plans = (0, ring()) if by == "stores" else (1, ring())
    whole = plans[gpu].pop(at(plans[gpu], 0))
    for tile in range(2):
        to = Send(1, Op.UPDATE, first=1 - tile)
        fields = {"to": (to,)} if by == "stores" else {"sends": (to,)}
        plans[gpu].append(replace(whole, first=tile, end=tile + 1, **fields))
    with pytest.raises(UserError, match=f"GPU {gpu} sends its part of tile 0 to tile 1: it would be added to another"):
        check_regions(plans, 6)


def test_a_tile_that_no_region_covers_is_refused():
    plans = [list(regions) for regions in ring()]
    del plans[1][at(plans[1], 3)]
    with pytest.raises(UserError, match="GPU 1 keeps its part of tile 2 to itself"):
        check_regions(plans, 6)
    with pytest.raises(UserError, match="GPU 0 keeps its part of tile 6"):
        check_regions(ring(), 7)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (None, "of 1 buffers and 2 kernels"),  # the other kernel stores nothing
        (Buffer("second", np.zeros(2, OUTPUT_TILE)), "of 2 buffers and 1 kernels"),
    ],
)
def test_buffers_and_kernels_count_each_for_itself(second, words):
    regions = [Region(0, 2, op=Op.UPDATE, expects=1)]
    buffers = [Buffer(OUTPUT, np.zeros(2, OUTPUT_TILE))]
    both = [Queue(gpu, 0, np.arange(2), np.full(2, -1)) for gpu in range(2)]
    follow([regions] * 2, buffers, both, Limits(1, 1))
    if second:
        buffers.append(second)
        regions.append(replace(regions[0], buffer=second.name))
    else:
        both += [replace(queue, number=1) for queue in both]
    with pytest.raises(UserError, match=f"tracker.ways: found 1, but . tiles share a set, {words} at once"):
        follow([regions] * 2, buffers, both, Limits(1, 1))
    follow([regions] * 2, buffers, both, Limits(1, 4))
