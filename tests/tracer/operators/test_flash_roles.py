"""FlashAttention 3 and 4: what the warps of a role do, the order of workgroups, matrix work and copied bytes."""

from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest

from sim.gemm_facts import gpu_facts
from sim.occupancy import occupancy_of
from sim.presets import load_preset
from tests.support.request_count import count_requests
from tracer.kernels import make_kernel, make_kernels
from traces.errors import UserError
from traces.schema import LATER, PHASE_ARRIVE, PHASE_WAIT, Bulk, Kind, Pipe, Space

MACHINES = {3: "h100_sxm", 4: "b200"}
HEADS = (8, 64, 96, 128, 136, 192, 256)


def main_kernel(text):
    kernels = make_kernels(text)
    return kernels[1] if "backward" in text else kernels[0]


def text_of(version, more="", seq=300, **fields):
    given = {"batch": 1, "heads": 1, "seq": seq, **fields, "version": version}
    return "flash_attention:" + ",".join(f"{name}={value}" for name, value in given.items()) + more


def all_events(kernel):
    return np.concatenate([workgroup.events for workgroup in kernel.workgroups()])


def warps_of(workgroup):
    return np.split(workgroup.events, workgroup.first_event[1:-1])


def macs_of(events):
    products = events[(events["kind"] == Kind.COMPUTE) & (events["pipe"] == Pipe.TENSOR)]
    return int(products["work"].sum())


def instructions(events, pipe):
    return int(events["count"][(events["kind"] == Kind.COMPUTE) & (events["pipe"] == pipe)].sum())


@pytest.mark.parametrize(
    ("version", "head_dim", "causal", "tiles", "warps"),
    [
        (3, 64, 0, (192, 192), 13),
        (3, 64, 1, (192, 128), 13),
        (3, 128, 0, (128, 176), 9),
        (3, 128, 1, (128, 128), 9),
        (3, 256, 1, (128, 80), 9),
        (4, 128, 0, (256, 128), 17),
        (4, 256, 0, (128, 128), 9),
    ],
)
def test_tiles_and_warps_are_those_of_the_sources(version, head_dim, causal, tiles, warps):
    """hopper/tile_size.h; flash_attn/cute/flash_fwd_sm100.py: two tiles of 128 queries."""
    kernel = make_kernel(text_of(version, head_dim=head_dim, causal=causal))
    assert kernel.tiles == tiles and kernel.info.warps_per_workgroup == warps


@pytest.mark.parametrize(("version", "head_dim", "causal"), [*product((3, 4), HEADS, (0, 1))])
@pytest.mark.parametrize("backward", ["", ",backward=1"])
def test_one_workgroup_fills_a_cu(version, head_dim, causal, backward):
    machine = load_preset(MACHINES[version]).machine
    kernel = main_kernel(text_of(version, backward, head_dim=head_dim, causal=causal))
    assert occupancy_of(machine.cu, kernel.info).workgroups == 1


@pytest.mark.parametrize(
    ("version", "causal", "blocks"),
    [
        (3, 0, 3 * 2 * 128 * 176),
        (3, 1, (1 + 2 + 3) * 128 * 128),
        (4, 0, 2 * 3 * 256 * 128),
        (4, 1, (2 + 3) * 256 * 128),
    ],
)
def test_matrix_work_is_that_of_whole_blocks(version, causal, blocks):
    """300 queries and keys. On Hopper three blocks of 128 queries and two of 176 keys, with causality up to three of
    128. On Blackwell two of 256 queries and three of 128 keys; the first 256 queries see two of them."""
    kernel = make_kernel(text_of(version, causal=causal, batch=2, heads=3))
    assert macs_of(all_events(kernel)) == 2 * 3 * blocks * 2 * 128


