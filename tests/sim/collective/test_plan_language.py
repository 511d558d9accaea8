"""What regions can say beyond the plans that come with t3sim: several kernels at once, gates between them, sets of
GPUs; and plans that would wait for ever, which are refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.collective.check import Limits, check_reduces, check_regions, follow
from sim.collective.chunks import Chunks, even_chunks
from sim.collective.on_cus import all_gather, all_reduce, reduce_scatter, steps_queue
from sim.collective.plans import fused_regions, planned
from sim.collective.space import OUTPUT, Buffer, Region, Send
from sim.collective.tables import Queue
from sim.host.window import Launch
from sim.hw.request import NEVER, Op
from sim.hw.spans import SpanKind
from sim.machine.build import QUEUES
from sim.machine.deadlock import DeadlockError
from sim.run.launches import staggered_launch
from sim.run.many_gpus import run_plan
from sim.spec import Granularity, Topology
from tests.support.programs import small_preset
from tests.support.t3_cases import COPIES, TILE, check_empty, clusters, expected_ring, fp16_problem, moved
from tracer.gemm.source import OUTPUT_TILE, Epilogue, GemmSource
from traces.errors import UserError

N = 4
SECOND = "second"


def sources():
    """Two GEMMs whose outputs lie apart."""
    first = GemmSource(fp16_problem(128, 128, 32), TILE)
    other = fp16_problem(96, 128, 64)
    return first, GemmSource(replace(other, c_address=other.c.address + (1 << 37) + (1 << 19)), TILE)


def ran(machine, plans, kernels, change=None, **options):
    """(JobResult, Cluster) of every GPU, with nothing left over."""
    with clusters(change) as seen:
        result = run_plan(machine, plans, kernels, **options)
    for gpu in seen[0].gpus:
        check_empty(gpu)
    return result, seen[0]


def two_kernels(topology=Topology.RING, gate=None):
    """T3's ring twice: buffers, and plans; the final tiles of the first open a gate where one is given."""
    first, second = sources()
    buffers = [Buffer(OUTPUT, first.output_tiles()), Buffer(SECOND, second.output_tiles(), queue=1)]
    chunks, others = even_chunks(first.tiles, N), even_chunks(second.tiles, N)
    plans = []
    for gpu in range(N):
        regions = fused_regions(chunks, gpu, topology)
        regions[-1] = replace(regions[-1], gate=gate)
        regions += [replace(region, buffer=SECOND) for region in fused_regions(others, gpu, topology)]
        plans.append(planned(buffers, chunks, gpu, topology, regions))
    return first, second, chunks, others, plans


@pytest.mark.parametrize("share_cus", [True, False])
def test_two_fused_kernels_at_once_each_have_their_own_buffer(share_cus):
    """Traffic of both is that of each alone; each sum counts once in its own buffer."""
    first, second, chunks, others, plans = two_kernels()

    def kernels(plan):
        one = staggered_launch(first, plan, 0)
        other = Launch(second, queue=1, tags=np.arange(second.tiles))
        return [one, other] if share_cus else [replace(one, cus=(0, 2)), replace(other, cus=(2, 4))]

    result, cluster = ran(small_preset().machine, plans, kernels)
    assert result.exactly_once, result.wrong
    sizes = [2048 * np.diff(cut.edges) for cut in (chunks, others)]
    for number, gpu in enumerate(cluster.gpus):
        each = [expected_ring("t3", one.tolist(), number) for one in sizes]
        assert moved(gpu) == tuple(np.add(*each).tolist())
        assert gpu.node.dispatch["finished"].tolist()[:2] == [16, 12]


def test_a_gate_lets_a_kernel_start_when_the_sums_of_another_are_there():
    """The second GEMM of a GPU waits until the first one's final tiles are complete."""
    first, second, _, _, plans = two_kernels(gate=0)
    late = np.zeros(second.tiles, np.int64)

    def kernels(plan):
        return [staggered_launch(first, plan, 0), Launch(second, queue=1, tags=np.arange(second.tiles), gates=late)]

    result, cluster = ran(small_preset().machine, plans, kernels, interval_ps=1_000_000)
    assert result.exactly_once, result.wrong
    for plan, gpu in zip(plans, cluster.gpus, strict=True):
        out = gpu.node.output
        last_ps = out.tiles["done_ps"][list(plan.chunks.span(plan.gpu, N - 1))].max()
        opened_ps = out.gates[0]["open_ps"]
        assert opened_ps == last_ps + out.tracker[0]["latency_ps"] < NEVER
        spans = gpu.spans()
        late_spans = spans[(spans["kind"] == SpanKind.WORKGROUP) & (spans["queue"] == 1)]
        assert len(late_spans) == second.tiles and (late_spans["start_ps"] >= opened_ps).all()


