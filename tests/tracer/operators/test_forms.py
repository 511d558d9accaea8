"""The forms of operators: valid workgroups, stores after their operands, matrix work, requests in closed form."""

from itertools import pairwise

import numpy as np
import pytest

from sim.gemm_facts import gpu_facts
from sim.occupancy import occupancy_of
from sim.presets import load_preset
from tests.support.request_count import count_requests
from tracer.kernels import OPERATORS, make_kernel, make_kernels
from tracer.operators.index import Index, Spread
from tracer.workgroup_check import checked_workgroups
from traces.errors import UserError
from traces.schema import NO_SLOT, Kind, Pipe, Space

TEXTS = [
    "layernorm:rows=21,cols=96,residual=1,dropout=1",
    "layernorm:rows=300,cols=96,backward=1",
    "rmsnorm:rows=9,cols=5000,lanes=64",
    "softmax:rows=5,cols=33",
    "attention:batch=1,heads=2,kv_heads=1,seq=130,head_dim=64",
    "flash_attention:batch=1,heads=2,kv_heads=1,seq=300",
    "flash_attention:batch=1,heads=4,kv_heads=2,seq=300,queries=1,splits=2",
    "flash_attention:batch=1,heads=2,kv_heads=1,seq=300,head_dim=64,backward=1",
    *(
        f"flash_attention:batch=1,heads=2,kv_heads=1,seq=300{more},version={version}"
        for version in (3, 4)
        for more in (",stats=1", ",head_dim=72,causal=0", ",backward=1", ",queries=100")
    ),
    *(
        f"flash_attention:batch=1,heads=2,kv_heads=1,seq=300,{more},version={version}"
        for version in (2, 3, 4)
        for more in ("queries=100,backward=1", "queries=500,causal=0", "queries=500,causal=0,backward=1")
    ),
    "kv_cache:tokens=7,kv_heads=3",
    "gelu:rows=7,cols=36,bias=1,fused=0",
    "swiglu:rows=7,cols=36,backward=1,vector=1",
    "swiglu:rows=5,cols=200,vector=1,unroll=1,warps=2,whole_rows=1",
    "dropout:rows=7,cols=33",
    "residual:rows=300,cols=64",
    "residual:rows=7,cols=129,vector=1,unroll=1,turns=4,dimensions=3",
    "bias:rows=300,cols=40,backward=1",
    "copy:rows=7,cols=129,out=fp32,dtype=bf16",
    "copy:rows=7,cols=64,share=3",
    "rotary:tokens=5,heads=3,kv_heads=1,head_dim=64",
    "embedding:tokens=9,hidden=96,backward=1",
    "cross_entropy:rows=3,vocab=3000,fused=0",
    "adam:parameters=5001,dtype=bf16,turns=2,warps=4",
    "lamb:parameters=5001",
    "gradient_clip:parameters=5001",
    "moe_route:tokens=9,experts=8,top_k=2",
    "moe_permute:tokens=9,experts=8,top_k=2,hidden=48",
    "moe_unpermute:tokens=9,experts=8,top_k=2,hidden=48",
    "quantize:rows=9,cols=48,scaling=tensor",
]
TORCH = [
    "softmax:rows=5,cols=33,library=torch,lanes=64",
    "softmax:rows=3,cols=1031,library=torch",
    "softmax:rows=3,cols=9001,library=torch,lanes=64",
    "softmax:rows=3,cols=2048,library=torch,dtype=fp32",
    "layernorm:rows=21,cols=518,library=torch,stats=1",
    "rmsnorm:rows=3,cols=96,library=torch,dtype=fp64",
    "flash_attention:batch=1,heads=2,kv_heads=1,seq=300,head_dim=64,library=torch",
]
"""Kernels of PyTorch; instructions of their places are on two pipes."""


def test_every_operator_is_here():
    assert {text.partition(":")[0] for text in TEXTS} == {operator.NAME for operator in OPERATORS}


