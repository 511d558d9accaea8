"""Which kernel or exchange each operator of a profile is, and which exchange reduces which GEMM."""

import pytest

from tests.support.profiles import BF16, kernel, nccl, operator, write_profile
from tracer.kernels import make_kernels
from tracer.models.schedule import Exchange, OperatorClass
from tracer.profile.kineto import read_profile
from tracer.profile.works import reduced_gemms, work_of

MATRIX, ATTENTION, NORM = OperatorClass.MATRIX, OperatorClass.ATTENTION, OperatorClass.NORM
BTHD = [2, 512, 8, 64]
FLASH = [BTHD, [2, 512, 2, 64], [2, 512, 2, 64], [], [], [], [], [], []]
KNOWN = {
    "mm": (operator(1, "aten::mm", [[64, 32], [32, 16]]), MATRIX, "gemm:m=64,n=16,k=32,dtype=bf16"),
    "addmm": (operator(1, "aten::addmm", [[16], [64, 32], [32, 16], [], []]), MATRIX, "gemm:m=64,n=16,k=32,dtype=bf16"),
    "bmm": (operator(1, "aten::bmm", [[5, 64, 32], [5, 32, 16]]), MATRIX, "gemm:m=64,n=16,k=32,batch=5,dtype=bf16"),
    "one of a batch": (operator(1, "aten::bmm", [[1, 64, 32], [1, 32, 16]]), MATRIX, "gemm:m=64,n=16,k=32,dtype=bf16"),
    "rows that are not aligned": (operator(1, "aten::mm", [[64, 33], [33, 16]]), MATRIX,
                                  "gemm:m=64,n=16,k=33,pad=dense,dtype=bf16"),
    "fp8": (operator(1, "aten::_scaled_mm", [[64, 32], [32, 16], [], []], 2 * ["c10::Float8_e4m3fn"] + 2 * [""]),
            MATRIX, "gemm:m=64,n=16,k=32,dtype=fp8"),
    "fp8 to bf16": (
        operator(1, "aten::_scaled_mm", [[64, 32], [32, 16], *[[]] * 6], 2 * ["c10::Float8_e4m3fn"] + 6 * [""],
                 values=[*[""] * 6, "15", "True"]), MATRIX, "gemm:m=64,n=16,k=32,out_dtype=bf16,dtype=fp8"),
    "fp8 in vLLM": (
        operator(1, "_C::cutlass_scaled_mm", [[64, 16], [64, 32], [32, 16], [], [], []],
                 ["c10::Half", *2 * ["c10::Float8_e4m3fn"], "float", "float", ""]), MATRIX,
        "gemm:m=64,n=16,k=32,out_dtype=fp16,dtype=fp8"),
    "fp8 in SGLang": (
        operator(1, "sgl_kernel::fp8_scaled_mm", [[64, 32], [32, 16], *[[]] * 4], 2 * ["c10::Float8_e4m3fn"] + 4 * [""],
                 values=[*[""] * 4, "15", ""]), MATRIX, "gemm:m=64,n=16,k=32,out_dtype=bf16,dtype=fp8"),
    "int8 with whole sums": (operator(1, "aten::_int_mm", [[64, 32], [32, 16]], 2 * ["signed char"]), MATRIX,
                             "gemm:m=64,n=16,k=32,out_dtype=fp32,dtype=int8"),
    "fp32": (operator(1, "aten::mm", [[64, 32], [32, 16]], 2 * ["float"]), MATRIX, "gemm:m=64,n=16,k=32,dtype=fp32"),
    "flash": (operator(1, "aten::_flash_attention_forward", FLASH, values=[*[""] * 8, "True"]), ATTENTION,
              "flash_attention:batch=2,heads=8,kv_heads=2,seq=512,head_dim=64,causal=true,library=torch,dtype=bf16"),
    "flash of fewer queries": (
        operator(1, "aten::_flash_attention_forward", [[2, 64, 8, 64], *FLASH[1:]], values=[*[""] * 8, "False"]),
        ATTENTION,
        "flash_attention:batch=2,heads=8,kv_heads=2,seq=512,queries=64,head_dim=64,causal=false,library=torch,dtype=bf16"),
    "flash back": (
        operator(1, "aten::_flash_attention_backward", [BTHD, *FLASH[:3], BTHD, *[[]] * 7],
                 values=[*[""] * 11, "False"]), ATTENTION,
        "flash_attention:batch=2,heads=8,kv_heads=2,seq=512,head_dim=64,causal=false,backward=true,version=2,dtype=bf16"),
    "layer norm": (operator(1, "aten::native_layer_norm", [[2, 8, 256], [], [256], [256], []]), NORM,
                   "layernorm:rows=16,cols=256,stats=true,library=torch,dtype=bf16"),
    "rms norm": (operator(1, "_C::rms_norm", [[8, 256], [8, 256], [256], []]), NORM,
                 "rmsnorm:rows=8,cols=256,dtype=bf16"),
    "rms norm of a sum": (operator(1, "_C::fused_add_rms_norm", [[8, 256], [8, 256], [256], []]), NORM,
                          "rmsnorm:rows=8,cols=256,residual=true,dtype=bf16"),
    "softmax": (operator(1, "aten::_softmax", [[2, 4, 512], [], []], values=["", "-1", "False"]), ATTENTION,
                "softmax:rows=8,cols=512,library=torch,dtype=bf16"),
    "wide softmax": (operator(1, "aten::_softmax", [[2, 4096], [], []], values=["", "1", "False"]), ATTENTION,
                     "softmax:rows=2,cols=4096,library=torch,dtype=bf16"),
    "softmax back": (operator(1, "aten::_softmax_backward_data", [[2, 512], [2, 512], [], []],
                              values=["", "", "-1", "15"]), ATTENTION,
                     "softmax:rows=2,cols=512,backward=true,library=torch,dtype=bf16"),
    "gelu": (operator(1, "aten::gelu", [[2, 8, 512], []]), NORM, "gelu:rows=1,cols=8192,exact=true,dtype=bf16"),
    "gelu back": (operator(1, "aten::gelu_backward", [[8, 512], [8, 512], []]), NORM,
                  "gelu:rows=1,cols=4096,backward=true,dtype=bf16"),
    "gate": (operator(1, "_C::silu_and_mul", [[8, 512], [8, 1024]]), NORM, "swiglu:rows=8,cols=512,dtype=bf16"),
    "rotary": (operator(1, "_C::rotary_embedding", [[8], [8, 512], [8, 128], [], [99, 64], []],
                        ["long int", BF16, BF16, "Scalar", BF16, "Scalar"], values=["", "", "", "64", "", "True"]),
               NORM, "rotary:tokens=8,heads=8,kv_heads=2,head_dim=64,dtype=bf16"),
    "cache": (operator(1, "_C_cache_ops::reshape_and_cache_flash", [[8, 2, 64], [8, 2, 64], [9, 16, 2, 64]]), NORM,
              "kv_cache:tokens=8,kv_heads=2,head_dim=64,dtype=bf16"),
    "sum": (operator(1, "aten::add", [[4, 8, 64], [4, 8, 64], []]), NORM, "residual:rows=1,cols=2048,dtype=bf16"),
    "sum with a row": (operator(1, "aten::add", [[4, 512], [512], []]), NORM, "copy:rows=1,cols=2048,dtype=bf16"),
    "sum of one batch": (
        operator(1, "aten::add", [[1, 8, 64], [1, 8, 64], []], strides=[[512, 64, 1], [9999, 64, 1], []]), NORM,
        "residual:rows=1,cols=512,dtype=bf16"),
    "sum of a column and a row": (operator(1, "aten::add", [[4096, 1], [1, 4096], []]), NORM,
                                  "copy:rows=2048,cols=8192,share=2048,dtype=bf16"),
    "product of two parts": (operator(1, "aten::mul", [[1024, 1, 128], [1, 16, 128]]), NORM,
                             "copy:rows=256,cols=8192,share=16,dtype=bf16"),
    "copy": (operator(1, "aten::copy_", [[4, 512], [4, 512], []]), NORM, "copy:rows=1,cols=2048,dtype=bf16"),
    "copy into another type": (operator(1, "aten::copy_", [[64, 32], [64, 32], []], ["float", BF16, ""]), NORM,
                               "copy:rows=1,cols=2048,out=fp32,dtype=bf16"),
    "scale": (operator(1, "aten::mul", [[64, 32], []]), NORM, "copy:rows=1,cols=2048,dtype=bf16"),
}  # fmt: skip
UNKNOWN = {
    "another operator": operator(1, "my::operator", [[64, 32]]),
    "no shapes": operator(1, "aten::mm", []),
    "shapes that do not fit": operator(1, "aten::mm", [[64, 32], [31, 16]]),
    "an empty matrix": operator(1, "aten::mm", [[0, 32], [32, 16]]),
    "complex numbers": operator(1, "aten::mm", [[64, 32], [32, 16]], 2 * ["c10::complex<float>"]),
    "flash of sequences in a row": operator(1, "aten::_flash_attention_forward", [[99, 8, 64]] * 3),
    "flash that may be causal": operator(1, "aten::_flash_attention_forward", FLASH),
    "a norm of two dimensions": operator(1, "aten::native_layer_norm", [[2, 8, 256], [], [8, 256]]),
    "softmax of another dimension": operator(1, "aten::_softmax", [[2, 512], [], []], values=["", "0", ""]),
    "a copy into another order": operator(1, "aten::copy_", [[64, 32]] * 2, strides=[[32, 1], [1, 64]]),
    "a copy of another type": operator(1, "aten::copy_", [[64, 32]] * 2, [BF16, "long int"]),
    "a sum of two types": operator(1, "aten::add", [[64, 32]] * 2, ["float", BF16]),
    "rotary of heads without a size": operator(
        1, "_C::rotary_embedding", [[8], [8, 512], [8, 128], []], values=["", "", "", "00"]
    ),
    "a sum of shapes that do not fit": operator(1, "aten::add", [[4, 512], [511]]),
    "a sum without elements": operator(1, "aten::add", [[0, 512], [1, 512]]),
    "nothing": operator(1, "aten::add", [[], []]),
}