@pytest.mark.parametrize("topology", ["fully_connected", "switch"])
def test_stores_to_a_set_of_gpus_are_an_all_reduce(topology):
    """Each update goes to every GPU, the own included: all of them get the sums, and no DMA engine moves."""
    machine = small_preset(f"link.topology={topology}").machine
    source = GemmSource(fp16_problem(96, 80, 32), TILE)
    chunks, output = even_chunks(source.tiles, N), source.output_tiles()
    region = Region(0, source.tiles, to=tuple(range(N)), op=Op.UPDATE, expects=N)
    plans = [planned([Buffer(OUTPUT, output)], chunks, gpu, machine.link.topology, [region]) for gpu in range(N)]
    result, cluster = ran(machine, plans, lambda plan: [staggered_launch(source, plan, 0)])
    assert result.exactly_once, result.wrong
    d = 96 * 96 * 2 - 96 * 32  # the last tiles of a row are 16 wide: one sector
    assert all(moved(gpu) == (d, 0, (N - 1) * d, (N - 1) * d) for gpu in cluster.gpus)
    with pytest.raises(UserError, match="waits for 4 contributions to tile 0 of output, but 3 come"):
        follow([[region]] * 3 + [[replace(region, to=(0, 1, 2))]], [Buffer(OUTPUT, output)])


def test_bulk_copies_to_a_set_of_gpus_are_refused():
    machine = small_preset(*COPIES, "link.topology=switch").machine
    source = GemmSource(fp16_problem(96, 80, 32), replace(TILE, epilogue=Epilogue.BULK))
    chunks, buffers = even_chunks(source.tiles, N), [Buffer(OUTPUT, source.output_tiles())]
    region = Region(0, source.tiles, to=tuple(range(N)), op=Op.UPDATE, expects=N)
    plans = [planned(buffers, chunks, gpu, machine.link.topology, [region]) for gpu in range(N)]
    with pytest.raises(
        UserError, match="workgroup 0: found a bulk copy that stores, in a run whose stores go to several"
    ):
        ran(machine, plans, lambda plan: [staggered_launch(source, plan, 0)])


def test_two_ways_to_the_same_sums():
    """An all-gather by stores: what a DMA engine writes at several GPUs in turn, after the reduction."""
    source = GemmSource(fp16_problem(128, 128, 32), TILE)
    machine = small_preset("link.topology=fully_connected").machine
    chunks, output = even_chunks(source.tiles, N), source.output_tiles()
    gathered = output.copy()
    gathered["address"] += (1 << 37) + (1 << 19)
    plans = []
    for gpu in range(N):
        regions = fused_regions(chunks, gpu, Topology.FULLY_CONNECTED)
        to_all = tuple(Send(far, Op.WRITE, "sums") for far in range(1, N))
        regions[-1] = replace(regions[-1], sends=to_all)
        for local in range(N - 1):
            span = chunks.span(gpu, local)
            regions.append(Region(span.start, span.stop, to=(), expects=1, buffer="sums"))
        buffers = [Buffer(OUTPUT, output), Buffer("sums", gathered, shares=0)]
        plans.append(planned(buffers, chunks, gpu, Topology.FULLY_CONNECTED, regions))
    result, cluster = ran(machine, plans, lambda plan: [staggered_launch(source, plan, 0)])
    assert result.exactly_once, result.wrong
    chunk = 128 * 128 * 2 // N
    for gpu in cluster.gpus:
        assert moved(gpu) == (chunk, 3 * chunk, 3 * chunk + 3 * chunk, 3 * chunk + 3 * chunk)
        sums = gpu.node.output.tiles[chunks.tiles :]
        assert sorted(set(sums["arrived"])) == [0, 0b1111]  # every contribution, the receiver's own among them


# --- What would wait for ever ---


def queues(gates, tags=None, gpus=2):
    """A kernel per GPU; gates: of its workgroups."""
    tags = np.arange(len(gates[0])) if tags is None else tags
    return [Queue(gpu, 0, np.array(tags), np.array(gates[gpu])) for gpu in range(gpus)]


