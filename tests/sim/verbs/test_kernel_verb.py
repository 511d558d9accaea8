"""`t3sim kernel`: figures of one operator, the list of all, and mistakes."""

import json

import pytest
from click.testing import CliRunner

from sim.verbs.kernel import kernel
from tracer.kernels import KERNELS, fields_of
from traces.errors import UserError

ROWS = "rmsnorm:rows=64,cols=1024"


@pytest.fixture(autouse=True)
def own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))


def found(*arguments):
    result = CliRunner().invoke(kernel, [*arguments, "--json"], catch_exceptions=False)
    return json.loads(result.stdout)


@pytest.mark.slow
def test_figures_of_an_operator_and_the_store():
    first, again = found(ROWS), found(ROWS)
    assert first["dram_read_bytes"] == 64 * 2048 + 2048 and first["dram_write_bytes"] == 64 * 2048
    assert 0 < first["launch_ns"] < first["time_ns"] and first["kernels"] == 1 and not first["extrapolation"]
    assert first["bound_by"] in ("launch", "latency") and first["flops"] > 0
    assert again["from_store"] and again["time_ns"] == first["time_ns"]


@pytest.mark.slow
def test_several_kernels_have_a_gap_each():
    one, three = found("gelu:rows=8,cols=1024,bias=true"), found("gelu:rows=8,cols=1024,bias=true,fused=0")
    assert (one["kernels"], three["kernels"]) == (1, 2)
    assert three["launch_ns"] - one["launch_ns"] == 1000  # dispatch.gap_ps of the preset


@pytest.mark.slow
def test_a_warm_l2_saves_the_reads_and_a_dirty_one_costs_writes():
    empty, warm, dirty = (found(ROWS, "--l2", state) for state in ("empty", "warm", "dirty"))
    assert warm["dram_read_bytes"] == 0 and warm["time_ns"] < empty["time_ns"]
    assert dirty["dram_read_bytes"] == empty["dram_read_bytes"] and dirty["dram_write_bytes"] > 0


@pytest.mark.slow
def test_a_gemm_has_two_operations_per_multiply_accumulate():
    assert found("gemm:m=128,n=128,k=64,dtype=bf16")["flops"] == 2 * 128 * 128 * 64


def test_the_list_has_every_field():
    listed = found("--list")
    assert {name: list(fields) for name, fields in listed.items()} == {name: list(fields_of(name)) for name in KERNELS}
    assert listed["rmsnorm"]["rows"] is None and listed["rmsnorm"]["dtype"] == "fp16"
    assert "rmsnorm" in CliRunner().invoke(kernel, ["--list"]).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["--list"]),
        (["rmsnrm:rows=3"], ["'rmsnrm'", "rmsnorm"]),
        (["residual:rows=3,cols=3,colour=1"], ["colour", "rows, cols"]),
        (["rmsnorm:rows=0,cols=8"], ["rows = 0", "1 to "]),
        (["rmsnorm:rows=8,cols=8,dtype=fp8"], ["dtype", "fp8", "the machine lacks", "bf16"]),
        (["rmsnorm:rows=8,cols=8,dtype=bf16", "--preset", "v100"], ["bf16", "the machine lacks"]),
        (["quantize:rows=8,cols=8"], ["fp8", "the machine lacks"]),
        (["rmsnorm:rows=8,cols=8,dropout=true"], ["dropout", "residual=true"]),
        (["flash_attention:batch=1,heads=4,seq=64,head_dim=100"], ["head_dim = 100", "multiple of 8 up to 256"]),
        (["flash_attention:batch=1,heads=4,kv_heads=3,seq=64"], ["kv_heads = 3", "divide"]),
        (["flash_attention:batch=1,heads=4,seq=64,dtype=fp32"], ["dtype = fp32", "bf16"]),
        (["flash_attention:batch=1,heads=4,seq=64,splits=2"], ["splits = 2", "queries=1"]),
        (["flash_attention:batch=1,heads=4,seq=64,splits=1"], ["splits = 1", "queries=1"]),
        (["rotary:tokens=8,heads=1,kv_heads=1,head_dim=3"], ["head_dim = 3", "even"]),
        (["moe_permute:tokens=8,experts=2,top_k=3,hidden=8"], ["top_k = 3", "<= 2"]),
        (["adam:parameters=8,dtype=int8"], ["dtype = int8", "fp32"]),
        (["adam:parameters=8,dtype=fp16,fused=0"], ["fused=false", "fp32"]),
        (["adam:parameters=8,out=fp16,fused=0"], ["adam out = fp16", "fused=false", "fp32"]),
        (["adam:parameters=8,dtype=fp16,out=bf16,scaled=1"], ["adam out = bf16", "scaled=true", "fp16"]),
        (["lamb:parameters=8,out=int8"], ["lamb out = int8", "weights", "fp32, fp16, bf16"]),
        (["swiglu:rows=8,cols=12,vector=5"], ["vector = 5", "divide"]),
        (["softmax:rows=8,cols=8,warps=33"], ["warps = 33", "1 to 32"]),
        (["residual:rows=8,cols=8,lanes=16"], ["lanes = 16"]),
        (["residual:rows=8,cols=8,address=3"], ["address = 3", "multiple of 16"]),
        (["residual:rows=2147483648,cols=2147483648"], ["62-bit address space"]),
    ],
)
def test_mistakes(arguments, words):
    with pytest.raises(UserError) as caught:
        CliRunner().invoke(kernel, arguments, catch_exceptions=False)
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message
