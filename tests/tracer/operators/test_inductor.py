"""Kernels of torch.compile: their loops beside those that ran on an H200, their instructions beside machine code."""

import numpy as np
import pytest

from tests.support.passes import passes
from tests.support.paths import ROOT
from tests.support.request_count import count_requests
from tracer.kernels import make_kernel, make_kernels
from tracer.operators.row_kernel import SUM, RowKernel
from tracer.operators.tensor import Tensor
from traces.errors import UserError
from traces.schema import Kind, Pipe, Space
from validation.against.gpu_measurements import library_of
from validation.csv_file import read_csv

RAN = [
    row
    for name in ("h200", "h100_sxm")
    for row in read_csv(ROOT / "validation" / "references" / f"gpu_{name}_kernels.csv")
    if row["kernel"].startswith("triton") and not row["case"].startswith("moe")
]


def _kernel(text):
    return make_kernel(f"{text},library=inductor")


def _warp(kernel, warp=0):
    """Events of a warp of the first workgroup."""
    group = next(kernel.workgroups())
    return group.events[group.first_event[warp] : group.first_event[warp + 1]]


def _sectors(kernel):
    """(read, written) by all events, in sectors."""
    lines, sectors = np.zeros(5, np.int64), np.zeros(5, np.int64)
    for group in kernel.workgroups():
        count_requests(group.events, group.addresses, lines, sectors)
    return int(sectors[Kind.LOAD]), int(sectors[Kind.STORE])


def _instructions(events):
    return int(events["count"].sum())


@pytest.mark.parametrize("row", RAN, ids=[f"{row['gpu'][7:11]}-{row['case']}" for row in RAN])
def test_grid_and_threads_are_those_that_ran(row):
    info = make_kernel(row["case"] + library_of(row["case"])).info
    assert (str(info.grid), str(info.block)) == (row["grid"], row["block"])


def test_all_compiled_kernels_that_ran_are_there():
    assert {row["kernel"].split("_")[1] for row in RAN} == {"poi", "red"} and len(RAN) == 18


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("gelu:rows=4096,cols=10240,bias=true", 299),
        ("gelu:rows=4096,cols=10240,backward=true", 332),
        ("swiglu:rows=4096,cols=14336", 166),
        ("swiglu:rows=4096,cols=14336,backward=true", 225),
        ("rotary:tokens=4096,heads=32,kv_heads=8,head_dim=128", 224),
        ("residual:rows=4096,cols=4096,dropout=true", 608),
        ("rmsnorm:rows=64,cols=4096,residual=true", 200),
        ("rmsnorm:rows=64,cols=8192,residual=true", 326),
        ("rmsnorm:rows=64,cols=16384,residual=true", 584),
        ("rmsnorm:rows=64,cols=4096,residual=true,backward=true", 271),
        ("rmsnorm:rows=64,cols=16384,residual=true,backward=true", 831),
        ("layernorm:rows=64,cols=4096,residual=true", 642),
        ("softmax:rows=64,cols=4096", 799),
        ("quantize:rows=64,cols=4096", 147),
    ],
)
def test_instructions_of_a_warp_are_those_of_the_machine_code(text, counted):
    """Counted of Triton's kernel for sm_90 along its path, with eight elements of a lane or blocks of 2048."""
    kernel = make_kernels(f"{text},dtype=bf16,library=inductor")[0]
    assert _instructions(_warp(kernel)) == pytest.approx(counted, rel=0.08)


