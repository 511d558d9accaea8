"""DRAM traffic of operators, simulated, against the closed forms of their docstrings, to the byte."""

import numpy as np
import pytest

from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from sim.run.kernel_figures import L2State, figures_of, kernel_run
from tracer.kernels import make_kernels
from tracer.operators.column_sum import parts_of
from tracer.operators.index import mixed

PRESET = "a100_80g"
N, C = 96, 1024
E = N * C * 2
"""Bytes of a 16-bit tensor of N x C elements."""
ROW = C * 2
SCALARS = N * 4
PARTS = parts_of(N) * C * 4
PARAMETERS = 50_000
TOKENS, EXPERTS, TOP_K = 64, 16, 2
CHOICES = TOKENS * TOP_K

SHAPE = f"rows={N},cols={C}"
CASES = {
    f"layernorm:{SHAPE}": (E + 2 * ROW, E),
    f"layernorm:{SHAPE},stats=true": (E + 2 * ROW, E + 2 * SCALARS),
    f"layernorm:{SHAPE},backward=true": (2 * E + ROW + 2 * SCALARS + 2 * PARTS, E + 2 * PARTS + 2 * ROW),
    f"rmsnorm:{SHAPE}": (E + ROW, E),
    f"rmsnorm:{SHAPE},residual=true": (2 * E + ROW, 2 * E),
    f"rmsnorm:{SHAPE},residual=true,dropout=true": (2 * E + ROW, 2 * E + E // 2),
    f"rmsnorm:{SHAPE},residual=true,dropout=true,fused=false": (4 * E + ROW, 3 * E + E // 2),
    f"rmsnorm:{SHAPE},backward=true": (2 * E + ROW + SCALARS + PARTS, E + PARTS + ROW),
    f"rmsnorm:{SHAPE},backward=true,dtype=int8": (E + ROW // 2 + SCALARS + PARTS, E // 2 + PARTS + ROW // 2),
    f"rmsnorm:{SHAPE},backward=true,residual=true,dropout=true": (
        3 * E + E // 2 + ROW + SCALARS + PARTS,
        2 * E + PARTS + ROW,
    ),
    f"softmax:{SHAPE}": (E, E),
    f"softmax:{SHAPE},backward=true": (2 * E, E),
    f"softmax:{SHAPE},library=torch": (E, E),
    f"softmax:rows={N},cols={5 * C},library=torch,dtype=bf16": (5 * E, 5 * E),
    f"softmax:rows={N},cols=5185,library=torch,dtype=bf16": (N * 5185 * 2, N * 5185 * 2),
    f"layernorm:{SHAPE},library=torch,stats=true": (E + 2 * ROW, E + 2 * SCALARS),
    f"rmsnorm:{SHAPE},library=torch": (E + ROW, E),
    f"gelu:{SHAPE}": (E, E),
    f"gelu:{SHAPE},bias=true": (E + ROW, E),
    f"gelu:{SHAPE},bias=true,fused=false": (2 * E + ROW, 2 * E),
    f"gelu:{SHAPE},backward=true": (2 * E, E),
    f"swiglu:{SHAPE}": (2 * E, E),
    f"swiglu:{SHAPE},fused=false": (3 * E, 2 * E),
    f"swiglu:{SHAPE},backward=true": (3 * E, 2 * E),
    f"swiglu:{SHAPE},backward=true,fused=false": (6 * E, 3 * E),
    f"dropout:{SHAPE}": (E, E + E // 2),
    f"dropout:{SHAPE},backward=true": (E + E // 2, E),
    f"residual:{SHAPE}": (2 * E, E),
    f"residual:{SHAPE},dropout=true": (2 * E, E + E // 2),
    f"residual:{SHAPE},vector=1,unroll=1,warps=4,turns=4,dimensions=3": (2 * E, E),
    f"copy:{SHAPE}": (E, E),
    f"copy:{SHAPE},out=fp32": (E, 2 * E),
    f"bias:{SHAPE}": (E + ROW, E),
    f"bias:{SHAPE},backward=true": (E + PARTS, PARTS + ROW),
    "rotary:tokens=48,heads=8,kv_heads=2,head_dim=128": (48 * 11 * 256, 48 * 10 * 256),
    f"cross_entropy:rows={N},vocab={C}": (E + SCALARS, E + SCALARS),
    f"cross_entropy:rows={N},vocab={C},backward=true": (E, E),
    f"cross_entropy:rows={N},vocab={C},fused=false": (E + SCALARS + N * 32, E),
    f"cross_entropy:rows={N},vocab={C},fused=false,backward=true": (2 * E, 2 * E),
    f"adam:parameters={PARAMETERS}": (16 * PARAMETERS, 12 * PARAMETERS),
    f"adam:parameters={PARAMETERS},dtype=bf16": (14 * PARAMETERS, 14 * PARAMETERS),
    f"adam:parameters={PARAMETERS},out=bf16": (16 * PARAMETERS, 14 * PARAMETERS),
    f"adam:parameters={PARAMETERS},fused=false": (48 * PARAMETERS, 32 * PARAMETERS),
    f"adam:parameters={PARAMETERS},scaled=true,dtype=fp16": (36 * PARAMETERS, 30 * PARAMETERS),
    f"lamb:parameters={PARAMETERS}": (36 * PARAMETERS, 16 * PARAMETERS),
    f"lamb:parameters={PARAMETERS},out=fp16": (40 * PARAMETERS, 18 * PARAMETERS),
    f"lamb:parameters={PARAMETERS},dtype=fp16": (30 * PARAMETERS, 16 * PARAMETERS),
    f"gradient_clip:parameters={PARAMETERS}": (8 * PARAMETERS, 4 * PARAMETERS),
    f"moe_route:tokens={TOKENS},experts={EXPERTS},top_k={TOP_K}": (
        TOKENS * EXPERTS * 2 + 4 * CHOICES,
        12 * CHOICES,
    ),
    f"moe_permute:tokens={TOKENS},experts={EXPERTS},top_k={TOP_K},hidden={C}": (
        TOKENS * ROW + 4 * CHOICES,
        CHOICES * ROW,
    ),
    f"moe_permute:tokens={TOKENS},experts={EXPERTS},top_k={TOP_K},hidden={C},backward=true": (
        CHOICES * ROW + 4 * CHOICES,
        TOKENS * ROW,
    ),
    f"moe_unpermute:tokens={TOKENS},experts={EXPERTS},top_k={TOP_K},hidden={C}": (
        CHOICES * ROW + 4 * CHOICES,
        TOKENS * ROW,
    ),
    f"moe_unpermute:tokens={TOKENS},experts={EXPERTS},top_k={TOP_K},hidden={C},backward=true": (
        TOKENS * ROW + 4 * CHOICES,
        CHOICES * ROW,
    ),
    "gemm:m=128,n=128,k=64": (2 * 128 * 64 * 2, 128 * 128 * 2),
    "gemm:m=128,n=128,k=64,with_c=true": (2 * 128 * 64 * 2 + 128 * 128 * 2, 128 * 128 * 2),
    "gemm:m=128,n=128,k=64,batch=3": (3 * 2 * 128 * 64 * 2, 3 * 128 * 128 * 2),
    "gemm:n=128,k=64,groups=64x0x32": ((96 + 2 * 128) * 64 * 2, 96 * 128 * 2),
    "attention:batch=2,heads=4,kv_heads=2,seq=256,head_dim=64": (
        2 * 128 * 256 * (4 + 2 + 2) + 2 * 2 * 4 * 256 * 512,
        2 * 2 * 4 * 256 * 512 + 2 * 4 * 256 * 128,
    ),
    "kv_cache:tokens=100,kv_heads=4": (100 * 2 * 1024, 100 * 2 * 1024),
    "flash_attention:batch=1,heads=4,kv_heads=2,seq=200,paged=true": ((4 + 2 * 2) * 200 * 256, 4 * 200 * 256),
    "flash_attention:batch=1,heads=4,kv_heads=2,seq=256": ((4 + 2 * 2) * 256 * 256, 4 * 256 * 256),
    "flash_attention:batch=2,heads=2,seq=200,causal=false,stats=true": (2 * 2 * 3 * 200 * 256, 2 * 2 * 200 * (256 + 4)),
    "flash_attention:batch=2,heads=8,kv_heads=2,seq=1000,queries=1,splits=1": (
        2 * 256 * (8 + 2 * 2 * 1000),
        2 * 256 * 8,
    ),
    "flash_attention:batch=2,heads=8,kv_heads=2,seq=1000,queries=1,splits=4": (
        2 * 256 * (8 + 2 * 2 * 1000) + 2 * 8 * 4 * (4 * 128 + 4),
        2 * 256 * 8 + 2 * 8 * 4 * (4 * 128 + 4),
    ),
    "flash_attention:batch=1,heads=2,seq=512,queries=1,head_dim=136,splits=4": (  # 544 bytes: wider than a warp
        272 * (2 + 2 * 2 * 512) + 2 * 4 * (544 + 4),
        272 * 2 + 2 * 4 * (544 + 4),
    ),
    "flash_attention:batch=1,heads=2,seq=128,head_dim=256,backward=true": (
        2 * 2 * 128 * 512 + 4 * 2 * 128 * 512 + 2 * 2 * 128 * 4 + 2 * 2 * 128 * 1024,
        2 * 128 * 4 + 2 * 2 * 128 * 512 + 2 * 128 * 1024 + 2 * 128 * 512,
    ),
}


Q, S = 2 * 300 * 256, 2 * 300 * 4
"""Bytes of the queries and of the numbers per query of two heads of 300 tokens."""
ROLES = {
    "flash_attention:batch=1,heads=2,kv_heads=1,seq=300,stats=true": (2 * Q, Q + S),
    "flash_attention:batch=1,heads=2,seq=300,causal=false": (3 * Q, Q),
    "flash_attention:batch=1,heads=2,seq=300,backward=true": (6 * Q + 2 * S + 2 * 2 * Q, S + 3 * Q + 2 * Q),
    "flash_attention:batch=1,heads=2,kv_heads=1,seq=300,causal=false,backward=true": (
        2 * Q + (2 * Q + Q) + 2 * S + 2 * 2 * Q + 2 * Q,
        S + 3 * Q + 2 * Q + Q,
    ),
}
"""FlashAttention 3 and 4. Sums of the gradients of queries take 4 bytes; they are read when they are added, and again
to be converted. Gradients of keys and values of two heads that share them are summed."""


def simulated(text, preset=PRESET):
    machine = load_preset(preset)
    kernels = make_kernels(text, gpu_facts(machine.machine))
    return figures_of(kernel_run(machine, kernels, L2State.EMPTY, 0.0).execute(), machine, kernels)


@pytest.mark.slow
@pytest.mark.parametrize("text", CASES)
def test_traffic_in_closed_form(text):
    found = simulated(text)
    assert (found.dram_read_bytes, found.dram_write_bytes) == CASES[text]


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["h100_sxm", "b200"])
@pytest.mark.parametrize("text", ROLES)
def test_traffic_of_kernels_with_roles_in_closed_form(text, preset):
    found = simulated(text, preset)
    assert (found.dram_read_bytes, found.dram_write_bytes) == ROLES[text]


@pytest.mark.parametrize("text", CASES)
def test_kernels_say_what_they_move(text):
    """Without indices, padding to sectors, and the statistics that attention keeps."""
    moved = [kernel.moved_bytes for kernel in make_kernels(text, gpu_facts(load_preset(PRESET).machine))]
    assert tuple(map(sum, zip(*moved, strict=True))) == pytest.approx(CASES[text], rel=0.02)


def test_a_gather_moves_no_more_rows_than_its_table_has():
    (kernel,) = make_kernels(f"embedding:tokens=100,hidden={C},vocab=50")
    assert kernel.moved_bytes == (50 * ROW, 100 * ROW)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["v100", "mi210", "h200"])
def test_traffic_does_not_depend_on_the_machine(preset):
    for text in (f"rmsnorm:{SHAPE}", f"swiglu:{SHAPE}", f"adam:parameters={PARAMETERS}"):
        found = simulated(text, preset)
        assert (found.dram_read_bytes, found.dram_write_bytes) == CASES[text]


@pytest.mark.slow
def test_quantisation_on_a_machine_that_has_fp8():
    for scaling, expected in {
        "row": (E, E // 2 + SCALARS),
        "static": (E, E // 2),
        "tensor": (2 * E, E // 2),
    }.items():
        found = simulated(f"quantize:{SHAPE},scaling={scaling}", "h200")
        assert (found.dram_read_bytes, found.dram_write_bytes) == expected


@pytest.mark.slow
def test_an_embedding_reads_each_distinct_row_once():
    distinct = len(set((mixed(np.arange(100, dtype=np.uint64)) % np.uint64(50)).tolist()))
    found = simulated(f"embedding:tokens=100,hidden={C},vocab=50")
    assert 30 < distinct < 50
    assert found.dram_read_bytes == distinct * ROW + 416  # the 400 bytes of indices touch 13 sectors
    assert found.dram_write_bytes == 100 * ROW
    back = simulated(f"embedding:tokens=100,hidden={C},vocab=50,backward=true")
    assert back.dram_read_bytes == 100 * ROW + 416 + distinct * 2 * ROW
    assert back.dram_write_bytes == distinct * 2 * ROW
