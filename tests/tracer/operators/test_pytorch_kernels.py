"""The row kernels of PyTorch: which one it takes, in what order it reads, and its instructions beside machine code."""

import numpy as np
import pytest

from tests.support.passes import passes
from tests.support.request_count import count_requests
from tracer.kernels import make_kernel, make_kernels
from tracer.operators.library import rows_of_a_warp
from tracer.operators.tensor import FIRST_ADDRESS
from traces.schema import Kind, Pipe, Space


def _warp(kernel, warp=1):
    """Events of a warp of the first workgroup."""
    group = next(kernel.workgroups())
    return group.events[group.first_event[warp] : group.first_event[warp + 1]]


def _reads(events):
    return (events["kind"] == Kind.LOAD) & (events["space"] == Space.GLOBAL)


@pytest.mark.parametrize(
    ("text", "warps", "shared_bytes"),
    [
        ("cols=1024", 4, 0),  # a warp keeps a row
        ("cols=2048,lanes=64", 2, 0),
        ("cols=4096", 32, 2 * 4096 + 8 * 32),  # a row in shared memory
        ("cols=2048,dtype=fp32,lanes=64", 16, 4 * 2048 + 8 * 16),
        ("cols=24504,dtype=bf16", 32, 2 * 24504 + 8 * 32),
        ("cols=24512,dtype=bf16", 32, 8 * 32),  # too long for it
        ("cols=4092", 32, 8 * 32),  # not aligned
    ],
)
def test_the_kernel_of_a_softmax(text, warps, shared_bytes):
    info = make_kernel(f"softmax:rows=64,{text},library=torch").info
    assert (info.warps_per_workgroup, info.shared_bytes) == (warps, shared_bytes)