def buffer(tiles, **fields):
    return Buffer(OUTPUT, np.zeros(tiles, OUTPUT_TILE), **fields)


def test_gates_that_wait_for_each_other_are_refused():
    """Tile 0 of each of two GPUs opens the gate before tile 1 of the other; then both in turn."""
    mine = Region(0, 2, op=Op.WRITE, expects=1, sends=(Send(1, Op.WRITE, "heard"),))
    heard = [Region(k, k + 1, to=(), expects=1, gate=k, buffer="heard") for k in range(2)]
    regions, buffers = [[mine, *heard]] * 2, [buffer(2), replace(buffer(2, shares=0), name="heard")]
    follow(regions, buffers, queues([[-1, 0], [-1, 0]]))
    follow(regions, buffers, queues([[-1, -1], [0, 1]]))
    with pytest.raises(
        UserError, match=r"GPU 0, tile 0 of output wait for each other in a circle .* waits for its gate"
    ):
        follow(regions, buffers, queues([[0, -1], [0, -1]]))
    with pytest.raises(
        UserError, match=r"GPU 0, tile 1 of output .* waits for its gate before it stores GPU 0, tile 1"
    ):
        follow(regions, buffers, queues([[-1, 1], [-1, 1]]))
    with pytest.raises(UserError, match="workgroups of GPU 1 wait for a gate that no region opens"):
        follow(regions, buffers, queues([[-1, 0], [-1, 2]]))


def test_a_kernel_that_does_not_make_all_tiles_is_refused():
    region = Region(0, 2, op=Op.UPDATE, expects=2)
    regions = [[replace(region, to=(1,), expects=0)], [region]]
    follow(regions, [buffer(2)], queues([[-1] * 2] * 2))
    for tags in ([0], [0, 0], [0, 2]):
        with pytest.raises(UserError, match=r"queue 0, GPU 0, has . workgroups, allowed is one for each of 1 shares"):
            follow(regions, [buffer(2)], queues([[-1] * len(tags)] * 2, tags))
    with pytest.raises(UserError, match=r"GPUs \[0, 1\] have no kernel in queue 2"):
        follow(regions, [buffer(2, queue=2)], queues([[-1] * 2] * 2))


def backwards(tiles=8):
    """Sums of two GPUs go to the one that makes the tile earlier."""
    half = tiles // 2
    keep, give = {"op": Op.UPDATE, "expects": 2}, {"op": Op.UPDATE, "expects": 1, "sends": (Send(1),)}
    return [
        [Region(0, half, **keep), Region(half, tiles, **give)],
        [Region(0, half, **give), Region(half, tiles, **keep)],
    ]


@pytest.mark.parametrize(
    ("sets", "ways", "good"), [(1, 0, True), (1, 8, True), (1, 4, False), (2, 2, False), (4, 2, True)]
)
def test_a_tracker_in_which_sums_wait_for_each_other_is_refused(sets, ways, good):
    """GPU 0 begins with tiles that GPU 1 makes last, and the other way round."""
    regions, tags = backwards(), (np.arange(8), (np.arange(8) + 4) % 8)
    both = [
        replace(queue, tags=tag, start=int(tag[0])) for queue, tag in zip(queues([[-1] * 8] * 2), tags, strict=True)
    ]
    if good:
        check_reduces(regions, buffer(8), both, Limits(sets, ways))
    else:
        with pytest.raises(
            UserError, match=r"circle .* waits for an entry of the Tracker before it stores GPU 0, tile"
        ):
            check_reduces(regions, buffer(8), both, Limits(sets, ways))
    forwards = [replace(queue, tags=tag, start=int(tag[0])) for queue, tag in zip(both, tags[::-1], strict=True)]
    check_reduces(regions, buffer(8), forwards, Limits(sets, ways))  # towards the one that makes it later


def test_tiles_out_of_order_need_an_entry_each():
    regions = backwards()
    mixed = queues([[-1] * 8] * 2, [4, 0, 5, 1, 6, 2, 7, 3])
    follow(regions, [buffer(8)], mixed, Limits(1, 8))
    with pytest.raises(UserError, match="GPU 0 does not make the tiles of output in their order from 0 on"):
        follow(regions, [buffer(8)], mixed, Limits(1, 7))


