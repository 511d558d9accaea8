"""The ablation: each variant of the fused GEMM moves exactly the traffic that its name says, and no other."""

from dataclasses import replace
from itertools import pairwise

import pytest

from sim.collective.check import check_regions
from sim.collective.chunks import even_chunks
from tests.support.fake_runs import STREAMS, fake_results
from traces.errors import UserError
from validation.experiments.ablation import Ablation
from validation.experiments.ablation_runs import OWN, RINGS, VARIANTS, ring_runs, simulate_ring, variant_regions
from validation.experiments.workbench import Workbench

NAME = "mega-gpt-2/op/tp8"
SCENARIO = Workbench(tokens=256).scenarios((NAME,))[NAME]
D = 256 * 3072 * 2
EIGHTHS = {
    "own": {"compute_write": 7, "comm_read": 0, "comm_write": 0, "link": 1, "arrived": 0},
    "own_dma": {"compute_write": 7, "comm_read": 6, "comm_write": 0, "link": 7, "arrived": 0},
    "own_arriving": {"compute_write": 7, "comm_read": 0, "comm_write": 7, "link": 1, "arrived": 7},
    "every": {"compute_write": 7, "comm_read": 6, "comm_write": 7, "link": 7, "arrived": 7},
    "arriving_dma": {"compute_write": 0, "comm_read": 6, "comm_write": 7, "link": 6, "arrived": 7},
}
"""Of D, for equal chunks on 8 GPUs; plain stores of so small an output stay in L2."""


@pytest.fixture(scope="module")
def found():
    return {key: value for run in ring_runs(SCENARIO) for key, value in run.execute().figures.items()}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_moves_what_it_says(found, variant):
    moved = {stream: found[f"{variant}/dram_bytes/{stream}"] for stream in STREAMS}
    moved |= {"link": found[f"{variant}/link_bytes"], "arrived": found[f"{variant}/arrived_bytes"]}
    assert {kind: moved[kind] * 8 / D for kind in EIGHTHS[variant]} == EIGHTHS[variant]


def test_all_read_what_the_gemm_reads(found):
    """A and B fit L2 together: each is read once, whatever else there is."""
    assert len({found[f"{variant}/dram_bytes/compute_read"] for variant in VARIANTS}) == 1


def test_answers_are_slowdowns_against_the_gemm_alone():
    experiment = Ablation(title="", scenarios=(NAME,), jitter_ps=1_000_000, seeds=(1,), bench=Workbench(tokens=256))
    answers = experiment.answers(fake_results(experiment.runs()))
    for seed in ("seed0", "seed1"):
        for variant in VARIANTS:
            assert answers[f"{NAME}/{seed}/{variant}/kernel_us"] == 950
            assert answers[f"{NAME}/{seed}/{variant}/gemm_slowdown"] == pytest.approx(100 * 50 / 900)
            assert answers[f"{NAME}/{seed}/{variant}/comm_read_MB"] == 1
        assert answers[f"{NAME}/{seed}/t3/gemm_slowdown"] == pytest.approx(100 * 100 / 900)
        assert answers[f"{NAME}/{seed}/t3_mca/overlap_loss"] == pytest.approx(100 * 30 / 900)
    assert len({run.key for run in experiment.runs()}) == len(experiment.runs()) == 2 * (4 + len(RINGS))


def test_where_tiles_are_mapped():
    """Own updates alone would leave the sums of the others out: no plan of a reduction."""
    chunks = even_chunks(16, 8)
    regions = variant_regions(OWN, chunks, 3)
    assert [(region.to, region.expects) for region in regions] == [((1,), 0), *[((0,), 1)] * 7]
    assert sorted(tile for region in regions for tile in range(region.first, region.end)) == list(range(16))
    with pytest.raises(UserError, match="plan"):
        check_regions([variant_regions(OWN, chunks, gpu) for gpu in range(8)], 16)


def test_a_tile_is_complete_with_all_that_comes_to_it():
    """Else DMA engines would read too early, or never: two updates of each byte where own and arriving ones meet."""
    for name, updates in {"own": 1, "own_dma": 1, "own_arriving": 2, "arriving_dma": 1, "every": 2}.items():
        regions = variant_regions(VARIANTS[name], even_chunks(16, 8), 2)
        assert {region.expects for region in regions[1:]} == {updates}, name
        assert sum(len(region.sends) for region in regions) == (6 if "dma" in name or name == "every" else 0)


def test_every_variant_hears_only_whom_it_should():
    """Who has arriving updates stands behind one that sends on; who has none, behind one that runs nothing."""
    assert {one for ring in RINGS for one in ring if one} == set(VARIANTS.values())
    for ring in RINGS:
        for behind, one in pairwise((None, *ring, None)):
            if one:
                assert one.arriving == (behind is not None and behind.dma)
                assert one.arriving or behind is None


def test_too_few_gpus_are_refused():
    with pytest.raises(UserError, match="found 4 GPUs, allowed are 5"):
        simulate_ring(replace(SCENARIO, gpus=4), RINGS[0])
