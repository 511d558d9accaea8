"""The data of collectives on CUs: what memory holds after the steps of all GPUs, in any order that the gates allow."""

import numpy as np
import pytest

from sim.collective import nvls, on_cus, staged, tree
from sim.collective.chunks import WholeBuffer, chunks_of
from sim.collective.kernel import Pieces
from sim.collective.space import slot_bytes
from sim.collective.topology import AddingSwitch
from sim.spec import Topology
from tests.support.steps_twin import played
from tracer.gemm.source import OUTPUT_TILE

SIZES, PIECES = (3, 1, 4, 2), Pieces(2, 2)
N, TILES = len(SIZES), sum(SIZES)
CHUNKS, WHOLE = chunks_of(SIZES), WholeBuffer(TILES, N)
OUTPUT = np.zeros(TILES, OUTPUT_TILE)  # tiles that do not touch: each is a segment
OUTPUT["address"], OUTPUT["runs"], OUTPUT["run_bytes"], OUTPUT["pitch_bytes"] = 4096 * np.arange(TILES), 1, 128, 128
PLACES = [(gpu, tile) for gpu in range(N) for tile in range(TILES)]
IN_ALL, KEPT = dict.fromkeys(PLACES), [(gpu, tile) for gpu in range(N) for tile in CHUNKS.span(gpu, N - 1)]
OWNER = {tile: gpu for gpu, tile in KEPT}


def one(plan):
    return [plan.steps]


def at_once(plan):
    return staged.kernels(plan.steps)


def on_cus_of(make, topology, **more):
    return lambda gpu: make(OUTPUT, CHUNKS, gpu, topology, slices=2, **more)


def staged_of(kind, pulls, topology=Topology.RING):
    return lambda gpu: staged.staged_plan(kind, OUTPUT, CHUNKS, gpu, topology, PIECES, pulls)


def in_switch(make):
    return lambda gpu: make(OUTPUT, CHUNKS, gpu, AddingSwitch())


def tree_of(per_node):
    return lambda gpu: tree.all_reduce(OUTPUT, WHOLE, gpu, Topology.SWITCH, per_node=per_node, pieces=PIECES)


def broadcast(gpu):
    return tree.broadcast(OUTPUT, WHOLE, gpu, Topology.RING, pieces=PIECES)


REDUCES, GATHERS = ("reduce_scatter", IN_ALL, KEPT), ("all_gather", KEPT, PLACES)
BOTH, FROM_0 = ("all_reduce", IN_ALL, PLACES), ("broadcast", [place for place in PLACES if place[0] == 0], PLACES)
CASES = [
    *((REDUCES, on_cus_of(on_cus.reduce_scatter, topology), one, 0) for topology in Topology),
    *((REDUCES, on_cus_of(on_cus.reduce_scatter, topology, update=True), one, 0) for topology in Topology),
    *((GATHERS, on_cus_of(on_cus.all_gather, topology), one, 0) for topology in Topology),
    *((BOTH, on_cus_of(on_cus.all_reduce, topology), one, 0) for topology in Topology),
    *((kind, staged_of(kind[0], pulls), one, staged.RESULT) for kind in (REDUCES, GATHERS, BOTH) for pulls in (0, 1)),
    (REDUCES, in_switch(nvls.reduce_scatter), at_once, nvls.STAGING),
    (GATHERS, in_switch(nvls.all_gather), at_once, nvls.RESULT),
    (BOTH, in_switch(nvls.all_reduce), at_once, nvls.RESULT),
    *((BOTH, tree_of(per_node), tree.both_ways, tree.RESULT) for per_node in (1, 2, 4)),
    (FROM_0, broadcast, one, tree.RESULT),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "plan", "kernels", "place"), CASES)
def test_a_result_has_the_data_of_each_gpu_once(kind, plan, kernels, place, seed):
    name, begins, ends = kind
    begin = {(gpu, 0, tile): [gpu] for gpu, tile in begins}
    memory = played([plan(gpu) for gpu in range(N)], kernels, begin, seed)
    for gpu, tile in ends:
        expected = {"all_gather": [OWNER[tile]], "broadcast": [0]}.get(name, list(range(N)))
        assert memory[gpu, place, tile] == expected, (gpu, tile)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("plan", "kernels", "first"),
    [
        (on_cus_of(on_cus.all_to_all, Topology.SWITCH), one, 0),
        *((staged_of("all_to_all", pulls, Topology.SWITCH), at_once, N) for pulls in (False, True)),
    ],
)
def test_an_all_to_all_keeps_the_data_of_all_gpus_apart(plan, kernels, first, seed):
    """first: of the buffers in which the chunks of the GPUs 1, 2, ... behind end. A library copies them to there."""
    memory = played([plan(gpu) for gpu in range(N)], kernels, {(gpu, 0, tile): [gpu] for gpu, tile in PLACES}, seed)
    for gpu, tile in KEPT:
        for behind in range(1, N):
            assert memory[gpu, slot_bytes(first + behind - 1), tile] == [(gpu - behind) % N]
        assert memory[gpu, slot_bytes(N - 1), tile] == [gpu]


def test_a_local_sum_has_its_own_part_and_all_receive_buffers():
    begin = {(gpu, slot_bytes(k) if k >= 0 else 0, tile): [k + 1] for gpu, tile in PLACES for k in range(-1, N - 1)}
    plan = on_cus_of(on_cus.local_reduce, Topology.SWITCH)
    memory = played([plan(gpu) for gpu in range(N)], one, begin, 0)
    assert all(memory[gpu, 0, tile] == list(range(N)) for gpu, tile in KEPT)
