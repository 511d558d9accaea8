"""Kernel sources by name: what texts mean, one rule of padding, mistakes, and events that must not change."""

from hashlib import sha256

import numpy as np
import pytest

from tracer.data_type import DataType
from tracer.gemm.source import Copy, Epilogue, GemmKernel, GemmProblem, GemmSource, TileOrder
from tracer.kernels import KERNELS, describe_kernels, fields_of, kernel_text, make_gemm, make_kernel
from tracer.operators.layernorm import LayerNorm
from tracer.streams import BufferStream, Flow, PointerChase
from tracer.workloads import LAYERS, MODELS, PAPER_CASES, aligned_problem, sublayer
from traces.errors import UserError
from traces.schema import Cache


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("layernorm:rows=4,cols=64", LayerNorm(rows=4, cols=64).kernel),
        (
            "layernorm: rows=4, cols=64, dtype=bf16, stats=true",
            LayerNorm(rows=4, cols=64, dtype=DataType.BF16, stats=True).kernel,
        ),
        ("chase:buffer_bytes=4096,loads=9,cache=bypass_l1", PointerChase(4096, 9, cache=Cache.BYPASS_L1)),
        ("stream:flow=copy,buffer_bytes=4096", BufferStream(Flow.COPY, 4096)),
    ],
)
def test_a_text_names_a_source_and_its_fields(text, source):
    assert make_kernel(text) == source


def test_changes_are_added_and_replace():
    expected = LayerNorm(rows=8, cols=128, stats=True).kernel
    assert make_kernel("layernorm:rows=4,cols=128", rows=8, stats=True) == expected
    assert make_kernel("layernorm", rows="8", cols=128, stats="true") == expected
    assert make_gemm("gemm:m=8,n=8,k=8", order=TileOrder.COLUMN, tile=(64, 64, 32), warps=(2, 2)).source.kernel == (
        GemmKernel(64, 64, 32, 2, 2, order=TileOrder.COLUMN)
    )


def test_short_names_of_a_gemm():
    short = "gemm:shape=100x60x40,dtype=fp32,out_dtype=fp16,tile=64x32x16,warps=2x1,copy=async,epilogue=staged,lanes=64"
    long = "gemm:m=100,n=60,k=40,a_bytes=4,b_bytes=4,c_bytes=2,tile_m=64,tile_n=32,tile_k=16,warps_m=2,warps_n=1"
    source, gpus, *_ = make_gemm(short)
    assert gpus == 0
    assert source.fingerprint() == make_kernel(f"{long},copy=async,epilogue=staged,lanes=64").fingerprint()
    assert source.kernel == GemmKernel(64, 32, 16, 2, 1, copy=Copy.ASYNC, epilogue=Epilogue.STAGED, lanes=64)
    assert make_gemm("gemm:shape=8x8x8,dtype=fp32")[0].problem.c_bytes == 4


@pytest.mark.parametrize("case", PAPER_CASES)
def test_a_workload_and_its_extents_are_the_same_gemm(case):
    named, gpus, *_ = make_gemm("gemm:workload={}/{}/tp{}".format(*case))
    problem = sublayer(*case)
    assert gpus == case[2] and named.problem == problem
    plain = make_kernel(f"gemm:m={problem.m},n={problem.n},k={problem.k}")
    assert plain.fingerprint() == named.fingerprint() == GemmSource(problem).fingerprint()


def test_rows_of_a_begin_at_16_bytes_and_those_of_b_and_c_at_sectors():
    def leading(text):
        problem = make_gemm(text).source.problem
        return problem.lda, problem.ldb, problem.ldc

    assert leading("gemm:m=100,n=24,k=20") == (24, 32, 32)
    assert leading("gemm:m=100,n=24,k=20,pad=dense") == (20, 24, 24)
    assert leading("gemm:m=100,n=24,k=20,ldb=25") == (24, 25, 32)
    assert leading("gemm:m=100,n=24,k=20,dtype=fp32") == (20, 24, 24)
    assert leading("gemm:m=100,n=24,k=20,a_layout=column,b_layout=column,c_layout=column") == (104, 32, 112)
    aligned = GemmProblem(64, 32, 48, lda=48, ldb=32, ldc=32)
    assert aligned_problem(64, 32, 48) == aligned == make_gemm("gemm:m=64,n=32,k=48,pad=dense").source.problem


def test_every_sublayer_has_whole_sectors_in_its_rows():
    """So the rule leaves B and C of the models dense."""
    for model in MODELS.values():
        for layer in LAYERS:
            problem = sublayer(model.name, layer, model.tp[0])
            assert problem.ldb == problem.ldc == model.hidden and 0 <= problem.lda - problem.k < 8


