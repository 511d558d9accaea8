"""Workgroups that multiply in pairs (tcgen05 with cta_group::2): shared memory, releases, the library of Blackwell."""

from dataclasses import replace

import pytest

from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from tracer.gemm.architecture import GemmLibrary, architecture
from tracer.gemm.expected import expected_s
from tracer.gemm.kernel import Copy, GemmKernel, fragment_bytes, kernel_fields, registers_per_thread, shared_bytes
from tracer.gemm.library import choose_kernel
from tracer.gemm.plan import PC_STEP, Site
from tracer.gemm.problem import GemmProblem, Layout
from tracer.gemm.source import GemmSource
from tracer.kernels import make_gemm

B200 = gpu_facts(load_preset("b200").machine)
SINGLE = GemmKernel(
    128, 256, 64, 4, 1, pipeline_depth=3, copy=Copy.PRODUCER, warpgroup=4, cluster_m=2, registers=96, fragment_pieces=4
)
PAIR = replace(SINGLE, pair_m=2)
PROBLEM = GemmProblem(512, 512, 256, b_layout=Layout.COLUMN)


def test_a_workgroup_of_a_pair_has_a_part_of_what_it_shares():
    """Of 256 columns of B 128; all 128 rows of A. 64 of K, 2 bytes, 3 stages."""
    assert shared_bytes(PROBLEM, SINGLE) == 3 * 64 * (128 + 256) * 2
    assert shared_bytes(PROBLEM, PAIR) == 3 * 64 * (128 + 128) * 2
    below = replace(PAIR, tile_m=256, tile_n=128, warps_m=1, warps_n=4, cluster_m=1, cluster_n=2, pair_m=1, pair_n=2)
    assert shared_bytes(PROBLEM, below) == shared_bytes(PROBLEM, PAIR)


def test_a_workgroup_of_a_pair_reads_its_part_for_both():
    """A piece of 16 of K: each of four warps has 32 rows of A; they read 256 columns of B together, or 128."""
    assert 4 * fragment_bytes(PROBLEM, SINGLE, 16) == 16 * (128 + 256) * 2
    assert 4 * fragment_bytes(PROBLEM, PAIR, 16) == 16 * (128 + 128) * 2


@pytest.mark.parametrize(
    ("cluster", "pair", "sets"),
    [
        ((2, 1), (2, 1), {0}),  # 0 = the own workgroup only
        ((1, 2), (1, 2), {0}),
        ((4, 1), (2, 1), {0b0101, 0b1010}),
        ((1, 4), (1, 2), {0b0101, 0b1010}),
        ((2, 2), (2, 1), {0b0101, 0b1010}),  # rows of A of its neighbour in n; ranks go down the columns
    ],
)
def test_warps_release_a_stage_to_those_that_loaded_it_for_them(cluster, pair, sets):
    shape = {"cluster_m": cluster[0], "cluster_n": cluster[1], "pair_m": pair[0], "pair_n": pair[1]}
    source = GemmSource(PROBLEM, replace(PAIR, tile_m=64, tile_n=64, **shape))
    found, arrivals = set(), set()
    for workgroup in source.workgroups():
        released = workgroup.events[workgroup.events["pc"] == PC_STEP * Site.RELEASED]
        found |= set(released["cycles"].tolist())
        arrivals |= set(released["work"].tolist())
    assert found == sets
    assert arrivals == {4 * max(1, next(iter(sets)).bit_count())}  # four warps of each


def test_a_kernel_without_a_pair_is_described_as_before():
    assert not {"pair_m", "pair_n"} & kernel_fields(SINGLE).keys()
    assert kernel_fields(PAIR)["pair_m"] == 2 and "pair_n" not in kernel_fields(PAIR)


def test_the_port_of_a_cu_decides_for_pairs():
    """64 bytes a clock: a step of 128 x 256 needs 768 clocks for its operands, in a pair 512; its products take 542."""
    assert B200.port_bytes_per_clk == pytest.approx(64)
    problem = GemmProblem(4096, 4096, 4096, b_layout=Layout.COLUMN)
    kernels = [choose_kernel(problem, gpu) for gpu in (B200, B200._replace(port_bytes_per_clk=16))]
    assert [kernel.pair_m for kernel in kernels] == [2, 2]
    single, pair = (expected_s(problem, kernel, B200, 1, more_clk=0) for kernel in (SINGLE, PAIR))
    assert single / pair == pytest.approx(768 / 592, rel=0.03)  # a pair is bound by its share of L2


def test_a_text_names_a_pair():
    text = "gemm:m=512,n=512,k=256,dtype=bf16,family=sm100,tile=128x128x64,warps=4x1,cluster=2x1,pair=2x1"
    kernel = make_gemm(text, B200).source.kernel
    assert (kernel.pair_m, kernel.pair_n, kernel.registers) == (2, 1, 96)


def test_kernels_of_blackwell_fit_twice_or_have_all_stages():
    """Two workgroups of a CU stand for one that stores a tile while it computes the next."""
    kernels = architecture(GemmLibrary.SM100).kernels
    for kernel in kernels:
        size = GemmProblem(1024, 1152, 512, b_layout=Layout.COLUMN)
        assert registers_per_thread(size, kernel) == 96
        stage = shared_bytes(size, kernel) // kernel.pipeline_depth
        most = min(8, (B200_SHARED_BYTES if B200.workgroups(size, kernel) == 1 else B200_SHARED_BYTES // 2) // stage)
        assert kernel.pipeline_depth in (most, most - 1), kernel
    pairs = [kernel for kernel in kernels if kernel.pair_m * kernel.pair_n > 1]
    shapes = {(kernel.tile_m, kernel.tile_n, kernel.pair_m) for kernel in pairs}
    assert {(n, m, 3 - pair) for m, n, pair in shapes} == shapes
    assert all((kernel.cluster_m, kernel.cluster_n) == (kernel.pair_m, kernel.pair_n) for kernel in pairs)


B200_SHARED_BYTES = 227 << 10


@pytest.mark.parametrize(
    ("m", "n", "pair"),
    [(4096, 4096, (2, 1)), (5 * 128, 8192, (1, 2)), (1, 25136, (1, 1))],
)
def test_large_gemms_run_in_pairs_where_their_tiles_can_be_divided(m, n, pair):
    kernel = choose_kernel(GemmProblem(m, n, 4096, b_layout=Layout.COLUMN), B200)
    assert (kernel.pair_m, kernel.pair_n) == pair
    alone = choose_kernel(GemmProblem(m, n, 4096, b_layout=Layout.COLUMN), B200._replace(clusters=False))
    assert (alone.pair_m, alone.pair_n) == (1, 1)
