"""The loop of an element-wise kernel, from its name, its grid and its tensors."""

import pytest

from tests.support.profiles import kernel, operator, write_profile
from tracer.kernels import make_kernel
from tracer.profile.kineto import read_profile
from tracer.profile.loops import Loop, flat, loop_of
from tracer.profile.works import work_of

NAMESPACE = "void at::native::"
SQUARE = [[512, 512], [512, 512], []]


def _call(tmp_path, name, event, **facts):
    events = [event, kernel(1, 0.0, 1.0, NAMESPACE + name, **facts)]
    profile = read_profile(write_profile(tmp_path / "p.json", events))
    return profile.calls[0], profile


def _size(blocks, threads=128):
    return {"grid": [blocks, 1, 1], "block": [threads, 1, 1]}


@pytest.mark.parametrize(
    ("name", "facts", "lanes", "loop"),
    [
        ("vectorized_elementwise_kernel<4, at::native::Add", _size(512), 32, Loop(4, 1, 4)),
        ("vectorized_elementwise_kernel<8, at::native::Add", _size(128, 256), 64, Loop(8, 1, 4)),
        ("vectorized_elementwise_kernel<4, at::native::Add", _size(64, 256), 64, Loop(4, 4, 4)),
        ("vectorized_elementwise_kernel<4, at::native::Add", {}, 32, Loop(4, 1, 4)),
        ("unrolled_elementwise_kernel<at::native::Add", _size(512), 32, Loop(1, 4, 4)),
        ("unrolled_elementwise_kernel<at::native::Add", {"grid": [0, 1, 1], "block": "x"}, 32, Loop(1, 4, 4)),
        ("elementwise_kernel<128, 4, at::native::Add", _size(512), 32, Loop(1, 1, 4, 4, 1)),
        ("elementwise_kernel<128, 2, at::native::Add", {}, 32, Loop(1, 1, 4, 2, 1)),
        ("elementwise_kernel_manual_unroll<128, 8, at::native::Add", _size(256), 64, Loop(1, 8, 2, 0, 1)),
        ("reduce_kernel<512, 1, at::native::Mean", _size(512), 32, Loop()),
    ],
)
def test_a_loop_is_that_of_the_name(tmp_path, name, facts, lanes, loop):
    call, _ = _call(tmp_path, name, operator(1, "aten::add", SQUARE), **facts)
    assert loop_of(call, call.operator, lanes) == loop


@pytest.mark.parametrize(
    ("shapes", "strides", "dimensions"),
    [
        (SQUARE, None, 1),
        ([[512, 512], [512]], None, 2),  # a row for all rows
        ([[4, 8, 32, 16]], [[4096, 16, 128, 1]], 1),  # the order of the only tensor is that of its strides
        ([[4, 8, 32, 16]] * 2, [[4096, 16, 128, 1], [4096, 512, 16, 1]], 4),
        ([[4, 8, 32, 16], [1, 1, 32, 16]], [[4096, 512, 16, 1], [512, 512, 16, 1]], 2),
        ([[1024, 1, 128], [16, 128]], [[128, 128, 1], [128, 1]], 3),
        ([[4, 8, 16]], [[256, 32, 1]], 2),  # the first half of each row
        ([[1, 1]], None, 1),
    ],
)
def test_dimensions_without_gaps_are_one(tmp_path, shapes, strides, dimensions):
    event = operator(1, "aten::mul", shapes, strides=strides)
    call, _ = _call(tmp_path, "elementwise_kernel<128, 4, at::native::Mul", event)
    assert loop_of(call, call.operator, 32).dimensions == dimensions


@pytest.mark.parametrize(
    ("shape", "vector", "rows_and_columns"),
    [
        ((5185, 4096), 4, (2720, 7808)),
        ((16, 5185, 5185), 4, (70516, 6100)),  # 1,525 lanes of 1,536
        ((3,), 4, (1, 4)),
        ((7, 11), 1, (1, 77)),
        ((0, 4), 1, (0, 0)),
    ],
)
def test_rows_fill_warps(shape, vector, rows_and_columns):
    assert flat(shape, vector, 32) == rows_and_columns


