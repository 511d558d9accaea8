"""Plans beyond T3's on four GPUs, every one simulated: traffic in closed form, each byte once, faults are found."""

from dataclasses import replace

import numpy as np
import pytest

from sim.collective.chunks import chunks_of, even_chunks
from sim.collective.patterns import RECEIVED, ROWS, all_to_all, gathered_rows, split_k
from sim.collective.plans import planned
from sim.hw.request import NEVER, SECTOR_BYTES, Stream
from sim.hw.spans import SpanKind
from sim.run.cluster_result import moved_bytes
from sim.run.launches import staggered_launch
from sim.run.many_gpus import run_plan
from tests.support.programs import small_preset
from tests.support.t3_cases import COPIES, TILE, check_empty, clusters, fp16_problem, moved
from tracer.gemm.source import Epilogue, GemmSource, TileOrder
from traces.errors import UserError

N = 4
START_PS = 1_000_000


class Pattern:
    """A plan of N GPUs and its GEMM on the small machine."""

    def __init__(self, source, plans, machine, gates=None):
        self.source, self.plans, self.machine, self.gates = source, plans, machine, gates

    def kernels(self, plan):
        gates = self.gates[plan.gpu] if self.gates else None
        return [staggered_launch(self.source, plan, START_PS, gates)]

    def run(self, change=None, **options):
        """(JobResult, Cluster), every GPU with nothing left over."""
        with clusters(change) as seen:
            result = run_plan(self.machine, self.plans, self.kernels, **options)
        for gpu in seen[0].gpus:
            check_empty(gpu)
        assert len(seen[0].gpus) == N
        return result, seen[0]

    def changed(self, gpu, which, **fields):
        """The same with other fields of the first region of a GPU of which `which` is true."""
        plans = list(self.plans)
        regions = list(plans[gpu].regions)
        k = next(k for k, region in enumerate(regions) if which(region))
        regions[k] = replace(regions[k], **fields)
        old = plans[gpu]
        plans[gpu] = planned(old.buffers, old.chunks, gpu, old.topology, regions)
        return Pattern(self.source, plans, self.machine, self.gates)


def machine_of(topology, *overrides):
    return small_preset(*COPIES, f"link.topology={topology}", *overrides).machine


def exchange(topology="fully_connected", order=TileOrder.ROW, *overrides):
    machine = machine_of(topology, *overrides)
    source = GemmSource(fp16_problem(128, 256, 32), replace(TILE, tile_n=64, order=order))
    chunks, output = even_chunks(source.tiles, N), source.output_tiles()
    how = (machine.link.topology, machine.tracker.granularity)
    return Pattern(source, [all_to_all(output, chunks, gpu, *how) for gpu in range(N)], machine)


def gathered(topology, m=256, *overrides, delay_ps=0):
    machine = machine_of(topology, *overrides)
    source = GemmSource(fp16_problem(m, 256, 80), replace(TILE, tile_n=64))
    chunks = even_chunks(source.tiles, N)
    made = [gathered_rows(source, chunks, gpu, machine.link.topology) for gpu in range(N)]
    for plan, _ in made:
        plan.gates["delay_ps"] = delay_ps
    return Pattern(source, [plan for plan, _ in made], machine, [gates for _, gates in made])


def split(topology, shares=2, *overrides, sizes=(), **kernel):
    machine = machine_of(topology, *overrides)
    source = GemmSource(fp16_problem(96, 96, 128), replace(TILE, split_k=shares, tile_k=16, **kernel))
    chunks, output = chunks_of(sizes) if sizes else even_chunks(source.tiles, N), source.output_tiles()
    how = (machine.link.topology, machine.tracker.granularity)
    return Pattern(source, [split_k(output, shares, chunks, gpu, *how) for gpu in range(N)], machine)