@pytest.mark.parametrize(
    ("rows", "cols", "lanes", "together"),
    [
        (512, 8, 32, 8),
        (512, 5, 32, 8),
        (12, 5, 32, 4),
        (512, 33, 32, 1),
        (512, 33, 64, 2),
        (512, 32, 32, 2),
        (7, 1, 64, 1),
    ],
)
def test_a_warp_takes_several_short_rows(rows, cols, lanes, together):
    kernel = make_kernel(f"softmax:rows={rows},cols={cols},library=torch,lanes={lanes}")
    warps = 128 // lanes
    assert rows_of_a_warp(rows, cols, lanes) == together
    assert kernel.info.workgroups == -(-rows // (together * warps))


def test_long_rows_are_read_three_times_one_access_after_the_other():
    """5185 columns are less than 8 elements for each of 1024 threads: 6 accesses of one element."""
    kernel = make_kernel("softmax:rows=64,cols=5185,library=torch,dtype=bf16")
    events = _warp(kernel, 0)
    reads = np.flatnonzero(_reads(events))
    assert len(reads) == 3 * 6 and (events["width_bytes"][reads] == 2).all()
    between = np.diff(reads)
    assert (between > 1).all()  # no two loads in flight: arithmetic that waits is between them
    for read in reads[:-1]:
        slot = int(events["slot"][read])
        after = events[read + 1 :]
        waits = np.flatnonzero(after["wait"] & np.uint64(1 << slot))
        following = np.flatnonzero(_reads(after))
        assert waits[0] < following[0]


def test_wide_accesses_end_where_not_all_warps_have_one():
    """9001 columns: 8 elements for each of 1024 threads, then 809 single ones."""
    kernel = make_kernel("softmax:rows=64,cols=9001,library=torch,dtype=bf16")
    events = _warp(kernel, 0)
    reads = events[_reads(events)]
    assert reads["width_bytes"].tolist() == 3 * [16, 2]
    assert (reads["base"][:2] - reads["base"][0]).tolist() == [0, 8192 * 2]
    group = next(kernel.workgroups())
    elements = sum(
        bin(int(event["mask"])).count("1") * int(event["width_bytes"]) // 2
        for event in group.events[group.events["kind"] == Kind.STORE]
        if event["space"] == Space.GLOBAL
    )
    assert elements == 9001


def test_aligned_rows_with_a_tail_move_the_bytes_of_the_closed_form():
    rows, cols, sectors = 3, 13000, 13000 * 4 // 32
    lines, found = np.zeros(5, np.int64), np.zeros(5, np.int64)
    for group in make_kernel(f"softmax:rows={rows},cols={cols},library=torch,dtype=fp32").workgroups():
        events = group.events[group.events["space"] == Space.GLOBAL]
        count_requests(events, group.addresses, lines, found)
    assert found[[Kind.LOAD, Kind.STORE]].tolist() == [3 * rows * sectors, rows * sectors]


MACHINE_CODE = {
    # 73 + 41 + 8 + 42 outside of loops, sums of 66 and 39, six times 6 + 16 + 33; without accesses
    "softmax:rows=64,cols=5185,library=torch,dtype=bf16": 73 + 41 + 8 + 42 + 66 + 39 + 6 * (6 + 16 + 33),
    # two times 70 + 37; 117 outside; steps of 27 over lanes, and two over warps
    "layernorm:rows=64,cols=1024,library=torch,dtype=bf16": 2 * (70 + 37) + 117 + (5 + 2) * 27,
    # 27 + 23 outside, one loop of 30, one of 96, one of 226; sums of 66 and 39
    "softmax:rows=64,cols=8192,library=torch,dtype=bf16": 50 + 30 + 96 + 226 + 66 + 39,
}


AMD_CODE = {
    # four times 27 for the maximum, 123 and 8 exponentials, 240 and 16 transcendental ones; some 100 outside
    "softmax:rows=64,cols=32768": 4 * (27 + 123 + 4 * 8 + 240 + 4 * 16) + 100,
    # 36 before the exponentials; 19 + 131 and 8 exponentials; eight times 15 and a reciprocal
    "softmax:rows=64,cols=512": 36 + 19 + 131 + 4 * 8 + 8 * (15 + 4),
    # 68 and 4 reciprocals, 46; 70 outside; six steps of 32 and a reciprocal over lanes, in the mean 0.75 over warps
    "layernorm:rows=64,cols=1024": 68 + 4 * 4 + 46 + 70 + 6.75 * 36,
    "layernorm:rows=64,cols=4096": 4 * (68 + 4 * 4 + 46) + 70 + 6.75 * 36,
    # one access of 8 columns each; 10 more per access for the copies in shared memory, and the store of one more
    "softmax:rows=64,cols=8192": 27 + 123 + 4 * 8 + 240 + 4 * 16 + 100 + 20,
    # assumed: two for each square, seven for each output of four, three per access
    "rmsnorm:rows=64,cols=4096": 4 * (4 * (2 + 7) + 3 * 4) + 70 + (6 + 1) * 4,
}


@pytest.mark.parametrize("text", AMD_CODE)
def test_passes_of_a_wavefront_are_those_of_loops_compiled_for_gfx942(text):
    events = _warp(make_kernel(f"{text},library=torch,lanes=64,dtype=bf16"), 0)
    assert passes(events) == pytest.approx(AMD_CODE[text], rel=0.05)


@pytest.mark.parametrize(
    ("fields", "keys_at_once", "counted"),
    [
        ("head_dim=64", 64, 295 + 4 * 33),
        ("head_dim=128", 64, 338 + 4 * 33),
        # 16 scores of a lane there, 8 here
        ("head_dim=64,backward=true", 64, (306 + 4 * 16) / 2),
    ],
)
def test_passes_of_attention_are_those_of_loops_compiled_for_gfx942(fields, keys_at_once, counted):
    """Of an iteration of the loop: 32 more with 2048 keys (queries of the gradient) more."""
    found = []
    for length in (2048, 4096):
        shape = f"batch=1,heads=1,kv_heads=1,seq={length},causal=false,lanes=64,dtype=bf16"
        events = [_warp(kernel, 0) for kernel in make_kernels(f"flash_attention:{shape},{fields}")]
        found.append(max(passes(each[each["pipe"] != Pipe.TENSOR]) for each in events))
    assert (found[1] - found[0]) / (2048 / keys_at_once) == pytest.approx(counted, rel=0.03)


def test_amd_rounds_to_bf16_and_finds_places_in_instructions_of_its_own():
    """Eight elements of a lane: 8 more of five instructions, but not for fp16 and not on NVIDIA; 10 for a dimension."""

    def count(lanes, dtype, more=""):
        return passes(_warp(make_kernel(f"residual:rows=64,cols=4096,lanes={lanes},dtype={dtype}{more}"), 0))

    turns = 4
    assert count(64, "bf16") - count(64, "fp16") == turns * 8 * 5 and count(32, "bf16") == count(32, "fp16")
    placed = [[count(lanes, "fp16", f",dimensions={n}") for n in (1, 2)] for lanes in (32, 64)]
    assert [two - one for one, two in placed] == [turns * 14, turns * 10]
    out = [passes(_warp(make_kernel(f"copy:rows=64,cols=4096,out=fp32,lanes=64,dtype={t}"))) for t in ("bf16", "fp16")]
    assert out[0] == out[1], "fp32 is not rounded"
    exact = [make_kernel(f"softmax:rows=64,cols=4096,exact=true,lanes={lanes}") for lanes in (32, 64)]
    assert [(kernel.fma, kernel.sum_fma, kernel.sfu) for kernel in exact] == [(23, 7, 2), (29, 11, 2)]
    gelu = [make_kernel(f"gelu:rows=64,cols=4096,exact=true,lanes={lanes}") for lanes in (32, 64)]
    assert [(kernel.fma, kernel.sfu) for kernel in gelu] == [(26, 1), (35, 1)]


@pytest.mark.parametrize("text", MACHINE_CODE)
def test_instructions_of_a_warp_are_those_of_the_machine_code(text):
    """Within 10 %: the costs are per access and element."""
    events = _warp(make_kernel(text), 0)
    counted = int(events["count"][events["kind"] == Kind.COMPUTE].sum())
    assert counted == pytest.approx(MACHINE_CODE[text], rel=0.1)


def test_elements_of_welford_wait_for_one_another():
    """4 elements of an access: 65 clocks each."""
    events = _warp(make_kernel("layernorm:rows=64,cols=512,library=torch,dtype=bf16"))
    first_sum = events[np.flatnonzero(events["wait"] & np.uint64(1))[0]]
    assert (first_sum["pipe"], int(first_sum["cycles"]), int(first_sum["count"])) == (Pipe.FMA, 4 * 65, 4 * 17)


def test_an_rms_norm_has_no_reciprocals():
    kernels = [make_kernel(f"{name}:rows=64,cols=512,library=torch") for name in ("rmsnorm", "layernorm")]
    cycles = [int(_warp(kernel)["cycles"][_warp(kernel)["kind"] == Kind.COMPUTE].sum()) for kernel in kernels]
    assert cycles[0] < cycles[1] / 2


def test_scores_of_pytorchs_attention_cost_more():
    """128 keys at a time; masks of the last block and of the one on the diagonal."""
    fields = "batch=1,heads=1,kv_heads=1,seq=256,head_dim=64,dtype=bf16"
    plain, torch = (make_kernel(f"flash_attention:{fields}{more}") for more in ("", ",library=torch"))
    assert torch.info.shared_bytes == (128 + 2 * 128) * 128 and plain.info.shared_bytes == (128 + 2 * 64) * 128
    group = list(torch.workgroups())[1]
    events = group.events[: group.first_event[1]]
    alu = events["count"][(events["kind"] == Kind.COMPUTE) & (events["pipe"] == Pipe.ALU)].sum()
    scores = 32 * 128 // 32  # of a lane and block
    assert int(alu) - 64 == pytest.approx(2 * 2.6 * scores + 2 * 2.9 * scores, abs=3)


def test_outputs_of_a_softmax_wait_for_one_another():
    """An exact division per element of 110 clocks; all outputs of a warp have one slot, and each waits for it."""
    events = _warp(make_kernel("softmax:rows=64,cols=1024,library=torch,dtype=bf16"), 0)
    stores = np.flatnonzero((events["kind"] == Kind.STORE) & (events["space"] == Space.GLOBAL))
    outputs = events[stores - 1]
    slot = np.uint64(1 << int(outputs["slot"][0]))
    assert len(stores) == 8 and set(outputs["slot"].tolist()) == {int(outputs["slot"][0])}
    assert (outputs["cycles"] == 4 * 110).all() and (outputs["wait"] & slot == slot).all()
    assert (events["wait"][stores] == slot).all()


@pytest.mark.parametrize(
    "text",
    [
        "softmax:rows=3,cols=5185,library=torch,dtype=bf16",
        "softmax:rows=3,cols=9001,library=torch,dtype=bf16",
        "softmax:rows=5,cols=2048,dtype=bf16",
        "layernorm:rows=3,cols=518,library=torch,dtype=bf16",
    ],
)
def test_every_byte_of_the_output_is_stored_once_and_of_the_input_read_equally_often(text):
    """x begins at the first address, y in the next buffer, at a multiple of 2 MiB."""
    kernel = make_kernel(text)
    size = 2 * kernel.rows * kernel.cols
    found = {Kind.LOAD: [], Kind.STORE: []}
    for group in kernel.workgroups():
        for event in group.events[group.events["space"] == Space.GLOBAL]:
            if (kind := Kind(int(event["kind"]))) in found:
                lanes = int(event["mask"]).bit_count() * int(event["width_bytes"])
                found[kind].append(int(event["base"]) + np.arange(lanes))
    stored, read = (np.unique(np.concatenate(found[kind]), return_counts=True) for kind in (Kind.STORE, Kind.LOAD))
    x, y = FIRST_ADDRESS, FIRST_ADDRESS + (2 << 20)
    assert (stored[0] == y + np.arange(size)).all() and (stored[1] == 1).all()
    of_x = read[0] < y
    assert (read[0][of_x] == x + np.arange(size)).all() and len(set(read[1][of_x].tolist())) == 1