def test_the_description_names_every_field():
    paragraphs = describe_kernels().split("\n\n")
    assert [text.partition("\n")[0] for text in paragraphs] == list(KERNELS)
    for name, text in zip(KERNELS, paragraphs, strict=True):
        assert [line.strip().partition("=")[0] for line in text.splitlines()[1:]] == list(fields_of(name))
    assert "  order=row|column|grouped  [row]" in paragraphs[0] and "  m=<number>  (needed)" in paragraphs[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["found ''", "t3sim trace make --help"]),
        ("layernrm:rows=1", ["'layernrm'", "layernorm"]),
        ("gemm", ["gemm: m: missing", "m, n, k or shape or workload"]),
        ("gemm:m=8,n=8", ["gemm: k: missing"]),
        ("layernorm:cols=8", ["layernorm: rows: missing", "rows, cols"]),
        ("gemm:m=8,n=8,k=8,tile_q=3", ["tile_q: unknown", "did you mean tile_"]),
        ("gemm:m=8,n=8,k=8,zzzzz=3", ["zzzzz: unknown", "t3sim trace make --help"]),
        ("residual:rows=8,cols=8,colour=3", ["colour: unknown", "allowed are rows, cols, dtype"]),
        ("gemm:m", ["found 'm'", "field=value"]),
        ("gemm:m=8,,n=8", ["found ''", "field=value"]),
        ("gemm:m=", ["found 'm='", "field=value"]),
        ("gemm:m=8,m=9", ["m: found twice"]),
        ("gemm:m=8.5,n=8,k=8", ["m: found '8.5'", "a whole number"]),
        ("gemm:m=-8,n=8,k=8", ["m = -8"]),
        ("gemm:n=8,k=8,m=" + "9" * 5000, ["m: found '999", "at most 18 digits"]),
        ("gemm:shape=8x8", ["shape: found '8x8'", "<number>x<number>x<number>"]),
        ("gemm:shape=8x8xb", ["shape: found 'b'", "a whole number"]),
        ("gemm:shape=8x8x8,n=8", ["shape: found", "gives n"]),
        ("gemm:shape=8x8x8,workload=t-nlg/fc2/tp8", ["workload: found", "gives m"]),
        ("gemm:shape=8x8x8,tile=64x64x32,tile_k=16", ["tile: found", "gives tile_k"]),
        ("gemm:workload=t-nlg", ["model/layer/tpN"]),
        ("gemm:shape=8x8x8,order=spiral", ["order: found 'spiral'", "row|column|grouped"]),
        ("gemm:shape=8x8x8,with_c=yes", ["with_c: found 'yes'", "true|false"]),
        ("gemm:shape=8x8x8,dtype=fp7", ["dtype: found 'fp7'", "fp8|int8|fp16"]),
        ("gemm:shape=8x8x8,mac_cost=-1", ["mac_cost: found '-1'", "a number such as 0.5 or 1e2, not negative"]),
        ("gemm:shape=8x8x8,lda=4", ["leading dimension 4", ">= 8"]),
        ("stream:flow=read,buffer_bytes=100", ["buffer_bytes = 100"]),
    ],
)
def test_mistakes(text, words):
    with pytest.raises(UserError) as caught:
        make_kernel(text)
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("1e1", 10), ("5E-1", 0.5), ("1e-05", 1e-5)])
def test_numbers_with_a_point_or_an_exponent(text, value):
    """Python writes small numbers with an exponent, so the text of a kernel has it too."""
    source = make_kernel(f"gemm:shape=64x64x32,mac_cost={text}")
    assert source.kernel.mac_cost == value
    assert make_kernel(kernel_text(source.info.attributes)).kernel == source.kernel


@pytest.mark.parametrize("value", [True, 1.5, None, [8]])
def test_values_from_python_must_have_the_type_of_the_field(value):
    with pytest.raises(UserError, match="gemm: m: found"):
        make_kernel("gemm:n=8,k=8", m=value)


def test_a_collective_needs_a_gemm():
    with pytest.raises(UserError, match="found layernorm, allowed is gemm"):
        make_gemm("layernorm:rows=8,cols=8")
    with pytest.raises(UserError, match="found attention, allowed is gemm"):
        make_gemm("attention:batch=2,heads=1,seq=64,head_dim=64")
    with pytest.raises(UserError, match="kernel gemm: batch: found 2, allowed is one GEMM"):
        make_gemm("gemm:m=8,n=8,k=8,batch=2")
    with pytest.raises(UserError, match=r"kernel gemm: groups: found \(8, 8\), allowed is one GEMM"):
        make_gemm("gemm:n=8,k=8,groups=8x8")


GOLDEN = [
    (GemmSource(GemmProblem(300, 200, 77, with_c=True), GemmKernel(64, 64, 32, 2, 2)), "d44788f43354 c4d6758a76b834cc"),
    (
        GemmSource(GemmProblem(100, 90, 77), GemmKernel(64, 64, 32, 2, 2, 3, copy=Copy.ASYNC, lanes=64, persistent=3)),
        "5608455d0972 ebed572fcecc95c3",
    ),
    (PointerChase(4096, 100), "f6dcf0d875eb 86af898918355e94"),
    (BufferStream(Flow.READ, 1 << 18, 16, 4, 3, passes=2), "6506eda1f279 077ec57a3da95f89"),
    (BufferStream(Flow.COPY, 1 << 18, 16, 4, 3, passes=2, lanes=64), "2ed09328f84d 70bba0ee472853e2"),
]


@pytest.mark.parametrize(("source", "golden"), GOLDEN, ids=[source.info.name for source, _ in GOLDEN])
def test_events_are_those_of_the_version_that_fingerprints_name(source, golden):
    digest = sha256()
    for workgroup in source.workgroups():
        digest.update(workgroup.events.tobytes() + np.ascontiguousarray(workgroup.first_event).tobytes())
    assert f"{source.fingerprint()[:12]} {digest.hexdigest()[:16]}" == golden