def tile_bytes(source):
    """Whole sectors of each output tile, counted row by row."""
    return [sum(-(-int(t["run_bytes"]) // SECTOR_BYTES) * SECTOR_BYTES for _ in range(t["runs"]))
            for t in source.output_tiles()]  # fmt: skip


def chunk_bytes(pattern, gpu):
    """Bytes of a GPU's local chunks."""
    sizes, chunks = tile_bytes(pattern.source), pattern.plans[0].chunks
    return [sum(sizes[tile] for tile in chunks.span(gpu, local)) for local in range(N)]


def owner(chunks, tile):
    """The GPU that makes the chunk of a tile last."""
    return next(gpu for gpu in range(N) if tile in chunks.span(gpu, N - 1))


@pytest.mark.parametrize("order", [TileOrder.ROW, TileOrder.COLUMN])
@pytest.mark.parametrize("topology", ["fully_connected", "switch"])
def test_an_all_to_all_moves_each_block_once(topology, order):
    """Blocks are rows or columns of tiles, as the GEMM walks. Each GPU keeps the block that it owns."""
    pattern = exchange(topology, order)
    result, cluster = pattern.run()
    assert result.exactly_once, result.wrong
    sizes, chunks = tile_bytes(pattern.source), pattern.plans[0].chunks
    for number, gpu in enumerate(cluster.gpus):
        owned = sum(size for tile, size in enumerate(sizes) if owner(chunks, tile) == number)
        away = sum(sizes) - owned
        assert moved(gpu) == (sum(sizes), away, (N - 1) * owned, away)
        received = gpu.node.output.tiles[chunks.tiles :]
        came = {tile for tile in range(chunks.tiles) if received["arrived_bytes"][tile]}
        assert came == set(range(chunks.tiles)) - set(chunks.span(number, N - 1))
        for tile in came:  # by the place of the GPU that it comes from, in the order of the block
            behind = (number - owner(chunks, tile)) % N
            assert received["arrived"][tile] == 1 << behind
    columns = sum(gpu.node.channels["update_columns"].sum() for gpu in cluster.gpus)
    assert columns == 0  # stores, not additions


def owner_of_row(row, rows):
    """GPU g owns the panel -g mod N of A."""
    return next(-panel % N for panel in range(N) if row < rows * (panel + 1) // N)


@pytest.mark.parametrize("delay_ps", [0, 300_000])
@pytest.mark.parametrize("m", [256, 232, 96, 20])
@pytest.mark.parametrize("topology", ["ring", "fully_connected"])
def test_tiles_wait_for_the_rows_of_a(topology, m, delay_ps):
    """Tiles have 32 rows: panels of two rows of tiles, of parts of them, three rows for four GPUs, one for all."""
    pattern = gathered(topology, m, delay_ps=delay_ps)
    result, cluster = pattern.run(interval_ps=1_000_000)
    assert result.exactly_once, result.wrong
    owners = [owner_of_row(row, m) for row in range(m)]
    panel = [160 * owners.count(number) for number in range(N)]  # 80 halves per row
    for number, gpu in enumerate(cluster.gpus):
        leaves = sum(panel) - panel[(number + 1) % N] if topology == "ring" else (N - 1) * panel[number]
        assert moved(gpu)[1:] == (leaves, sum(panel) - panel[number], leaves)
        gates, tags = gpu.node.output.gates, pattern.gates[number]
        assert (gates["open_ps"] < NEVER).all()
        spans = gpu.spans()
        started = {int(s["tag"]): int(s["start_ps"]) for s in spans if s["kind"] == SpanKind.WORKGROUP}
        assert len(started) == pattern.source.tiles
        for tile, start_ps in started.items():
            opened_ps = gates["open_ps"][tags[tile]] + delay_ps if tags[tile] >= 0 else START_PS
            assert start_ps >= opened_ps
        gpu.flush_l2()
        assert moved_bytes(gpu)[Stream.COMPUTE_WRITE] == sum(tile_bytes(pattern.source))


@pytest.mark.parametrize("m", [256, 232, 96, 20])
def test_a_gate_needs_all_rows_of_other_gpus_that_its_tiles_read(m):
    pattern = gathered("switch", m)
    rows_of_tile = pattern.source.output_tiles()["row"]
    for number, (plan, tags) in enumerate(zip(pattern.plans, pattern.gates, strict=True)):
        needed, brought = ({gate: set() for gate in range(len(plan.gates))} for _ in range(2))
        for tile, gate in enumerate(tags.tolist()):
            first = int(rows_of_tile[tile]) * 32
            read = {row for row in range(first, min(first + 32, m)) if owner_of_row(row, m) != number}
            assert (gate < 0) == (not read)
            if read:
                needed[gate] |= read
        begins = np.cumsum([0, *plan.buffers[1].tiles["runs"]])
        for region in plan.regions:
            if region.gate is not None:
                brought[region.gate] |= set(range(begins[region.first], begins[region.end]))
        assert needed == brought


@pytest.mark.parametrize("epilogue", list(Epilogue))
@pytest.mark.parametrize("shares", [2, 3])
@pytest.mark.parametrize("topology", ["ring", "fully_connected"])
def test_shares_of_a_split_gemm_meet_in_memory(topology, shares, epilogue):
    pattern = split(topology, shares, sizes=(2, 4, 1, 2), epilogue=epilogue)
    result, cluster = pattern.run()
    assert result.exactly_once, result.wrong
    for number, gpu in enumerate(cluster.gpus):
        local = chunk_bytes(pattern, number)
        arriving = sum(local[1:]) if topology == "ring" else (N - 1) * local[-1]
        assert moved(gpu) == (shares * sum(local), sum(local[:-1]), arriving, sum(local[:-1]))
        tiles, tracked = gpu.node.output.tiles, gpu.node.output.tracker[0]["triggers"]
        assert tracked == len(tiles) and (tiles["local_bytes"] == shares * tiles["bytes"]).all()
        wavefronts = gpu.node.output.wavefronts
        assert (wavefronts["counted_bytes"] == wavefronts["threshold_bytes"]).all()


def test_a_split_gemm_on_one_gpu_for_all():
    explicit = split("ring", sizes=())
    explicit.source = GemmSource(fp16_problem(128, 128, 128), replace(explicit.source.kernel))
    chunks, output = even_chunks(16, N), explicit.source.output_tiles()
    explicit.plans = [split_k(output, 2, chunks, gpu, explicit.machine.link.topology) for gpu in range(N)]
    together, _ = explicit.run()
    alone = run_plan(explicit.machine, explicit.plans, explicit.kernels, explicit=False)
    assert alone.exactly_once and alone.figures["simulated_gpus"] == 1
    assert (alone.dram_bytes[1:] == together.dram_bytes[1:]).all() and alone.link_bytes == together.link_bytes


@pytest.mark.parametrize("policy", ["tile", "paced", "chunk"])
@pytest.mark.parametrize("make", [exchange, gathered, split])
def test_the_policy_of_dma_engines_changes_no_byte(make, policy):
    places = {exchange: ("fully_connected", TileOrder.ROW), gathered: ("ring", 256), split: ("ring", 2)}[make]
    result, _ = make(*places, f"dma.policy={policy}", "dma.engines=3", "tracker.count_at=service").run()
    usual, _ = make(*places).run()
    assert result.exactly_once, result.wrong
    assert (result.dram_bytes[1:] == usual.dram_bytes[1:]).all() and result.link_bytes == usual.link_bytes


@pytest.mark.parametrize("make", [exchange, split])
def test_parts_of_wavefronts_move_the_bytes_of_whole_tiles(make):
    warps, parts = {"warps_m": 2, "warps_n": 1}, "tracker.granularity=wavefront"
    if make is split:
        whole, other = split("ring", 2, **warps), split("ring", 2, parts, **warps)
    else:
        whole, other = exchange(), exchange("fully_connected", TileOrder.ROW, parts)
    (one, _), (result, cluster) = whole.run(), other.run()
    assert result.exactly_once, result.wrong
    assert (result.dram_bytes[1:] == one.dram_bytes[1:]).all() and result.link_bytes == one.link_bytes
    times = 2 if make is split else 1
    assert all(
        gpu.node.dmas["descriptors"].sum() == times * gpu.node.output.tiles["sends"].sum() for gpu in cluster.gpus
    )


def test_a_tracker_without_an_entry_for_each_tile_cannot_follow_a_split_gemm():
    """The second shares come when the first ones of all tiles have; T3 alone is content with any."""
    words = (
        r"tile \d+ of output wait for each other in a circle .* waits for an entry of the Tracker before it stores GPU"
    )
    with pytest.raises(UserError, match=words):
        split("ring", 2, "tracker.entries=4", "tracker.ways=2").run()
    assert split("ring", 2, "tracker.entries=16", "tracker.ways=2").run()[0].exactly_once


def sends(region):
    return bool(region.sends)


def kept(region):
    return not region.sends and region.expects


def received(region):
    return region.buffer == RECEIVED


def own_rows(region):
    return region.buffer == ROWS and not region.expects


def passed_on(region):
    return region.buffer == ROWS and region.expects and region.sends


ALL_TO_ALL, GATHERED, SPLIT = exchange(), gathered("ring"), split("ring")


@pytest.mark.parametrize(
    ("pattern", "which", "fields", "words"),
    [
        (ALL_TO_ALL, sends, {"sends": ()}, "GPU 3 waits for 1 contributions|GPU 2 waits|GPU 0 waits for 1"),
        (ALL_TO_ALL, sends, {"expects": 2}, "GPU 1 waits for 2 contributions to tile 12 of output, but 1 come"),
        (ALL_TO_ALL, sends, {"expects": 0}, "GPU 1, tile 12 of output is sent on but expects nothing"),
        (ALL_TO_ALL, received, {"expects": 0}, "GPU 1 expects nothing for tile 12 of received, .* would be lost"),
        (ALL_TO_ALL, received, {"expects": 2}, "GPU 1 waits for 2 contributions to tile 12 of received, but 1 come"),
        (GATHERED, own_rows, {"sends": ()}, "GPU 2 waits for 1 contributions to tile 6 of rows of A, but 0 come"),
        (GATHERED, passed_on, {"sends": ()}, "GPU 2 waits for 1 contributions to tile 0 of rows of A, but 0 come"),
        (GATHERED, passed_on, {"gate": None}, "workgroups of GPU 1 wait for a gate that no region opens"),
        (GATHERED, passed_on, {"expects": 2}, "GPU 1 waits for 2 contributions to tile 0 of rows of A, but 1 come"),
        (SPLIT, sends, {"expects": 1}, "GPU 1 waits for 1 contributions to tile 6 of output, but 2 come: .* too early"),
        (SPLIT, sends, {"expects": 3}, "GPU 1 waits for 3 contributions to tile 6 of output, but 2 come: .* for ever"),
        (SPLIT, sends, {"sends": ()}, "GPU 2 waits for 3 contributions to tile 6 of output, but 2 come"),
    ],
)
def test_a_plan_with_a_mistake_is_refused(pattern, which, fields, words):
    with pytest.raises(UserError, match=f"plan: .*({words})"):
        pattern.changed(1, which, **fields).run()


def test_what_is_sent_twice_is_refused():
    for pattern in (ALL_TO_ALL, GATHERED, SPLIT):
        region = next(region for region in pattern.plans[1].regions if region.sends)
        with pytest.raises(UserError, match=r"plan: GPU \d waits for \d contributions to tile \d+ of .*too early"):
            pattern.changed(1, sends, sends=region.sends * 2).run()


def swap_tags(cluster, _):
    """Two tiles that GPU 1 sends take each other's place at the receiver."""
    records = cluster.gpus[1].node.output.sends
    for name in ("tag", "shift_bytes"):
        records[name][:2] = records[name][1::-1]


def wrong_gpu(cluster, _):
    """What GPU 1 sends first goes over another port."""
    records = cluster.gpus[1].node.output.sends
    records["port"][0] = (records["port"][0] + 1) % 3


def same_share(_, launches):
    """The second workgroup of a tile says that it is the first again: the sum would lack a share."""
    launches[1][0].tags[:] %= len(launches[1][0].tags) // 2


@pytest.mark.parametrize(
    ("pattern", "fault", "words"),
    [
        (ALL_TO_ALL, swap_tags, "arrived sectors of 2 tiles"),
        (ALL_TO_ALL, wrong_gpu, "arrived bytes of 1 tiles"),
        (SPLIT, swap_tags, "arrived"),
        (SPLIT, same_share, "GPU 1: local sectors of 9 tiles, the first is 0"),
    ],
)
def test_a_fault_in_the_machine_is_found_by_the_ledger(pattern, fault, words):
    result, _ = pattern.run(fault)
    assert not result.exactly_once and any(words in one for one in result.wrong), result.wrong


def test_chunks_that_are_not_alike_cannot_be_exchanged():
    source = GemmSource(fp16_problem(160, 112, 32), TILE)
    chunks = even_chunks(source.tiles, N)
    with pytest.raises(UserError, match="goes to one of received of another shape"):
        for gpu in range(N):
            all_to_all(source.output_tiles(), chunks, gpu, machine_of("switch").link.topology)
    with pytest.raises(UserError, match="ring of 4 GPUs: no link to the GPU 2 ahead"):
        exchange("ring")


def test_each_gpu_has_rows_to_send():
    with pytest.raises(UserError, match="gpus: found 4 for 3 rows of A"):
        gathered("switch", 3)


def test_one_gpu_for_all_takes_a_second_buffer_of_equal_parts():
    for pattern in (exchange(), gathered("ring"), gathered("switch", 32)):
        one, every = (run_plan(pattern.machine, pattern.plans, pattern.kernels, explicit=e) for e in (False, True))
        assert one.exactly_once and (one.figures["simulated_gpus"], every.figures["simulated_gpus"]) == (1, N)
        assert one.link_bytes == every.link_bytes
        assert one.dram_bytes[1:].tolist() == every.dram_bytes[1:].tolist()


def test_the_ledger_follows_each_share():
    """Odd weights: of two shares, the same one twice is not both."""
    pattern = split("ring")
    pattern.run()
    plan = pattern.plans[0]
    assert set(plan.counts.local) == {2} and set(plan.counts.local_weight) == {1 + 3}
    assert np.unique(plan.counts.contributors).tolist() == [0, 0b10, 0b110, 0b1110]