def on_cus(make, topology=Topology.RING, change=None):
    """Follow a collective on CUs of 4 GPUs; `change` gets the steps of each."""
    output, chunks = sources()[0].output_tiles(), even_chunks(16, N)
    plans = [make(output, chunks, gpu, topology, slices=2) for gpu in range(N)]
    for plan in plans if change else ():
        plan.steps[:] = change(plan.steps)
    return follow([plan.regions for plan in plans], plans[0].buffers, [steps_queue(plan) for plan in plans])


@pytest.mark.parametrize("topology", list(Topology))
@pytest.mark.parametrize("make", [reduce_scatter, all_gather, all_reduce])
def test_collectives_on_cus_are_followed_too(make, topology):
    """Where a reduction ends there are the sums of all, where a gather ends the owner's tile."""
    flow, chunks = on_cus(make, topology), even_chunks(16, N)
    for gpu in range(N):
        for local in range(N):
            span = chunks.span(gpu, local)
            owner = 1 << (gpu + N - 1 - local) % N
            if make is not all_gather and local == N - 1:
                assert set(flow.sent[gpu, list(span)]) == {15 - (1 << gpu)}
            if make is not reduce_scatter and local < N - 1:
                assert set(flow.sent[gpu, flow.sent.shape[1] - 16 :][list(span)]) == {owner}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda steps: steps[1:], r"GPU 0 waits for 1 contributions to tile 4 of output, but 0 come"),
        (lambda steps: [*steps, steps[0]], r"GPU 0 waits for 1 contributions to tile 4 of output, but 2 come"),
        (lambda steps: steps[::-1], r"wait for each other in a circle .*; a workgroup waits for its gate"),
    ],
)
def test_a_collective_on_cus_with_a_wrong_step_is_refused(change, words):
    with pytest.raises(UserError, match=words):
        on_cus(reduce_scatter, change=change)


def test_a_chunk_that_waits_for_itself_is_refused():
    """From `output` of GPU 0 to b of GPU 1, to c of GPU 0, to d of GPU 1. A chunk is sent on as a whole."""
    buffers = [buffer(1), *(Buffer(name, np.zeros(1, OUTPUT_TILE), shares=0) for name in "bcd")]
    last = Region(0, 1, to=(), expects=1, buffer="d")
    b, c = (replace(last, sends=(Send(1, Op.WRITE, to),), buffer=name) for name, to in ("bc", "cd"))
    first = Region(0, 1, expects=1, sends=(Send(1, Op.WRITE, "b"),))
    for chunk, by_chunk in ((0, False), (1, True)):
        follow([[first, replace(c, chunk=chunk)], [b, last]], buffers, None, Limits(by_chunk=by_chunk))
    with pytest.raises(UserError, match=r"GPU 0, tile 0 of c wait for each other in a circle \(GPUs \[0, 1\]\)"):
        follow([[first, c], [b, last]], buffers, None, Limits(by_chunk=True))


def test_kernels_at_once_need_an_entry_for_each_tile():
    first, second, _, _, plans = two_kernels()
    machine = small_preset("tracker.entries=8", "tracker.ways=1").machine

    def kernels(plan):
        return [staggered_launch(first, plan, 0), Launch(second, queue=1, tags=np.arange(second.tiles))]

    with pytest.raises(UserError, match=r"tracker.ways: found 1, but 4 tiles share a set, of 2 buffers and 2 kernels"):
        run_plan(machine, plans, kernels)
    for wrong in (lambda plan: kernels(plan)[:1] * 2, lambda plan: [replace(kernels(plan)[0], queue=QUEUES)]):
        with pytest.raises(UserError, match=rf"dispatch queues: found .*, allowed are 0 to {QUEUES - 1}, each once"):
            run_plan(small_preset().machine, plans, wrong)


@st.composite
def trees(draw):
    """Sums of any tree: for each chunk, where each GPU sends its own. Some send with the stores."""
    gpus, tiles = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    plans = [[] for _ in range(gpus)]
    for chunk in range(gpus):
        order = draw(st.permutations(range(gpus)))
        parent = {order[k]: order[draw(st.integers(0, k - 1))] for k in range(1, gpus)}
        for gpu in range(gpus):
            children = list(parent.values()).count(gpu)
            span = (chunk * tiles, (chunk + 1) * tiles)
            far = (parent[gpu] - gpu) % gpus if gpu in parent else 0
            if far and not children and draw(st.booleans()):
                plans[gpu].append(Region(*span, to=(far,), op=Op.UPDATE))
            else:
                sends = (Send(far),) if far else ()
                plans[gpu].append(Region(*span, op=Op.UPDATE, expects=1 + children, sends=sends, chunk=chunk))
    return plans, gpus * tiles