@pytest.mark.parametrize("version", [3, 4])
def test_the_backward_pass_multiplies_five_times(version):
    """256 queries and keys in tiles of 64 or 128 x 128, with causality only those that the diagonal crosses or that lie
    below; pairs of workgroups begin with the same queries."""
    kernel = main_kernel(text_of(version, ",backward=1", seq=256))
    tiles = {3: (4 + 2) * 64 * 128, 4: (2 + 2) * 128 * 128}[version]
    assert macs_of(all_events(kernel)) == 5 * tiles * 128
    assert kernel.flops == 10 * (256 * 257 // 2) * 128


@pytest.mark.parametrize(("version", "share"), [(3, 1), (4, 1 - 1 / 8)])
def test_instructions_of_a_softmax(version, share):
    """A part of the exponentials are polynomials on Blackwell: 3 instructions of the integer pipe and 6 of the FMA pipe
    each. A run has at most a quarter of a block's scores."""
    kernel = make_kernel(text_of(version, seq=256))
    events = all_events(kernel)
    blocks = {3: (1 + 2) * 128 * 128, 4: 2 * 256 * 128}[version]
    assert instructions(events, Pipe.SFU) == blocks / 32 * share
    exponentials = events[(events["kind"] == Kind.COMPUTE) & (events["pipe"] == Pipe.SFU)]
    rows = {3: 16, 4: 32}[version]
    assert set(exponentials["count"]) == {rows * 128 / 32 / 4 * share}
    setup, scale = {3: (9 * 2 * 64, 2 * 128 * 128 // 32), 4: (17 * 64, 256 * 128 // 32)}[version]
    alu = {3: 1.5, 4: 1 + 3 / 8}[version] * blocks / 32
    fma = {3: 2.0, 4: 2 + 6 / 8}[version] * blocks / 32
    rescaled = 128 * 128 // 32 if version == 3 else 0  # of each block of keys but the first
    assert (instructions(events, Pipe.ALU), instructions(events, Pipe.FMA)) == (alu + setup, fma + scale + rescaled)


def test_blackwell_ultra_computes_all_exponentials_in_its_special_function_units():
    gpu = gpu_facts(load_preset("b300").machine)
    kernel, forward = make_kernels(text_of(4, seq=256)), make_kernels(text_of(4, seq=256), gpu)
    units = [instructions(all_events(found), Pipe.SFU) for (found,) in (kernel, forward)]
    assert units == [2 * 256 * 128 // 32 * 7 // 8, 2 * 256 * 128 // 32]
    assert instructions(all_events(forward[0]), Pipe.FMA) == 2 * 2 * 256 * 128 // 32 + 256 * 128 // 32
    assert make_kernels(text_of(4, ",backward=1"), gpu)


@pytest.mark.parametrize("backward", ["", ",backward=1"])
@pytest.mark.parametrize("version", [3, 4])
def test_a_warp_waits_for_the_results_of_all_its_products(version, backward):
    """Products come later; each is waited for before the next one of its kind."""
    kernel = main_kernel(text_of(version, backward, causal=0))
    for workgroup in kernel.workgroups():
        for events in warps_of(workgroup):
            outstanding = 0
            for event in events:
                outstanding &= ~int(event["wait"])
                if event["kind"] == Kind.COMPUTE and event["pipe"] == Pipe.TENSOR:
                    assert event["space"] == LATER
                    outstanding |= 1 << int(event["slot"])
            assert outstanding == 0


@pytest.mark.parametrize(("version", "head_dim", "groups"), [(3, 64, 3), (3, 128, 2), (4, 128, 2)])
def test_groups_begin_their_products_one_after_the_other(version, head_dim, groups):
    """Group g waits for the begun products of the group before; the first one for those of the iteration before."""
    kernel = make_kernel(text_of(version, head_dim=head_dim, causal=0, seq=700))
    iterations = -(-700 // kernel.block_n)
    warps = warps_of(next(kernel.workgroups()))
    first = 0 if version == 3 else 4 * groups
    for group in range(groups):
        events = warps[first + 4 * group]
        barriers = events[events["kind"] == Kind.BARRIER]
        number = 2 * kernel._stages + 7 + (group - 1) % groups
        turns = barriers[(barriers["slot"] == number) & (barriers["space"] == PHASE_WAIT)]
        assert list(turns["work"]) == [turn + (group > 0) for turn in range(iterations)]


@pytest.mark.parametrize(
    ("version", "head_dim", "order"),
    [(3, 128, "s so so so o"), (4, 128, "s os os os os os o"), (4, 256, "s so so so so so o")],
)
def test_order_of_scores_and_outputs(version, head_dim, order):
    """Of 700 keys. The next scores come before the output, but with two groups on Blackwell behind it."""
    kernel = make_kernel(text_of(version, head_dim=head_dim, causal=0, seq=700))
    warps = warps_of(next(kernel.workgroups()))
    events = warps[0 if version == 3 else 4 * kernel._groups]
    pieces = [int(event["slot"]) for event in events if event["space"] == LATER and event["kind"] == Kind.COMPUTE]
    products = pieces[::4]  # a product has four pieces
    assert "".join("s" if slot == products[0] else "o" for slot in products) == order.replace(" ", "")


def test_softmax_of_narrow_heads_goes_through_shared_memory_on_hopper():
    """hopper/tile_size.h, `MmaPV_is_RS`: 64 elements without causality, and 96 elements."""
    stored = {}
    for head_dim, causal in product((64, 96, 128), (0, 1)):
        kernel = make_kernel(text_of(3, head_dim=head_dim, causal=causal))
        workgroup = next(kernel.workgroups())
        shared = workgroup.events[
            (workgroup.events["space"] == Space.SHARED) & (workgroup.events["kind"] == Kind.STORE)
        ]
        output = kernel.block_m * head_dim * 2
        iterations = macs_of(workgroup.events) // (kernel.block_m * kernel.block_n * head_dim * 2)
        stored[head_dim, causal] = (int(shared["count"].sum()) * 512 - output) / (
            kernel.block_m * kernel.block_n * 2 * iterations
        )
    assert stored == {(64, 0): 1, (64, 1): 0, (96, 0): 1, (96, 1): 1, (128, 0): 0, (128, 1): 0}


@pytest.mark.parametrize(
    ("text", "copies"),
    [
        (text_of(3, causal=0), 3 * 300),  # three blocks of queries
        (text_of(3), 128 + 256 + 300),
        (text_of(4, causal=0), 300),  # a pair: each has half of the rows of a tile
        (text_of(4, causal=0, seq=256), 256),  # one workgroup
        (text_of(4, causal=0, seq=700), 2 * 700),
        (text_of(4), 256 + 300),
    ],
)
def test_keys_and_values_are_copied_in_bulk(text, copies):
    kernel = make_kernel(text)
    lines, sectors = np.zeros((2, max(Kind) + 1), np.int64)
    for workgroup in kernel.workgroups():
        count_requests(workgroup.events, workgroup.addresses, lines, sectors)
    events = all_events(kernel)
    bulk = events[events["kind"] == Kind.BULK]
    loads = bulk[bulk["space"] == Bulk.LOAD]
    queries = kernel.shape.queries
    assert int((loads["work"] * loads["stride"].astype(np.int64)).sum()) == (2 * copies + queries) * 256
    stores = bulk[bulk["space"] == Bulk.STORE]
    assert int(stores["work"].sum()) == queries
    rows = sorted(
        (int(base), int(base) + int(work) * 256) for base, work in zip(stores["base"], stores["work"], strict=True)
    )
    assert rows[0][0] == kernel.o and rows[-1][1] == kernel.o + queries * 256
    assert all(end == start for (_, end), (start, _) in pairwise(rows))


@pytest.mark.parametrize(("version", "backward"), [*product((3, 4), ("", ",backward=1"))])
@pytest.mark.parametrize("causal", [0, 1])
def test_every_turn_of_a_barrier_is_completed_before_a_warp_waits_for_it(version, backward, causal):
    """All warps together arrive as often as a phase needs, and as often as the last wait asks for."""
    kernel = main_kernel(text_of(version, backward, seq=700, causal=causal))
    for workgroup in kernel.workgroups():
        arrived, needed, waited = Counter(), {}, Counter()
        for event in workgroup.events[workgroup.events["kind"] == Kind.BARRIER]:
            number = int(event["slot"])
            if event["space"] == PHASE_ARRIVE:
                arrived[number] += 1
                needed.setdefault(number, int(event["work"]))
                assert needed[number] == event["work"]
            elif event["space"] == PHASE_WAIT and event["work"] > 0:
                waited[number] = max(waited[number], int(event["work"]))
        assert set(waited) <= set(arrived)
        assert all(arrived[number] % needed[number] == 0 for number in arrived)
        assert all(arrived[number] // needed[number] >= waited[number] for number in waited)


def test_the_heaviest_workgroups_of_a_section_come_first_with_causality():
    """32 MB hold the keys and values of 8 heads of 8192 tokens: their last blocks of queries come first, then those
    before. 11 heads: the last section has three."""
    kernel = make_kernel(text_of(3, heads=11, seq=8192))
    first = [next(kernel.workgroups(index)).events for index in (0, 7, 8, 8 * 64, 8 * 64 + 2, 8 * 64 + 3)]
    queries = [int(events["base"][events["kind"] == Kind.BULK].min()) - kernel.q for events in first]
    row, block = 11 * 256, 128 * 11 * 256
    assert queries == [
        63 * block,
        63 * block + 7 * 256,
        62 * block,
        63 * block + 8 * 256,
        63 * block + 10 * 256,
        62 * block + 8 * 256,
    ]
    assert row * 128 == block and kernel.period == 8 * 64


def test_a_causal_pair_walks_the_keys_of_its_later_workgroup():
    """Heads of 256 elements on Blackwell: 128 queries each; 600 queries are three pairs, the last one first."""
    kernel = make_kernel(text_of(4, head_dim=256, seq=600))
    macs = [macs_of(workgroup.events) / (128 * 128 * 2 * 256) for workgroup in kernel.workgroups()]
    assert macs == [5, 5, 4, 4, 2, 2]  # blocks of 128 keys
    events = all_events(kernel)
    bulk = events[events["kind"] == Kind.BULK]
    stores = bulk[(bulk["space"] == Bulk.STORE)]
    assert int(stores["work"].sum()) == 600 and len(set(stores["base"])) == len(stores)


def test_grouped_heads_are_in_one_section():
    kernel = make_kernel(text_of(4, heads=8, kv_heads=1, seq=32768, batch=4))
    assert kernel.period == 8 * 2 * 128  # 50 MB hold the keys and values of two heads of 16 MB


def test_a_pair_needs_more_queries_than_one_workgroup_has_and_up_to_128_elements_no_causality():
    cases = ((257, 0, 128), (256, 0, 128), (257, 1, 128), (257, 0, 64), (257, 0, 192), (129, 1, 256), (128, 1, 256))
    clusters = [
        make_kernel(text_of(4, seq=seq, causal=causal, head_dim=head_dim)).info.cluster
        for seq, causal, head_dim in cases
    ]
    assert clusters == [2, 1, 1, 1, 1, 2, 1]
    assert main_kernel(text_of(4, ",backward=1", head_dim=64)).info.cluster == 1
    assert main_kernel(text_of(4, ",backward=1")).info.cluster == 2


@pytest.mark.parametrize("version", [3, 4])
def test_gradients_of_queries_are_added_once_for_each_tile_of_keys(version):
    kernel = main_kernel(text_of(version, ",backward=1", seq=300, causal=0))
    events = all_events(kernel)
    bulk = events[events["kind"] == Kind.BULK]
    sums, loads, out = (bulk[bulk["space"] == kind] for kind in (Bulk.REDUCE, Bulk.LOAD, Bulk.STORE))
    blocks = kernel.info.workgroups
    assert blocks == (3 if version == 3 else 4)
    assert int(sums["work"].sum()) == blocks * 300 and set(sums["stride"]) == {512}
    assert int(out["work"].sum()) == 2 * 300
    halves = 2 if version == 4 else 1
    kept, walked = 2 * 300, 2 * 300 * blocks // halves
    assert int(loads["work"].sum()) == kept + walked


@pytest.mark.parametrize("version", [3, 4])
def test_operands_of_the_backward_pass_in_shared_memory(version):
    """256 queries, 64 or (half of) 128 at a time: keys for scores and gradients of queries, values for those of the
    softmax; each group reads queries twice, gradients of outputs twice, and the gradients of the scores once."""
    kernel = main_kernel(text_of(version, ",backward=1", seq=256))
    events = all_events(kernel)
    loads = events[(events["kind"] == Kind.LOAD) & (events["space"] == Space.SHARED)]
    m, n = kernel.tiles
    kept, walked, scores = n * 256, m * 256 // (2 if version == 4 else 1), m * n * 2
    warps = {3: 8, 4: 4}[version]
    each = 3 * kept // warps + (4 * walked + scores) // 4
    tiles = {3: 4 + 2, 4: 2 + 2}[version]
    assert int(loads["count"].sum()) * 512 == tiles * warps * each


@pytest.mark.parametrize(
    ("preset", "more", "version"),
    [
        ("h100_sxm", "", 3),
        ("h200", ",backward=1", 3),
        ("b200", "", 4),
        ("b200", ",backward=1", 4),
        ("a100_80g", "", 2),
        ("mi300x", "", 2),
        ("h100_sxm", ",library=torch", 2),
        ("h100_sxm", ",paged=1", 2),
        ("h100_sxm", ",queries=1", 2),
        ("h100_sxm", ",version=2", 2),
        ("h100_sxm", ",version=4", 4),
    ],
)
def test_a_machine_has_the_version_that_is_made_for_it(preset, more, version):
    gpu = gpu_facts(load_preset(preset).machine)
    kernels = make_kernels(f"flash_attention:batch=1,heads=1,seq=256{more}", gpu)
    kernel = kernels[1] if "backward" in more else kernels[0]
    cost = 1.59 if version == 2 and preset in ("h100_sxm", "h200", "b200") else 1.0
    assert (kernel.shape.version, kernel.shape.mac_cost) == (version, cost)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (",version=3,paged=1", "version = 3: allowed with paged=false"),
        (",version=3,library=torch", "version = 3: allowed with library=generic"),
        (",version=4,lanes=64", "version = 4: allowed with lanes=32"),
        (",version=3,queries=1", "version = 3: allowed is 2"),
        (",version=5", "version = 5: allowed are 2, 3, 4"),
        (",version=3,fast_exp=1", "fast_exp = true: allowed with version=4"),
    ],
)
def test_a_version_that_does_not_exist_is_refused(more, message):
    with pytest.raises(UserError, match=message):
        make_kernels(f"flash_attention:batch=1,heads=1,seq=256{more}")


def test_a_machine_without_bulk_copies_has_no_newer_version():
    gpu = gpu_facts(load_preset("a100_80g").machine)
    with pytest.raises(UserError, match="version = 3: the machine has no bulk copies"):
        make_kernels("flash_attention:batch=1,heads=1,seq=256,version=3", gpu)


@pytest.mark.parametrize("version", [3, 4])
def test_operands_in_shared_memory_are_read_once_for_a_group(version):
    """An iteration of a group reads its queries, a tile of keys and one of values; on Blackwell pairs read half of
    their tiles themselves."""
    kernel = make_kernel(text_of(version, causal=int(version == 3), seq=700))
    workgroup = next(kernel.workgroups())
    groups, rows, tile = {3: (2, 64, 128), 4: (2, 128, 64)}[version]
    iterations = -(-700 // kernel.block_n)
    loads = workgroup.events[(workgroup.events["kind"] == Kind.LOAD) & (workgroup.events["space"] == Space.SHARED)]
    assert int(loads["count"].sum()) * 512 == groups * iterations * (rows + 2 * tile) * 256


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(("queries", "keys"), [(300, 1000), (700, 1000), (1000, 1000)])
def test_a_backward_pass_walks_all_queries_that_see_its_keys_and_no_block_before_them(version, head_dim, queries, keys):
    """With causality and fewer queries than keys: the last query sees all keys."""
    fields = f"seq={keys},queries={queries},head_dim={head_dim},backward=1,version={version}"
    kernel = make_kernels(f"flash_attention:batch=1,heads=1,{fields},dtype=bf16")[1]
    row = 2 * head_dim
    base = kernel.part(0).queries[0].address - row * (queries - kernel.part(0).queries[0].rows)
    pair = kernel.info.cluster
    for index in range(kernel.info.workgroups):
        part = kernel.part(index, pair)
        first_key = index // pair * pair * kernel.block_n
        begin = (part.queries[0].address - base) // row
        first_query = max(0, first_key - (keys - queries))
        assert begin % kernel.block_m == 0 and begin <= first_query < begin + kernel.block_m
        assert part.queries[0].rows == part.sums.rows == queries - begin
    walked = sum(kernel.part(index, pair).sums.rows for index in range(kernel.info.workgroups))
    assert kernel.line_requests == pytest.approx(walked * (2 * 2 + 4) * head_dim / 128, rel=0.35)


def test_with_causality_no_query_is_before_all_keys():
    text = "flash_attention:batch=1,heads=1,seq=100,queries=101,causal="
    assert make_kernel(text + "0").shape.queries == 101
    with pytest.raises(UserError, match=r"queries = 101: must be 0 \(all\) to seq = 100"):
        make_kernel(text + "1")
