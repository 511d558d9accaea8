"""Kernels whose middle can be omitted: which workgroups stay, and which kernels may be shortened."""

import pytest

from sim.presets import load_preset
from sim.run.short_kernel import Pattern, ShortKernel, pattern_of, reason_whole, wave_of, why_whole
from tests.support.programs import random_kernel
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence

V100 = load_preset("v100").machine


PAIRS = {"copy": "bulk", "cluster": "2x1"}


def gemm(**fields):
    return make_kernel("gemm:m=2000,n=1000,k=32,tile=64x64x32,warps=2x2", **fields)


def issued(short, before):
    """Numbers of the workgroups that it issues; its middle is omitted after `before` of them."""
    found = []
    for workgroup in short.workgroups():
        found.append(workgroup.index)
        if len(found) == before:
            short.omit()
    return found


@pytest.mark.parametrize("text", ["gemm:m=2000,n=1000,k=32,tile=64x64x32,warps=2x2", "residual:rows=900,cols=1024"])
def test_beginning_and_end_stay(text):
    kernel = make_kernel(text)
    whole = kernel.info.workgroups
    found = issued(ShortKernel(kernel, Pattern(whole, wave=40, repeats_after=16, end=16)), before=100)
    end = 16 + (whole - 100 - 16) % 40
    assert found == [*range(100), *range(whole - end, whole)]
    assert (whole - len(found)) % 40 == 0


def test_clusters_stay_whole():
    kernel = make_kernel("gemm:m=2048,n=1024,k=32,tile=64x64x32,warps=2x2,copy=bulk,pipeline_depth=2,cluster=2x2")
    found = issued(ShortKernel(kernel, Pattern(512, wave=40, repeats_after=16, end=16, cluster=4)), before=101)
    assert found == [*range(104), *range(512 - 16 - 32, 512)]


def test_without_a_cut_all_stay():
    kernel = gemm()
    assert issued(ShortKernel(kernel, Pattern(512, 40, 16, 0)), before=0) == list(range(kernel.info.workgroups))


@pytest.mark.parametrize(
    ("fields", "period", "end"),
    [
        ({"order": "row"}, 16, 16),
        ({"order": "row", "m": 1984}, 16, 0),
        ({"order": "column"}, 32, 32),
        ({"order": "column", "n": 1024}, 32, 0),
        ({"order": "grouped", "group": 8}, 8 * 16, 8 * 16),
        ({"order": "grouped", "group": 8, "m": 2048}, 8 * 16, 0),
        ({"order": "grouped", "group": 12, "m": 2048}, 12 * 16, 8 * 16),
        ({"order": "grouped", "group": 64, "m": 2048}, 32 * 16, 0),
        ({"order": "grouped", "group": 1, "m": 2048, "n": 1024, **PAIRS}, 2 * 16, 0),
        ({"order": "row", "m": 2048, "n": 1024, **PAIRS}, 2 * 16, 0),
    ],
)
def test_periods_of_the_walk_over_tiles(fields, period, end):
    kernel = gemm(**fields)
    whole, wave, cluster = kernel.info.workgroups, wave_of(kernel.info, V100), kernel.info.cluster
    assert pattern_of(kernel, V100) == Pattern(whole, wave, period, end, cluster)


def test_period_of_an_operator():
    kernel = make_kernel("flash_attention:batch=32,heads=16,kv_heads=4,seq=512")
    found = pattern_of(kernel, V100)
    assert (found.wave, found.repeats_after, found.end) == (80, kernel.period, 1) and found.repeats_after > 1


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (gemm(), "it has 1.3 waves of 400 workgroups, at least 20 are needed"),
        (gemm(persistent=4), "it is a GEMM with split-K, persistent workgroups or a start_tile"),
        (gemm(k=128, split_k=2), "it is a GEMM with split-K"),
        (gemm(m=128, n=1_000_000), "its work repeats after 50% of its workgroups, at most 25% are allowed"),
        (random_kernel(1), "it is a kernel whose workgroups may differ"),
    ],
)
def test_what_is_simulated_whole_says_why(kernel, text):
    assert text in reason_whole(kernel, V100)
    assert text in why_whole(CommandSequence([kernel]), V100)


def test_one_long_kernel_is_enough():
    assert why_whole(CommandSequence([gemm(), gemm(m=64_000)]), V100) == ""