@pytest.mark.slow
@pytest.mark.parametrize("text", [*TEXTS, *TORCH])
def test_workgroups_are_valid_and_may_begin_anywhere(text):
    for kernel in make_kernels(text):
        found = list(checked_workgroups(kernel))
        assert [workgroup.index for workgroup in found] == list(range(kernel.info.workgroups))
        middle = kernel.info.workgroups // 2
        again = next(kernel.workgroups(middle))
        assert (again.events == found[middle].events).all() and kernel.flops >= 0
        stores = np.isin(again.events["kind"], (Kind.STORE, Kind.REDUCE)) & (again.events["space"] != Space.SHARED)
        assert (again.events["slot"][stores] == NO_SLOT).all()  # no fence waits for them


@pytest.mark.parametrize(("heads", "workgroups"), [(64, 3), (71, 6), (200, 12)])
def test_generation_does_the_matrix_work_of_all_heads_that_share_keys(heads, workgroups):
    """3 parts of the keys; at most 64 heads in a workgroup."""
    kernel, _ = make_kernels(f"flash_attention:batch=1,heads={heads},kv_heads=1,seq=384,queries=1,splits=3")
    events = np.concatenate([workgroup.events for workgroup in kernel.workgroups()])
    assert kernel.info.workgroups == workgroups and kernel.period == workgroups
    assert 2 * int(events["work"].sum()) >= kernel.flops
    stored = (events["kind"] == Kind.STORE) & (events["space"] == Space.GLOBAL) & (events["width_bytes"] == 16)
    rows = events["base"][stored]
    assert len(set(rows.tolist())) == len(rows) == 3 * heads  # each row of each part once, 512 bytes


@pytest.mark.parametrize(
    ("head_dim", "workgroups", "shared_bytes", "fragment_bytes"),
    [(64, 2, 147456, 81920), (128, 2, 147456, 77824), (256, 4, 163840, 88064)],
)
def test_warps_of_the_backward_pass_share_its_products(head_dim, workgroups, shared_bytes, fragment_bytes):
    """Bytes that a warp reads in an iteration, with its scores, counted by hand from the layout of the warps: for 128
    elements each of 2 x 4 warps has 32 x 32 scores, of 4 x 2 gradients of 32 keys x 64, of 2 x 4 of 32 queries x 32."""
    kernel = make_kernels(f"flash_attention:batch=1,heads=1,seq=256,head_dim={head_dim},causal=0,backward=1")[1]
    assert kernel.info.workgroups == workgroups and kernel.info.shared_bytes == shared_bytes
    events = next(iter(kernel.workgroups())).events
    read = events[(events["kind"] == Kind.LOAD) & (events["space"] == Space.SHARED)]
    iterations = 256 // (128 if head_dim == 64 else 64)
    found = int(read["count"].sum()) * 512 // (8 * iterations)
    assert fragment_bytes <= found <= 1.05 * fragment_bytes