def _call(tmp_path, event, name="a_kernel"):
    shapes = operator(9, "x", [[1]])
    profile = read_profile(write_profile(tmp_path / "p.json", [shapes, event, kernel(1, 0.0, 1.0, name)], gpus=4))
    return profile.calls[0], profile


@pytest.mark.parametrize("case", KNOWN)
def test_an_operator_is_the_kernel_of_its_shapes(tmp_path, case):
    event, operator_class, text = KNOWN[case]
    assert work_of(*_call(tmp_path, event)) == (operator_class, text)
    assert make_kernels(text)


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_its_arguments_do_not_say_is_unknown(tmp_path, case):
    assert work_of(*_call(tmp_path, UNKNOWN[case])) is None


def test_a_kernel_with_reduced_precision_multiplies_tf32(tmp_path):
    event = operator(1, "aten::mm", [[64, 32], [32, 16]], 2 * ["float"])
    _, text = work_of(*_call(tmp_path, event, "cutlass_80_tensorop_s1688gemm_128x128_tn"))
    assert text == "gemm:m=64,n=16,k=32,dtype=tf32"


EXCHANGES = {
    "all-reduce": (nccl(1, 0.0, 1.0, "allreduce", 1000, 1000, 8), Exchange("all_reduce", 2000, 8)),
    "all-gather": (nccl(1, 0.0, 1.0, "_allgather_base", 1000, 8000, 8), Exchange("all_gather", 16000, 8)),
    "reduce-scatter": (nccl(1, 0.0, 1.0, "_reduce_scatter_base", 8000, 1000, 8), Exchange("reduce_scatter", 16000, 8)),
    "all-to-all": (nccl(1, 0.0, 1.0, "all_to_allv", 640, 600, 4), Exchange("all_to_all", 1280, 4)),
    "fp32": (nccl(1, 0.0, 1.0, "allreduce", 1000, 1000, 8, "Float"), Exchange("all_reduce", 4000, 8)),
    "one GPU": (nccl(1, 0.0, 1.0, "allreduce", 1000, 1000, 1), None),
    "broadcast": (nccl(1, 0.0, 1.0, "broadcast", 1000, 1000, 8), None),
}