@pytest.mark.parametrize(
    ("text", "instructions", "transcendental"),
    [
        ("gelu:rows=4096,cols=10240,bias=true", 156, 8),
        ("gelu:rows=4096,cols=10240,backward=true", 160, 8),
        ("swiglu:rows=4096,cols=14336", 116, 8),
        ("swiglu:rows=4096,cols=14336,backward=true", 154, 8),
        ("rotary:tokens=4096,heads=32,kv_heads=8,head_dim=128", 86, 0),
        ("residual:rows=4096,cols=4096", 30, 0),
        ("residual:rows=4096,cols=4096,dropout=true", 346, 0),
        ("dropout:rows=4096,cols=4096,backward=true", 42, 0),
        ("copy:rows=4096,cols=4096,out=bf16,dtype=fp32", 22, 0),
        ("rmsnorm:rows=64,cols=4096,residual=true", 185, 1),
        ("rmsnorm:rows=64,cols=8192,residual=true", 335, 1),
        ("rmsnorm:rows=64,cols=4096,residual=true,backward=true", 173, 0),
        ("rmsnorm:rows=64,cols=8192,residual=true,backward=true", 312, 0),
        ("layernorm:rows=64,cols=4096,residual=true", 16 + 11 + 2 * 99 + 206 + 5 + 80 + 22 + 2 * 42, 2 * 4 + 9 + 5),
        ("softmax:rows=64,cols=4096", 630 + 129 + 234, 34 + 6 + 16),
        ("softmax:rows=64,cols=8192", 914 + 129 + 3 + 4 * 116, 50 + 6 + 4 * 8),
        ("quantize:rows=64,cols=4096", 207, 8),
        ("rmsnorm:rows=64,cols=4096,residual=true,dropout=true", 185 + 2 * 4 * 77, 1),  # 77 as in a dropout
        ("dropout:rows=4096,cols=4096", 346 - 4, 0),  # without the sum
        ("cross_entropy:rows=4096,vocab=4096,backward=true", 116, 8),  # assumed: the output of a softmax
    ],
)
def test_passes_of_a_wavefront_are_those_of_the_machine_code_for_gfx942(text, instructions, transcendental):
    """Vector instructions of Triton's kernel along its path; a lane has four elements."""
    typed = text if "dtype" in text else f"{text},dtype=bf16"
    kernel = make_kernels(f"{typed},library=inductor,lanes=64")[0]
    assert passes(_warp(kernel)) == pytest.approx(instructions + 4 * transcendental, rel=0.1)


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("residual:rows=4096,cols=4096,dtype=bf16", 21),
        ("copy:rows=4096,cols=4096,out=bf16,dtype=fp32", 21),
        ("dropout:rows=4096,cols=4096,backward=true,dtype=bf16", 66),
    ],
)
def test_short_kernels_have_few_instructions_beside_the_setup(text, counted):
    assert abs(_instructions(_warp(_kernel(text))) - counted) <= 10


def test_small_work_has_two_elements_of_a_lane_and_more_warps():
    small, large = (_kernel(f"gelu:rows={rows},cols=2048,dtype=bf16") for rows in (2048, 2049))
    assert (small.info.block, large.info.block) == ((256, 1, 1), (128, 1, 1))
    assert small.info.workgroups == 2048 * 2048 // 512 and large.info.workgroups == 2049 * 2048 // 1024
    assert {int(width) for width in _warp(small)["width_bytes"] if width} == {4}
    assert {int(width) for width in _warp(large)["width_bytes"] if width} == {16}