@pytest.mark.parametrize("preset", ["mi210", "mi300x"])
@pytest.mark.parametrize(("head_dim", "keys"), [(64, 64), (128, 64), (256, 32)])
def test_tiles_of_the_backward_pass_fit_the_shared_memory_of_cdna(preset, head_dim, keys):
    cu = load_preset(preset).machine.cu
    text = f"flash_attention:batch=1,heads=2,seq=300,head_dim={head_dim},backward=1,lanes=64"
    info = make_kernels(text)[1].info
    assert info.workgroups == 2 * -(-300 // keys)
    assert occupancy_of(cu, info).workgroups == 1
    assert list(checked_workgroups(make_kernels(text)[1]))


@pytest.mark.parametrize("fields", ["", ",queries=1", ",paged=1"])
def test_tiles_of_the_widest_heads_fit_the_shared_memory_of_cdna(fields):
    (kernel, *_) = make_kernels(f"flash_attention:batch=1,heads=2,seq=300,head_dim=256,lanes=64{fields}")
    info, cu = kernel.info, load_preset("mi300x").machine.cu
    assert occupancy_of(cu, info).workgroups == 1
    assert list(checked_workgroups(kernel))


def test_a_backward_pass_takes_as_many_rows_as_a_batch_has():
    kernel, _ = make_kernels("bias:rows=20000,cols=64,backward=1")
    events = np.concatenate([workgroup.events for workgroup in checked_workgroups(kernel)])
    loads = (events["kind"] == Kind.LOAD) & (events["space"] == Space.GLOBAL)
    first = int(events["base"][loads].min())
    assert sorted(events["base"][loads].tolist()) == [first + 128 * row for row in range(20000)]  # each row once
    assert make_kernels("rmsnorm:rows=131072,cols=128,backward=1")
    with pytest.raises(UserError, match=r"rows = 268,435,456: 1,048,576 rows .* in memory; allowed are 65,536"):
        make_kernels("rmsnorm:rows=268435456,cols=128,backward=1")


def test_a_row_of_a_copy_goes_to_several():
    kernel = make_kernel("copy:rows=7,cols=64,share=3")
    events = np.concatenate([workgroup.events for workgroup in checked_workgroups(kernel)])
    loads, stores = (events[events["kind"] == kind]["base"].astype(int) for kind in (Kind.LOAD, Kind.STORE))
    assert (loads - loads.min()).tolist() == [0, 0, 0, 128, 128, 128, 256]
    assert (stores - stores.min()).tolist() == [128 * row for row in range(7)]
    assert kernel.moved_bytes == (3 * 128, 7 * 128)


def outputs(workgroup):
    """For each store or reduction to global memory: number of loads before it, and of those that had not arrived."""
    for first, end in pairwise(workgroup.first_event.tolist()):
        waiting, loads = {}, 0
        for event in workgroup.events[first:end]:
            for slot in [slot for slot in waiting if int(event["wait"]) >> slot & 1]:
                del waiting[slot]
            in_memory = event["space"] == Space.GLOBAL
            if event["kind"] == Kind.LOAD and in_memory:
                waiting[int(event["slot"])] = True
                loads += 1
            if event["kind"] in (Kind.STORE, Kind.REDUCE) and in_memory:
                yield loads, len(waiting)


@pytest.mark.parametrize(
    "text",
    ["adam:parameters=128,warps=1", "gelu:rows=1,cols=256,bias=1", "moe_permute:tokens=4,experts=4,top_k=1,hidden=64"],
)
def test_no_store_before_its_operands(text):
    """One access per warp: every load must have arrived when the first store leaves."""
    (kernel,) = make_kernels(text)
    found = [pair for workgroup in kernel.workgroups() for pair in outputs(workgroup)]
    assert found and all(loads > 0 and missing == 0 for loads, missing in found)


@pytest.mark.parametrize(("cols", "fold"), [(200, 1), (96, 1), (8, 4)])
def test_a_workgroup_of_whole_rows_takes_its_row_and_no_other(cols, fold):
    """10 rows; 2 warps, one access at a time, of 32 elements: 200 columns take four turns, the last one in part."""
    (kernel,) = make_kernels(f"swiglu:rows=10,cols={cols},vector=1,unroll=1,warps=2,whole_rows=1,registers=40")
    found = list(checked_workgroups(kernel))
    assert len(found) == -(-10 // fold) and kernel.info.registers == 40
    out = kernel.tensors[2].address
    for workgroup in found:
        stores = workgroup.events[workgroup.events["kind"] == Kind.STORE]
        lanes = [int(mask).bit_count() for mask in stores["mask"]]
        first = workgroup.index * fold * cols * 2
        assert sum(lanes) == min(fold, 10 - workgroup.index * fold) * cols
        assert sorted(stores["base"] - out) == list(range(first, first + len(stores) * 64, 64))


@pytest.mark.parametrize(("causal", "blocks"), [(0, 3 * 5), (1, 2 + 4 + 5)])
def test_attention_does_the_matrix_work_of_its_blocks(causal, blocks):
    """300 queries in blocks of 128, 300 keys in blocks of 64; 256 queries see 4 blocks of keys, the last 44 all 5."""
    (kernel,) = make_kernels(f"flash_attention:batch=2,heads=3,seq=300,causal={causal}")
    macs = 0
    for workgroup in kernel.workgroups():
        tensor = (workgroup.events["kind"] == Kind.COMPUTE) & (workgroup.events["pipe"] == Pipe.TENSOR)
        macs += int(workgroup.events["work"][tensor].sum())
    assert macs == 2 * 3 * blocks * 2 * 128 * 64 * 128


@pytest.mark.parametrize("parts", [1, 3])
def test_a_generation_step_requests_every_key_once(parts):
    text = f"flash_attention:batch=2,heads=8,kv_heads=2,seq=1000,queries=1,splits={parts}"
    kernel = make_kernels(text)[0]
    lines, sectors = np.zeros((2, 5), np.int64)
    for workgroup in kernel.workgroups():
        count_requests(workgroup.events, workgroup.addresses, lines, sectors)
    queries = 2 * 8 * parts  # each part reads the queries
    assert sectors[Kind.ASYNC_COPY] == (2 * 2 * 2 * 1000 + queries) * 256 // 32
    assert sectors[Kind.STORE] == (2 * 8 * 256 // 32 if parts == 1 else queries * 512 // 32 + 2 * 2 * parts)


def test_buffers_of_a_backward_pass_begin_at_2_mib_behind_statistics_of_any_size():
    """129 queries: 516 bytes of statistics, no multiple of 16."""
    _, main, _ = make_kernels("flash_attention:batch=1,heads=1,seq=129,head_dim=64,backward=1")
    addresses = (*main.queries, *main.keys, *main.stats, main.sums, *main.out)
    assert all(address % (2 << 20) == 0 for address in addresses)
    assert main.queries[1] - main.stats[0] == 2 << 20  # the next region


def test_places_after_sorting_are_a_permutation_and_its_inverse():
    to = Index(Spread.TO_EXPERTS, 50, 2, 8, 2).listed
    back = Index(Spread.FROM_EXPERTS, 50, 1, 8, 2).listed[:, 0]
    assert sorted(to.ravel().tolist()) == list(range(100))
    assert (back[to] == np.arange(50)[:, None]).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gelu:rows=1,cols=64,vector=64", "at most 32 bytes"),
        ("rmsnorm:rows=1,cols=64,vector=16,dtype=fp32", "rmsnorm vector = 16: a lane has at most 32 bytes"),
        ("rmsnorm:rows=1,cols=64,vector=16,backward=true", "rmsnorm_backward vector = 16: a lane has at most 32 bytes"),
        ("moe_permute:tokens=4,experts=4,top_k=1,hidden=64,vector=32", "moe_permute vector = 32: a lane has at most"),
        ("swiglu:rows=1,cols=64,warps=64", "1 to 32"),
        ("swiglu:rows=1,cols=64,unroll=64", "unroll = 64"),
        ("swiglu:rows=1,cols=64,registers=256", "registers = 256: must be 0 to 255"),
        ("rmsnorm:rows=1,cols=64,vector=3", "must divide"),
        ("copy:rows=1,cols=64,turns=0", "turns = 0: must be 1 to 16,384 with 32 accesses in a turn"),
        ("copy:rows=1,cols=64,warps=16,unroll=1,turns=32769", "turns = 32769: must be 1 to 32,768"),
        ("copy:rows=4,cols=64,share=5", "share = 5: must be 1 to rows = 4"),
        ("bias:rows=1,cols=64,dimensions=26", "dimensions = 26: must be 0 to 25"),
        ("attention:batch=1,heads=3,kv_heads=2,seq=8", "must divide"),
    ],
)
def test_impossible_kernels_are_refused(text, words):
    with pytest.raises(UserError, match=words):
        make_kernels(text)


@pytest.mark.parametrize("text", ["bias", "dropout", "residual", "residual:dropout=1", "gelu:bias=1", "swiglu"])
def test_one_element_per_lane(text):
    """512 lanes of a workgroup have 512 elements, whatever their type."""
    name, _, more = text.partition(":")
    fields = f"{name}:rows=8,cols=256" + (f",{more}" if more else "")
    (kernel,) = make_kernels(f"{fields},vector=1,unroll=1,warps=16")
    assert (kernel.info.workgroups, kernel.info.warps_per_workgroup) == (8 * 256 // 512, 16)
    assert kernel.line_requests == make_kernels(fields)[0].line_requests


def test_places_of_elements_in_tensors_with_gaps_cost_instructions():
    """Four elements of a lane, one after the other; two dimensions."""
    loop = "vector=1,unroll=1,warps=4,turns=4"
    plain, placed = (make_kernel(f"residual:rows=8,cols=512,{loop}{more}") for more in ("", ",dimensions=2"))
    events, places = (np.concatenate([group.events for group in kernel.workgroups()]) for kernel in (plain, placed))
    compute = [each[each["kind"] == Kind.COMPUTE] for each in (events, places)]
    alu, fma = ([int(each["count"][each["pipe"] == pipe].sum()) for each in compute] for pipe in (Pipe.ALU, Pipe.FMA))
    accesses = 8 * 512 // 32
    assert (fma[1] - fma[0], alu[1] - alu[0]) == (2 * 10 * accesses, (2 * 4 + 3 * (4 - 10)) * accesses)
    memory = [each[each["kind"] != Kind.COMPUTE] for each in (events, places)]
    assert (memory[0] == memory[1]).all()
    waits = [kind for kind in places["kind"][: len(places) // len(set(range(4 * 8)))] if kind != Kind.COMPUTE]
    assert waits[:6] == [Kind.LOAD, Kind.LOAD, Kind.STORE] * 2


@pytest.mark.parametrize(
    ("text", "flops"),
    [
        ("embedding:tokens=9,hidden=48", 0),
        ("embedding:tokens=9,hidden=48,backward=1", 9 * 48),
        ("moe_unpermute:tokens=9,experts=8,top_k=2,hidden=48", 2 * 9 * 2 * 48),
        ("moe_unpermute:tokens=9,experts=8,top_k=2,hidden=48,backward=1", 0),
        ("moe_permute:tokens=9,experts=8,top_k=2,hidden=48", 0),
        ("moe_permute:tokens=9,experts=8,top_k=2,hidden=48,backward=1", 2 * 9 * 2 * 48),
    ],
)
def test_moved_rows_count_the_operations_of_their_sums(text, flops):
    assert make_kernel(text).flops == flops


@pytest.mark.parametrize("dtype", ["fp64", "fp32"])
@pytest.mark.parametrize(
    "text",
    [
        "gelu:rows=7,cols=36,bias=1",
        "softmax:rows=5,cols=33",
        "layernorm:rows=300,cols=96",
        "moe_unpermute:tokens=9,experts=8,top_k=2,hidden=48",
    ],
)
def test_sums_and_products_of_fp64_use_the_fp64_pipe(text, dtype):
    (found,) = make_kernels(text, dtype=dtype)
    events = np.concatenate([workgroup.events for workgroup in found.workgroups()])
    pipes = set(events["pipe"][events["kind"] == Kind.COMPUTE].tolist())
    assert pipes & {Pipe.FMA, Pipe.FP64} == {Pipe.FP64 if dtype == "fp64" else Pipe.FMA}


@pytest.mark.parametrize(("preset", "cost"), [("a100_80g", 1.0), ("h100_sxm", 1.59), ("b200", 1.59), ("mi300x", 1.0)])
@pytest.mark.parametrize("backward", ["", ",backward=1"])
def test_flash_attention_2_has_the_matrix_instructions_of_ampere(preset, cost, backward):
    """They reach 62.9 % of the rate of Hopper. Its operations are counted as they are."""
    gpu = gpu_facts(load_preset(preset).machine)
    text = f"flash_attention:batch=1,heads=1,seq=256,causal=0,version=2{backward}"
    kernel = make_kernels(text, gpu)[1 if backward else 0]
    events = np.concatenate([workgroup.events for workgroup in kernel.workgroups()])
    products = events[(events["kind"] == Kind.COMPUTE) & (events["pipe"] == Pipe.TENSOR)]
    macs = np.where(products["row_stride"] > 0, products["row_stride"], products["work"])
    assert 2 * int(macs.sum()) == (10 if backward else 4) * 256 * 256 * 128
    assert int(products["work"].sum()) == pytest.approx(cost * int(macs.sum()), rel=1e-3)


@pytest.mark.parametrize(
    ("preset", "head_dim", "shared_bytes"),
    [("v100", 64, 73728), ("t3_2024", 128, 81920), ("t3_2024", 96, 94208), ("a100_80g", 128, 147456)],
)
def test_the_backward_pass_has_narrow_tiles_on_a_machine_with_little_shared_memory(preset, head_dim, shared_bytes):
    """72 to 92 KB there, as FlashAttention 2 says of its kernels."""
    machine = load_preset(preset).machine
    text = f"flash_attention:batch=1,heads=1,seq=256,head_dim={head_dim},backward=1"
    info = make_kernels(text, gpu_facts(machine))[1].info
    assert info.shared_bytes == shared_bytes
    assert occupancy_of(machine.cu, info).workgroups == 1