@pytest.mark.parametrize("case", EXCHANGES)
def test_a_kernel_of_a_library_is_its_exchange(tmp_path, case):
    event, exchange = EXCHANGES[case]
    events = [operator(9, "x", [[1]]), operator(1, "record_param_comms", [[1000]]), event]
    profile = read_profile(write_profile(tmp_path / "p.json", events))
    found = work_of(profile.calls[0], profile)
    assert found == (exchange and (OperatorClass.COMMUNICATION, exchange))


def test_an_all_reduce_in_the_switch_has_all_gpus_of_the_run(tmp_path):
    event = operator(1, "symm_mem::multimem_all_reduce_", [[4096], [], []])
    call, profile = _call(tmp_path, event)
    assert work_of(call, profile) == (OperatorClass.COMMUNICATION, Exchange("all_reduce", 8192, 4))
    assert work_of(call, profile._replace(gpus=1)) is None
    assert work_of(*_call(tmp_path, operator(1, "symm_mem::multimem_all_reduce_", []))) is None


def _pairs(tmp_path, *events):
    operators = [operator(n, "aten::mm", [[64, 32], [32, k]]) for n, k in ((1, 16), (2, 16), (3, 128))]
    operators.append(operator(4, "aten::mm", [[64, 32], [32, 16]], ["float", BF16]))
    profile = read_profile(write_profile(tmp_path / "p.json", [*operators, *events]))
    works = [found and found[1] for found in (work_of(call, profile) for call in profile.calls)]
    return list(reduced_gemms(works, profile.calls))


def test_an_exchange_reduces_the_last_gemm_if_that_has_ended_and_has_its_size(tmp_path):
    first, second, wide = kernel(1, 0.0, 10.0), kernel(2, 20.0, 10.0), kernel(3, 20.0, 10.0)
    between = kernel(7, 31.0, 1.0)

    def reduce(begin_us, name="allreduce"):
        return nccl(8, begin_us, 5.0, name, 1024, 1024, 4)

    assert _pairs(tmp_path, first, second, between, reduce(40.0)) == [(1, 3)]
    assert _pairs(tmp_path, first, reduce(12.0, "_reduce_scatter_base"), second, reduce(40.0)) == [(0, 1), (2, 3)]
    assert _pairs(tmp_path, first, wide, reduce(40.0)) == []  # another size
    assert _pairs(tmp_path, first, kernel(2, 11.0, 10.0), reduce(12.0)) == [(0, 2)]  # the second one runs beside it
    assert _pairs(tmp_path, first, kernel(4, 11.0, 2.0), reduce(14.0)) == []  # of a GEMM that is no work
    assert _pairs(tmp_path, first, reduce(9.0)) == []  # it runs beside the GEMM
    assert _pairs(tmp_path, first, reduce(12.0), reduce(40.0)) == [(0, 1)]  # once
    assert _pairs(tmp_path, first, reduce(12.0, "_allgather_base")) == []