@pytest.mark.parametrize(
    ("facts", "lanes", "fields"),
    [
        (_size(8), 32, ",warps=4,shared_rows=true"),
        (_size(8, 64), 64, ",warps=1,shared_rows=true"),
        (_size(8, 16), 32, ",warps=1,shared_rows=true"),
        (_size(8, 4096), 64, ",warps=16,shared_rows=true"),
        (_size(4), 32, ""),
        ({}, 32, ""),
        ({"grid": [8, 1, 1]}, 32, ""),
        ({"grid": [0, 1, 1], "block": [64, 1, 1]}, 32, ""),
    ],
)
def test_a_norm_with_a_workgroup_for_each_row_says_so(tmp_path, facts, lanes, fields):
    event = operator(1, "aiter::rmsnorm", [[8, 256], [8, 256], [256], []])
    call, profile = _call(tmp_path, "rmsnorm_kernel", event, **facts)
    (_, text) = work_of(call, profile._replace(lanes=lanes))
    assert text == f"rmsnorm:rows=8,cols=256{fields},dtype=bf16"
    assert make_kernel(f"{text},lanes={lanes}").info.workgroups == (8 if fields else 1)


def test_the_elements_of_a_loop_are_those_of_the_output(tmp_path):
    event = operator(1, "aten::add", [[512, 1], [1, 512], []])
    call, _ = _call(tmp_path, "unrolled_elementwise_kernel<at::native::Add", event, **_size(512))
    assert loop_of(call, call.operator, 32) == Loop(1, 4, 4)


def test_tensors_of_another_order_are_one_kernel_with_places(tmp_path):
    event = operator(1, "aten::add", [[64, 32], [64, 32], []], strides=[[32, 1], [1, 64], []])
    call, profile = _call(tmp_path, "elementwise_kernel<128, 4, at::native::Add", event, **_size(4))
    _, text = work_of(call, profile)
    assert text == "residual:rows=1,cols=2048,vector=1,unroll=1,warps=4,turns=4,dimensions=2,dtype=bf16"
    assert make_kernel(text).info.workgroups == 4
    assert work_of(*_call(tmp_path, "vectorized_elementwise_kernel<4, at::native::Add", event)) is None


CAT = "(anonymous namespace)::CatArrayBatchedCopy<(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>("


@pytest.mark.parametrize(
    ("tensors", "name", "grid", "text"),
    [
        ([[2, 512], [2, 512]], CAT, [2, 2, 1], "copy:rows=1,cols=2048,TURNS=1"),
        ([[1, 3], [5, 2048]], CAT, [2, 2, 1], "copy:rows=10243,cols=1,TURNS=10"),
        ([[2, 512], [2, 512]], CAT.replace("Copy<", "Copy_contig<"), [2, 2, 1], "copy:rows=1,cols=2048,TURNS=1"),
        ([[2, 512], [2, 512]], "another kernel", [2, 2, 1], None),
        ([[2, 512], [2, 512]], CAT.replace("2u", "16u"), [2, 2, 1], None),
        ([[2, 512], [2, 512]], CAT, [], None),
        ([[2, -512], [2, 512]], CAT, [2, 2, 1], None),
        ([], CAT, [2, 2, 1], None),
        ([[0, 4]], CAT, [2, 1, 1], None),
    ],
)
def test_tensors_that_are_put_together_are_a_copy(tmp_path, tensors, name, grid, text):
    event = operator(1, "aten::cat", [tensors, []], types=["TensorList", "Scalar"], strides=[[], []])
    others = operator(9, "x", [[1]])
    events = [event, others, kernel(1, 0.0, 1.0, NAMESPACE + name, grid=grid, block=[512, 1, 1])]
    profile = read_profile(write_profile(tmp_path / "p.json", events))
    found = work_of(profile.calls[0], profile)
    text = text and text.replace("TURNS", "vector=1,unroll=1,warps=16,turns") + ",dimensions=4,dtype=bf16"
    assert (found and found[1]) == text
    assert text is None or make_kernel(text)