@pytest.mark.parametrize(("cols", "warps"), [(96, 2), (128, 2), (512, 4), (1000, 4), (1024, 8), (1025, 16), (4096, 16)])
def test_short_rows_are_kept_and_long_ones_read_twice(cols, warps):
    kernel = _kernel(f"softmax:rows=64,cols={cols},dtype=bf16")
    assert kernel.info.workgroups == 64 and kernel.info.warps_per_workgroup == warps
    if cols % 64 == 0:
        assert _sectors(kernel) == (64 * cols // 16 * (1 if cols <= 1024 else 2), 64 * cols // 16)


def test_a_sum_is_stored_with_the_statistics_and_read_for_the_output():
    """A row of two blocks: x and residual, h stored; then h and the weights, y stored. All others read x again."""
    events = _warp(_kernel("rmsnorm:rows=8,cols=4096,residual=true,dtype=bf16"))
    outside = events[(events["space"] == Space.GLOBAL) & np.isin(events["kind"], (Kind.LOAD, Kind.STORE))]
    row_bytes, first = 8 * 4096 * 2, int(outside["base"].min())
    buffers = [(int(base) - first) // (2 << 20) for base in outside["base"]]
    x, y, weight, residual, h = 0, 1, 2, 4, 5
    assert row_bytes < 2 << 20
    kinds = ["L" if kind == Kind.LOAD else "S" for kind in outside["kind"]]
    assert list(zip(kinds, buffers, strict=True)) == [
        *[("L", x)] * 2, *[("L", residual)] * 2, *[("S", h)] * 2,
        *[("L", weight)] * 2, *[("L", h)] * 2, *[("S", y)] * 2,
    ]  # fmt: skip
    stored, read = (outside["base"][4:6], outside["base"][8:10])
    first_of_warp = first + 5 * (2 << 20)
    assert stored.tolist() == read.tolist() == [first_of_warp, first_of_warp + 16 * 32 * 4 * 2], "h, and the same again"
    generic = _warp(make_kernel("rmsnorm:rows=8,cols=65536,residual=true,dtype=bf16"))
    again = [int(base) for base, kind in zip(generic["base"], generic["kind"], strict=True) if kind == Kind.LOAD]
    assert len(again) > len(set(again)), "x is read twice"


def test_the_mask_of_a_dropout_is_not_read_again():
    row = 4096 * 2 // 32
    kernel = _kernel("rmsnorm:rows=8,cols=4096,residual=true,dropout=true,dtype=bf16")
    assert _sectors(kernel) == (8 * 4 * row, 8 * (2 * row + row // 2)), "x, residual, h, weight; h, mask, y"


def test_sums_are_stored_once_and_when_they_are_there():
    b = 2
    x, residual, y, h = (Tensor(number << 30, b) for number in range(1, 5))
    kernel = RowKernel("two", 4, 65536, (x, residual), (y,), passes=2, keep=False, first_outputs=(h,))
    assert _sectors(kernel) == (4 * (2 * 2 + 1) * 65536 * b // 32, 4 * 2 * 65536 * b // 32)
    assert kernel.moved_bytes == (2 * 4 * 65536 * b, 2 * 4 * 65536 * b)
    events = _warp(kernel)
    stores = events[(events["kind"] == Kind.STORE) & (events["base"] >= 4 << 30)]
    assert len(stores) and (stores["wait"] == 1 << SUM).all(), "a store waits for the sum of its elements"


def test_a_kept_row_is_read_once_with_its_sum_stored():
    kernel = _kernel("layernorm:rows=8,cols=1024,residual=true,dropout=true,dtype=bf16")
    read, written = 8 * (2 + 2) * 64, 8 * (2 * 64 + 32)  # x, residual, weight, bias; y, h, and a mask of one byte
    assert _sectors(kernel) == (read, written)


def test_autocast_has_branches_of_another_type():
    """x and y of bf16, residual and h of fp32, weights of fp32; backward the gradients of both."""
    rows, row = 16, 2048 * 2 // 32
    forward = _kernel(f"rmsnorm:rows={rows},cols=2048,residual=true,out=bf16,dtype=fp32")
    assert _sectors(forward) == (rows * (row + 2 * row + 2 * row + 2 * row), rows * 3 * row), "x, residual; h, weight"
    text = f"rmsnorm:rows={rows},cols=2048,residual=true,out=bf16,backward=true,dtype=fp32,library=inductor"
    dx, vectors, *sums = make_kernels(text)
    own = row + 2 * row  # dy and x
    assert _sectors(dx) == (rows * (2 * (own + 2 * row) + 2 * row + 16), rows * 3 * row), "gradients of residual and x"
    assert _sectors(vectors)[0] == rows * (own + 8) and len(sums) == 1, "each of 16 or 8 warps reads the statistic"


def test_a_loss_is_made_from_one_reading_and_its_gradient_from_another():
    sizes = "rows=32,vocab=4096,dtype=bf16,library=inductor"
    (loss,) = make_kernels(f"cross_entropy:{sizes}")
    (gradient,) = make_kernels(f"cross_entropy:{sizes},backward=true")
    row = 4096 * 2 // 32
    assert _sectors(loss) == (32 * (row + 16), 3 * 32) and _sectors(gradient) == (32 * row, 32 * row)


def test_random_numbers_of_dropout_take_their_instructions():
    plain, dropped = (
        _warp(_kernel(f"rmsnorm:rows=64,cols=4096,residual=true,dtype=bf16{more}")) for more in ("", ",dropout=true")
    )
    assert _instructions(dropped) - _instructions(plain) == pytest.approx(8 * 65, rel=0.1)


@pytest.mark.parametrize("lanes", [32, 64])
def test_all_run_with_32_and_64_lanes_and_odd_shapes(lanes):
    for text in (
        "gelu:rows=3,cols=77", "swiglu:rows=3,cols=77", "residual:rows=5,cols=33", "bias:rows=5,cols=33",
        "copy:rows=5,cols=33", "dropout:rows=5,cols=33", "rotary:tokens=3,heads=3,kv_heads=1,head_dim=34",
        "rmsnorm:rows=3,cols=1601,residual=true", "layernorm:rows=3,cols=7", "softmax:rows=3,cols=5001",
        "softmax:rows=3,cols=1,backward=true", "quantize:rows=3,cols=2049", "cross_entropy:rows=3,vocab=50257",
        "layernorm:rows=3,cols=1601,residual=true,dropout=true,backward=true",
    ):  # fmt: skip
        for kernel in make_kernels(f"{text},lanes={lanes},library=inductor"):
            assert sum(len(group.events) for group in kernel.workgroups()) > 0
            assert kernel.info.warps_per_workgroup * lanes <= 1024


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gelu:rows=4,cols=64,library=torch", "gelu library = torch: must be generic or inductor"),
        ("quantize:rows=4,cols=64,library=torch", "quantize library = torch: must be generic or inductor"),
        ("cross_entropy:rows=4,vocab=64,library=torch", "cross_entropy library = torch: must be generic or inductor"),
        ("gelu:rows=4,cols=64,unroll=2,library=inductor", "gelu unroll = 2: allowed with library=generic"),
        ("swiglu:rows=4,cols=64,fused=false,library=inductor", "swiglu fused = false: allowed with library=generic"),
        ("rotary:tokens=4,heads=2,kv_heads=1,head_dim=64,division=true,library=inductor", "rotary division = true"),
        ("bias:rows=4,cols=64,backward=true,library=inductor", "bias library = inductor: allowed with backward=false"),
        ("quantize:rows=4,cols=64,scaling=static,library=inductor", "library = inductor: allowed with scaling=row"),
        ("cross_entropy:rows=4,vocab=64,fused=false,library=inductor", "fused = false: allowed with library=generic"),
        ("rmsnorm:rows=4,cols=64,out=bf16,dtype=fp32", "rmsnorm out = bf16: allowed with residual=true"),
        ("rmsnorm:rows=4,cols=64,library=torch,backward=true", "library = torch: allowed with backward=false"),
        ("flash_attention:batch=1,heads=1,seq=64,head_dim=64,library=inductor", "must be generic or torch"),
    ],
)
def test_what_has_no_effect_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        make_kernels(text)


def test_arithmetic_of_integers_and_other_numbers_have_pipes_of_their_own():
    events = _warp(_kernel("rotary:tokens=4096,heads=32,kv_heads=8,head_dim=128,dtype=bf16"))
    by_pipe = {
        pipe: int(events["count"][(events["kind"] == Kind.COMPUTE) & (events["pipe"] == pipe)].sum()) for pipe in Pipe
    }
    assert by_pipe[Pipe.ALU] == 16 + 79 and by_pipe[Pipe.FMA] == 99 + 6 * 4