@given(tree=trees(), gpu=st.integers(0, 4), place=st.integers(0, 4), by=st.sampled_from([-1, 1]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_tree_is_accepted_and_any_other_count_is_not(tree, gpu, place, by):
    plans, tiles = tree
    check_regions(plans, tiles)
    regions = plans[gpu % len(plans)]
    place %= len(regions)
    regions[place] = replace(regions[place], expects=regions[place].expects + by if regions[place].expects else 1)
    with pytest.raises(UserError, match="plan: "):
        check_regions(plans, tiles)


@pytest.mark.slow
@given(tree=trees(), entries=st.sampled_from([(0, 1), (1, 1), (2, 1), (4, 2), (8, 8)]), chunked=st.booleans())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_what_is_accepted_ends_and_counts_once(tree, entries, chunked):
    """Any tree of sums on any Tracker: either it is refused, or it runs to its end and the ledger agrees."""
    plans, tiles = tree
    gpus = len(plans)
    machine = small_preset(
        *("link.topology=fully_connected", f"tracker.entries={entries[0]}", f"tracker.ways={entries[1]}"),
        f"dma.policy={'chunk' if chunked else 'tile'}",
    ).machine
    source = GemmSource(fp16_problem(32, 32 * tiles, 16), TILE)
    chunks = Chunks(gpus, tuple(tiles // gpus * k for k in range(gpus + 1)))
    buffers = [Buffer(OUTPUT, source.output_tiles())]
    made = [planned(buffers, chunks, gpu, Topology.FULLY_CONNECTED, plans[gpu]) for gpu in range(gpus)]
    try:
        result, _ = ran(machine, made, lambda plan: [staggered_launch(source, plan, 0)])
    except DeadlockError:
        raise
    except UserError as refused:
        assert "circle" in str(refused) and entries[0]
        return
    assert result.exactly_once, result.wrong


def test_plans_of_other_gpus_or_buffers_are_refused():
    first, _, _, _, plans = two_kernels()
    machine, kernels = small_preset().machine, lambda plan: [staggered_launch(first, plan, 0)]
    for wrong in (plans[:3], [plans[0], *plans[:3]]):
        with pytest.raises(UserError, match=r"plans: found those of GPUs \[0, .*\], allowed is one for each of 4"):
            run_plan(machine, wrong, kernels)
    other = replace(plans[2].buffers[1], tiles=first.output_tiles())
    plans[2] = replace(plans[2], buffers=(plans[2].buffers[0], other))
    with pytest.raises(UserError, match="plans: GPU 2 has other buffers than GPU 0"):
        run_plan(machine, plans, kernels)


def test_the_tracker_walks_the_buffer_that_it_follows():
    """It keeps places in the order in which the kernel makes the tiles, wherever their numbers begin."""
    source = GemmSource(fp16_problem(128, 128, 32), TILE)
    output = source.output_tiles()
    before = output.copy()
    before["address"] += (1 << 37) + (1 << 19)
    chunks, machine = even_chunks(16, N), small_preset("tracker.entries=1", "tracker.ways=1").machine
    buffers = [Buffer("unused", before[:7], shares=0), Buffer(OUTPUT, output)]
    plans = [
        planned(buffers, chunks, gpu, Topology.RING, fused_regions(chunks, gpu, Topology.RING)) for gpu in range(N)
    ]
    result, cluster = ran(machine, plans, lambda plan: [staggered_launch(source, plan, 0)])
    assert result.exactly_once, result.wrong
    assert [gpu.node.output.tracker[0]["first_tile"] for gpu in cluster.gpus] == [7, 7 + 12, 7 + 8, 7 + 4]


def test_parts_of_wavefronts_are_no_chunks():
    source = GemmSource(fp16_problem(128, 128, 32), TILE)
    chunks, machine = even_chunks(16, N), small_preset("dma.policy=chunk").machine
    plans = [
        planned(
            *([Buffer(OUTPUT, source.output_tiles())], chunks, gpu, Topology.RING),
            fused_regions(chunks, gpu, Topology.RING, Granularity.WAVEFRONT),
        )
        for gpu in range(N)
    ]
    with pytest.raises(UserError, match=r"plan: granularity wavefront, but dma\.policy = chunk sends whole chunks"):
        run_plan(machine, plans, lambda plan: [staggered_launch(source, plan, 0)])
