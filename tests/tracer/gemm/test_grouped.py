"""A grouped GEMM is the same as its GEMMs one after the other: own rows of A and C, own B."""

from dataclasses import replace

import numpy as np
import pytest

from tracer.gemm.grouped import GroupedGemm
from tracer.gemm.kernel import GemmKernel
from tracer.gemm.problem import Layout
from tracer.gemm.source import GemmSource
from tracer.kernels import kernel_text, make_kernel
from tracer.workloads import aligned_problem
from traces.errors import UserError

KERNEL = GemmKernel(tile_m=64, tile_n=64, tile_k=32, warps_m=2, warps_n=2)


@pytest.mark.parametrize("a_layout", Layout)
def test_each_group_is_a_gemm_at_its_own_addresses(a_layout):
    groups = (100, 0, 1, 64)
    grouped = GroupedGemm(aligned_problem(165, 72, 96, a_layout=a_layout), KERNEL, groups)
    found, place = list(grouped.workgroups()), 0
    assert [own.problem.m for own in grouped.sources] == [100, 1, 64]
    for source in grouped.sources:
        for expected in source.workgroups():
            assert found[place].index == place
            np.testing.assert_array_equal(found[place].events, expected.events)
            place += 1
    assert place == grouped.info.workgroups == (2 + 1 + 1) * 2
    assert [workgroup.index for workgroup in grouped.workgroups(start=5)] == [5, 6, 7]


def test_groups_share_a_and_c_but_no_b():
    grouped = GroupedGemm(aligned_problem(165, 72, 96), KERNEL, (100, 0, 1, 64))
    first, second, third = (source.problem for source in grouped.sources)
    assert second.a.address == first.a.address + 100 * first.a.pitch_bytes
    assert third.c.address == second.c.address + second.c.pitch_bytes
    assert first.b.end <= second.b.address and second.b.end <= third.b.address
    assert third.b.end <= first.c.address
    assert third.a.end <= first.b.address


def test_one_group_is_the_gemm():
    alone = GemmSource(aligned_problem(100, 72, 96), KERNEL)
    grouped = GroupedGemm(alone.problem, KERNEL, (100,))
    for own, expected in zip(grouped.workgroups(), alone.workgroups(), strict=True):
        np.testing.assert_array_equal(own.events, expected.events)
    assert grouped.flops == 2 * 100 * 72 * 96


def test_groups_by_name():
    text = "gemm:n=72,k=96,groups=100x0x1x64,tile=64x64x32,warps=2x2"
    source = make_kernel(text)
    assert isinstance(source, GroupedGemm) and source.groups == (100, 0, 1, 64)
    again = make_kernel(kernel_text(source.info.attributes))
    assert again.fingerprint() == source.fingerprint()
    changed = replace(source.problem, k=95)
    assert GroupedGemm(changed, source.kernel, source.groups).fingerprint() != source.fingerprint()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n=8,k=8,groups=0x0", "at least one row"),
        ("m=8,n=8,k=8,groups=4x4", "another field that gives m"),
        ("n=8,k=8,groups=4x4,batch=2", "groups: found with batch"),
        ("n=8,k=8,groups=4x4,c_address=4096", "c_address: found with groups, which places all matrices itself"),
        ("n=8,groups=4x4", "k: missing"),
        ("n=8,k=8,groups=4xa", "found 'a'"),
        ("n=8,k=8,groups=0*4", r"found '0\*4'"),
        ("n=8,k=8,groups=12345*4", r"found '12345\*4'"),
        ("n=8,k=8,groups=9999*4", "GEMM of 9999 groups"),
    ],
)
def test_impossible_groups_are_refused(text, words):
    with pytest.raises(UserError, match=words):
        make_kernel(f"gemm:{text}")


def test_a_number_of_rows_can_be_repeated():
    short = make_kernel("gemm:n=72,k=96,groups=2*100x0x3*1,tile=64x64x32,warps=2x2")
    assert short.groups == (100, 100, 0, 1, 1, 1)
    assert short.fingerprint() == GroupedGemm(aligned_problem(203, 72, 96), KERNEL, short.groups).fingerprint()
