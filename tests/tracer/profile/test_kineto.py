"""Profiles of PyTorch: kernels with the operators that launched them, times, and what is refused."""

import gzip
import json

import pytest

from tests.support.profiles import kernel, layer, operator, write_profile
from tracer.profile.kineto import read_profile
from traces.errors import UserError

MATRIX = operator(2, "aten::mm", [[8, 4], [4, 16]])


@pytest.mark.parametrize("name", ["profile.json", "profile.json.gz"])
def test_calls_have_their_operator_and_the_times_of_all_their_kernels(tmp_path, name):
    profile = read_profile(write_profile(tmp_path / name, layer(4), gpus=4))
    assert (profile.name, profile.gpu, profile.gpus) == (name, "NVIDIA H100 80GB HBM3", 4)
    names = ["aten::native_layer_norm", "aten::addmm", "record_param_comms", "my::operator"]
    assert [call.name for call in profile.calls] == 2 * names
    gemm = profile.calls[1]
    assert (gemm.begin_ns, gemm.end_ns, gemm.time_ns, gemm.kernels) == (10_000, 18_500, 8_000, ("gemm", "splitk"))
    assert gemm.operator.shapes == ((512,), (512, 256), (256, 512), (), ())
    assert gemm.operator.strides[2] == (512, 1)
    assert profile.time_ns == 2 * (4_000 + 8_000 + 30_000 + 5_250) + 1_000
    assert profile.span_ns == 1_066_250
    assert profile.busy_ns == profile.time_ns


def test_kernels_that_overlap_are_busy_once(tmp_path):
    events = [MATRIX, kernel(2, 5.0, 10.0), kernel(3, 10.0, 2.0), kernel(4, 12.5, 5.0), kernel(5, 30.0, 1.0)]
    profile = read_profile(write_profile(tmp_path / "p.json", events))
    assert (profile.span_ns, profile.busy_ns, profile.time_ns) == (26_000, 13_500, 18_000)


def test_kernels_come_in_the_order_of_their_begin_and_one_without_operator_is_a_call(tmp_path):
    events = [MATRIX, kernel(7, 9.0, 1.0, "b"), kernel(7, 8.0, 1.0, "a"), kernel(2, 1.5, 1.0, "c")]
    profile = read_profile(write_profile(tmp_path / "p.json", events))
    assert [(call.name, call.begin_ns) for call in profile.calls] == [("aten::mm", 0), ("a", 6_500), ("b", 7_500)]
    assert profile.calls[1].operator is None


def test_kernels_of_another_stream_do_not_split_a_call(tmp_path):
    events = [MATRIX, kernel(2, 0.0, 5.0, "gemm"), kernel(9, 3.0, 9.0, "nccl"), kernel(2, 6.0, 2.0, "splitk")]
    calls = read_profile(write_profile(tmp_path / "p.json", events)).calls
    assert [call.kernels for call in calls] == [("gemm", "splitk"), ("nccl",)]
    assert (calls[0].end_ns, calls[0].time_ns) == (8_000, 7_000)


@pytest.mark.parametrize(("number", "known"), [("2", True), ("٢", False), ("9" * 5000, False), ([2], False)])
def test_an_operator_may_be_named_by_a_text(tmp_path, number, known):
    named = {**MATRIX, "args": {**MATRIX["args"], "External id": number}}
    (call,) = read_profile(write_profile(tmp_path / "p.json", [MATRIX, named, kernel(number, 0.0, 1.0)])).calls
    assert (call.operator is not None) == known


def test_times_far_from_zero_keep_their_nanoseconds(tmp_path):
    far = 1_419_247_335_455.0
    events = [MATRIX, kernel(2, far + 0.25, 1.125), kernel(3, far + 2.5, 0.5)]
    assert read_profile(write_profile(tmp_path / "p.json", events)).calls[1].begin_ns == 2_250


def test_old_and_short_forms_are_read(tmp_path):
    old = [{**event, "cat": {"cpu_op": "Operator", "kernel": "Kernel"}[event["cat"]]} for event in layer(4)]
    for event in old:
        event["args"]["external id"] = event["args"].pop("External id")
    path = tmp_path / "list.json"
    path.write_text(json.dumps(old))
    profile = read_profile(path)
    assert [call.name for call in profile.calls][:2] == ["aten::native_layer_norm", "aten::addmm"]
    assert (profile.gpu, profile.gpus) == ("", 1)


REFUSED = {
    "no JSON": (b"traceEvents", "found no JSON"),
    "half a file": (json.dumps({"traceEvents": layer(4)}).encode()[:-20], "found no JSON"),
    "half a gzip file": (gzip.compress(b"{}" * 1000)[:-9], "damaged gzip file"),
    "no gzip file": (b"\x1f\x8b" + bytes(30), "damaged gzip file"),
    "no events": (b'{"a": 1}', "found no list traceEvents"),
    "no kernel": (json.dumps([MATRIX]).encode(), "found no kernel of a GPU"),
    "no shapes": (json.dumps([operator(2, "aten::mm", []), kernel(2, 0, 1)]).encode(), "with the shapes"),
    "two GPUs": (json.dumps([MATRIX, kernel(2, 0, 1), kernel(3, 2, 1, device=1)]).encode(), "GPUs 0, 1"),
    "no time": (json.dumps([MATRIX, kernel(2, 0, None)]).encode(), "dur: found None"),
    "no time of any": (json.dumps([MATRIX, kernel(2, 0, 0)]).encode(), "no kernel that takes time"),
    "a time below zero": (json.dumps([MATRIX, kernel(2, 0, -1)]).encode(), "dur: found -1"),
    "no number": (b'[{"ph": "X", "cat": "kernel", "name": "k", "ts": NaN, "dur": 1}]', "ts: found nan"),
    "two odd GPUs": (json.dumps([MATRIX, kernel(2, 0, 1, device=[0]), kernel(3, 2, 1, device=[1])]).encode(),
                     r"GPUs \[0\], \[1\]"),
    "arguments": (json.dumps([{**MATRIX, "args": {"External id": 2, "Input Dims": 7}}, kernel(2, 0, 1)]).encode(),
                  "arguments that are no lists"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_profile_is_refused_with_its_file(tmp_path, case):
    content, message = REFUSED[case]
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as failure:
        read_profile(path)
    assert str(failure.value).startswith(str(path))


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"none\.json: No such file"):
        read_profile(tmp_path / "none.json")
