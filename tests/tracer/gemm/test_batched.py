"""A strided batch is the same as its GEMMs one after the other, each with its own matrices."""

from dataclasses import replace

import numpy as np
import pytest

from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from sim.run.run import KernelRun
from tracer.gemm.batched import strided_batch
from tracer.gemm.kernel import GemmKernel
from tracer.gemm.source import GemmSource
from tracer.kernels import kernel_text, make_kernel
from tracer.sequence import CommandSequence
from tracer.workloads import aligned_problem
from traces.errors import UserError

KERNEL = GemmKernel(tile_m=64, tile_n=64, tile_k=32, warps_m=2, warps_n=2)


@pytest.mark.parametrize("with_c", [False, True])
@pytest.mark.parametrize("split_k", [1, 2])
def test_each_member_is_a_gemm_at_its_own_addresses(with_c, split_k):
    problem = aligned_problem(100, 72, 96, with_c=with_c)
    batch = strided_batch(problem, replace(KERNEL, split_k=split_k), 3)
    own, found = batch.first.info.workgroups, list(batch.workgroups())
    assert len(found) == batch.info.workgroups == 3 * own
    first, (a, b, c) = batch.problem, batch.strides_bytes
    for member in range(3):
        moved = replace(
            first,
            a_address=first.a.address + member * a,
            b_address=first.b.address + member * b,
            c_address=first.c.address + member * c,
            c_source_address=first.c.address + member * c,
        )
        for local, expected in enumerate(GemmSource(moved, batch.kernel).workgroups()):
            workgroup = found[member * own + local]
            assert workgroup.index == member * own + local
            np.testing.assert_array_equal(workgroup.events, expected.events)


def test_members_share_no_byte():
    problem = aligned_problem(100, 72, 96)
    batch = strided_batch(problem, KERNEL, 4)
    for matrix, stride in zip((problem.a, problem.b, problem.c), batch.strides_bytes, strict=True):
        assert stride >= matrix.span_bytes
    first = batch.problem
    assert first.a.address + 4 * batch.strides_bytes[0] <= first.b.address
    assert first.b.address + 4 * batch.strides_bytes[1] <= first.c.address


def test_a_batch_reads_and_writes_each_member_once():
    source = make_kernel("gemm:m=128,n=128,k=64,batch=5,tile=64x64x32,warps=2x2")
    result = KernelRun(preset=load_preset("v100"), source=CommandSequence([source])).execute()
    headline = result.headline()
    matrix_sectors = 128 * 64 * 2 // 32
    assert headline["dram_read_sectors"] == 5 * 2 * matrix_sectors
    assert headline["dram_write_sectors_after_flush"] == 5 * 128 * 128 * 2 // 32


@pytest.mark.parametrize("batch", [0, -1, 1 << 21])
def test_an_impossible_batch_is_refused(batch):
    with pytest.raises(UserError, match=f"GEMM batch = {batch}: must be a whole number from 1"):
        make_kernel(f"gemm:m=64,n=64,k=64,batch={batch}")
    with pytest.raises(UserError, match=f"GEMM batch = {batch}: must be a whole number from 1"):
        make_kernel(f"gemm:m=64,n=64,k=64,batch={batch}", gpu_facts(load_preset("v100").machine))


@pytest.mark.parametrize("name", ["a_address", "b_address", "c_address", "c_source_address"])
def test_a_batch_refuses_addresses_but_its_own(name):
    with pytest.raises(UserError, match=f"{name}: found with batch, which places all matrices itself"):
        make_kernel(f"gemm:m=64,n=64,k=64,batch=2,{name}=4096")
    source = make_kernel("gemm:m=64,n=64,k=64,batch=2")
    assert make_kernel(kernel_text(source.info.attributes)) == source  # the description of a batch has addresses
