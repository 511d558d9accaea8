"""Plans: those that come with t3sim lose and double nothing; their records, wavefronts and limits."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.collective.check import check_regions
from sim.collective.chunks import chunks_of, even_chunks
from sim.collective.on_cus import all_gather, all_reduce, reduce_scatter
from sim.collective.plans import fused, fused_regions
from sim.collective.space import (
    OUTPUT,
    Buffer,
    Region,
    Send,
    check_tracker,
    make_spaces,
    make_tiles,
    make_wavefronts,
    map_regions,
)
from sim.collective.topology import port_distances
from sim.host.cluster import Cluster, can_be_symmetric, make_mirrors
from sim.hw.request import Op
from sim.machine.build import build
from sim.presets import load_preset, presets
from sim.presets.preset import BORROWED, KINDS
from sim.scenario.scenario import Scenario, simulate_scenario
from sim.spec import Granularity, Topology
from tests.support.plain_records import kernel_view
from tests.support.programs import small_preset
from tests.support.t3_cases import TILE, T3Case, fp16_problem
from tracer.coalesce import coalesce
from tracer.gemm.source import OUTPUT_TILE, Epilogue, GemmKernel, GemmSource
from traces.errors import UserError
from traces.schema import Kind, Space


@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=32), topology=st.sampled_from(list(Topology)))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_plans_of_t3_lose_nothing(sizes, topology):
    chunks = chunks_of(sizes)
    plans = [fused_regions(chunks, gpu, topology) for gpu in range(chunks.gpus)]
    check_regions(plans, chunks.tiles)
    for regions in plans:
        assert sorted(tile for r in regions for tile in range(r.first, r.end)) == list(range(chunks.tiles))


def test_one_gpu_is_no_collective():
    with pytest.raises(UserError, match="gpus: found 1, allowed are 2 to 64"):
        check_regions([[Region(0, 4, op=Op.UPDATE, expects=1)]], 4)


def buffer_of(count, name=OUTPUT, address=0, **fields):
    output = np.zeros(count, OUTPUT_TILE)
    output["address"], output["runs"], output["run_bytes"], output["pitch_bytes"] = np.arange(count) * 4096, 4, 64, 1024
    output["parts"] = (2, 64, 1, 1, 2)
    output["address"] += address
    for field, value in fields.items():
        output[field] = value
    return Buffer(name, output)


@pytest.mark.parametrize(
    ("regions", "words"),
    [
        ([Region(0, 4), Region(3, 6)], "region 1: tiles 3 to 6 overlap region 0"),
        ([Region(0, 2), Region(2, 7)], "region 1: tiles 2 to 7, allowed are 0 to 6"),
        ([Region(-1, 2)], "region 0: tiles -1 to 2"),
        ([Region(4, 2)], "region 0: tiles 4 to 2"),
        ([Region(0, 6, to=(2,))], "ring of 4 GPUs: no link to the GPU 2 ahead; allowed are 1, 3"),
        ([Region(0, 6, expects=2, sends=(Send(0),))], "no link to the GPU 0 ahead"),
        ([Region(0, 6, buffer="input")], "region 0: buffer input, allowed are output"),
        ([Region(0, 6, to=(Send(1, buffer="input"),))], "region 0: buffer input, allowed are output"),
        ([Region(0, 4, sends=(Send(1, first=3),))], "region 0: it goes to tiles 3 to 7 of output, allowed are 0 to 6"),
    ],
)
def test_regions_that_overlap_or_lead_nowhere_are_refused(regions, words):
    with pytest.raises(UserError, match=words):
        map_regions([buffer_of(6)], regions, Topology.RING, 4)


def test_what_regions_write_into_tiles():
    regions = [
        Region(0, 2, to=(3,), op=Op.UPDATE),
        Region(2, 3, op=Op.UPDATE, expects=2, sends=(Send(1),), chunk=7, granularity=Granularity.WAVEFRONT),
        Region(3, 5, op=Op.UPDATE, expects=4, gate=1),
    ]
    tiles, sends = map_regions([buffer_of(6)], regions, Topology.RING, 4)
    assert tiles["routed"].tolist() == [1, 1, 1, 1, 1, 0] and tiles["stay"].tolist() == [0, 0, 1, 1, 1, 0]
    assert tiles["stores"].tolist() == [1, 1, 0, 0, 0, 0] and tiles["sends"].tolist() == [0, 0, 1, 0, 0, 0]
    assert tiles["own"].tolist() == tiles["entry"].tolist() == [0, 0, 1, 1, 1, 0]
    assert sends["port"][[*tiles["first_store"][:2], tiles["first_send"][2]]].tolist() == [1, 1, 0]
    assert sends["tag"].tolist() == [0, 1, 2] and not sends["shift_bytes"].any()
    assert tiles["chunk"][2] == 7 and tiles["gate"].tolist() == [-1, -1, -1, 1, 1, -1]
    assert tiles["threshold_bytes"].tolist() == [0, 0, 2 * 256, 4 * 256, 4 * 256, 0]  # bytes of the tile x updates
    assert tiles["granularity"].tolist() == [0, 0, Granularity.WAVEFRONT, 0, 0, 0]
    wavefronts = make_wavefronts(tiles)
    expected = [[128 * updates] * 2 for updates in (0, 0, 2, 4, 4, 0)]  # two of the four rows each
    assert wavefronts["threshold_bytes"].tolist() == expected
    assert make_wavefronts(make_tiles(buffer_of(6).tiles)).shape == (6, 0)  # nothing is tracked


def test_tiles_go_to_other_tiles_of_another_buffer():
    """Stores and sends of two GPUs, in turn; each tile's records lie together."""
    buffers = [buffer_of(4), buffer_of(6, "received", 1 << 20)]
    region = Region(1, 3, to=(Send(1, first=0), 3), expects=1, sends=(Send(1, Op.WRITE, "received", 4),))
    kept = Region(5, 6, to=(), expects=1, buffer="received")
    tiles, sends = map_regions(buffers, [region, kept], Topology.RING, 4)
    stores = [sends[first : first + 2] for first in tiles["first_store"][1:3]]
    assert [(one["port"].tolist(), one["tag"].tolist()) for one in stores] == [([0, 1], [0, 1]), ([0, 1], [1, 2])]
    assert stores[1]["shift_bytes"].tolist() == [-4096, 0] and set(stores[0]["op"]) == {Op.WRITE}
    sent = sends[tiles["first_send"][1:3]]
    assert sent["tag"].tolist() == [4 + 4, 4 + 5] and sent["shift_bytes"].tolist() == [(1 << 20) + 3 * 4096] * 2
    assert tiles["routed"][9] == tiles["entry"][9] == 0 and tiles["threshold_bytes"][9] == 256
    spaces = make_spaces(tiles, buffers, 4)
    assert spaces[["first_tag", "tiles"]].tolist() == [(0, 4), (4, 6)]
    assert spaces[["first_byte", "end_byte"]].tolist() == [(0, 3 * 4096 + 3200), (1 << 20, (1 << 20) + 5 * 4096 + 3200)]


@pytest.mark.parametrize(
    ("field", "value"),
    [("runs", 3), ("run_bytes", 32), ("pitch_bytes", 2048), ("address", 64), ("parts.warps", 1), ("parts.bytes", 32)],
)
def test_tiles_that_do_not_fit_are_not_sent(field, value):
    buffers = [buffer_of(4), buffer_of(4, "received", 1 << 20)]
    values = buffers[1].tiles
    for name in field.split("."):
        values = values[name]
    values[2] += value
    region = Region(1, 3, expects=1, sends=(Send(1, buffer="received"),))
    with pytest.raises(UserError, match="tile 2 of output goes to one of received of another shape"):
        map_regions(buffers, [region], Topology.RING, 4)


def test_buffers_that_overlap_are_refused():
    buffers = [buffer_of(4), buffer_of(4, "received", 3 * 4096)]
    tiles, _ = map_regions(buffers, [], Topology.RING, 4)
    with pytest.raises(UserError, match="buffers output and received: their addresses overlap"):
        make_spaces(tiles, buffers, 4)


@pytest.mark.parametrize("epilogue", list(Epilogue))
@pytest.mark.parametrize(("m", "n"), [(96, 96), (90, 70), (33, 1)])
def test_thresholds_of_wavefronts_are_what_each_of_them_stores_times_the_updates(m, n, epilogue):
    """Sectors counted event by event; ragged tiles have wavefronts with little or nothing."""
    kernel = replace(TILE, tile_m=64, tile_n=64, warps_m=2, warps_n=2, epilogue=epilogue)
    source = GemmSource(fp16_problem(m, n, 32), kernel)
    region = Region(0, source.tiles, op=Op.UPDATE, expects=3)
    tiles, _ = map_regions([Buffer(OUTPUT, source.output_tiles())], [region], Topology.RING, 2)
    found = make_wavefronts(tiles)
    line, sectors, full = (np.zeros(128, kind) for kind in (np.int64, np.int8, np.int8))
    for workgroup in source.workgroups():
        for warp in range(kernel.warps):
            events = workgroup.events[workgroup.first_event[warp] : workgroup.first_event[warp + 1]]
            stored = 0
            for copy in events[events["kind"] == Kind.BULK]:
                rows, row_bytes = int(copy["work"]), int(copy["stride"])
                stored += sum(
                    32 * len({(int(copy["base"]) + r * int(copy["row_stride"]) + b) // 32 for b in range(row_bytes)})
                    for r in range(rows)
                )
            for event in events[(events["kind"] == Kind.STORE) & (events["space"] != Space.SHARED)]:
                count = coalesce(kernel_view(np.array([event]))[0], workgroup.addresses, line, sectors, full)
                stored += 32 * sum(int(mask).bit_count() for mask in sectors[:count])
            own = found[workgroup.index, warp]
            assert own["threshold_bytes"] == 3 * stored and own["bytes"] == stored
    assert (found["bytes"].sum(axis=1) == tiles["bytes"]).all()


@pytest.mark.parametrize(("field", "value"), [("address", 16), ("pitch_bytes", 1000)])
def test_tiles_that_share_sectors_are_refused(field, value):
    output = np.zeros(2, OUTPUT_TILE)
    output["runs"], output["run_bytes"], output["pitch_bytes"] = 2, 64, 1024
    output[field] = value
    with pytest.raises(UserError, match=rf"output tile {field}: found {value}, allowed are multiples of 32.*pad"):
        make_tiles(output)
    output["runs"] = 1  # the pitch of a single row does not matter
    assert field == "address" or len(make_tiles(output)) == 2


def tracked(updates=2, granularity=Granularity.WORKGROUP, **kernel):
    """Tiles of 32 KB of a GEMM, all DMA."""
    source = GemmSource(fp16_problem(128, 128, 32), replace(GemmKernel(), **kernel))
    region = Region(0, 1, op=Op.UPDATE, expects=updates, sends=(Send(1),), granularity=granularity)
    return map_regions([Buffer(OUTPUT, source.output_tiles())], [region], Topology.RING, 4)[0]


def test_a_tracker_needs_a_counter_per_wavefront():
    machine = load_preset("t3_2024", ["tracker.wavefronts=7"]).machine
    check_tracker(machine, tracked(warps_m=2, warps_n=2))
    with pytest.raises(UserError, match=r"tracker.wavefronts: found 7, but workgroups have 8 wavefronts.*too small"):
        check_tracker(machine, tracked())


def test_a_counter_holds_the_bytes_that_its_wavefront_waits_for():
    machine = load_preset("t3_2024", ["tracker.counter_bits=13"]).machine
    check_tracker(machine, tracked())  # 2 x 4 KB
    words = "tracker.counter_bits: found 13, but a wavefront waits for 12288 bytes of updates: allowed are 14 and more"
    with pytest.raises(UserError, match=words):
        check_tracker(machine, tracked(updates=3))


def test_parts_that_no_descriptor_can_name_are_refused():
    machine = load_preset("t3_2024").machine
    check_tracker(machine, tracked(epilogue=Epilogue.STAGED))
    check_tracker(machine, tracked(granularity=Granularity.WAVEFRONT))
    with pytest.raises(UserError, match=r"tracker.granularity: found wavefront.*epilogue staged.*allowed is workgroup"):
        check_tracker(machine, tracked(granularity=Granularity.WAVEFRONT, epilogue=Epilogue.STAGED))


def test_whole_chunks_have_no_parts():
    words = "tracker.granularity: found wavefront, allowed is workgroup, as dma.policy = chunk sends whole chunks"
    with pytest.raises(UserError, match=words):
        load_preset("t3_2024", ["tracker.granularity=wavefront", "dma.policy=chunk"])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("tracker.entries=100", "tracker.entries: found 100, allowed is a multiple of tracker.ways = 8"),
        ("tracker.ways=0", "tracker.ways.*found 0"),
        ("tracker.granularity=warp", "tracker.granularity.*allowed are workgroup, wavefront"),
        ("tracker.count_at=later", "tracker.count_at.*allowed are enqueue, service"),
        ("link.efficiency=0.0", "link.efficiency: found 0"),
        ("link.efficiency=1.5", "link.efficiency.*found 1.5"),
        ("link.latency_ps=0", "link.latency_ps.*found 0"),
        ("link.latency_ps=999", "link.latency_ps: found 999, allowed is 1,000 to 100,000,000: GPUs run alone"),
        ("link.GB_per_s=1e7", "link.GB_per_s: found 10000000.0, allowed is 0.1 to 100,000: a slower"),
        ("link.topology=torus", "link.topology.*allowed are ring, fully_connected, switch"),
        ("dma.policy=burst", "dma.policy.*allowed are tile, paced, chunk"),
        ("mca.medium_from=0.6", "mca.medium_from: found 0.6, allowed is at most mca.strict_from = 0.5"),
        ("collective.warps=65", "collective.warps: found 65, allowed is 1 to 64: the warps of a CU"),
        ("hbm.arbiter=mcaa", "hbm.arbiter.*mca"),
    ],
)
def test_machines_that_make_no_sense_are_refused(override, words):
    with pytest.raises(UserError, match=words):
        load_preset("t3_2024", [override])


@pytest.mark.parametrize("name", presets())
def test_every_preset_has_links_tracker_dma_and_collectives_with_their_sources(name):
    preset = load_preset(name)
    for unit in ("link", "network", "tracker", "dma", "mca", "collective"):
        for field in msgspec.structs.fields(type(getattr(preset.machine, unit))):
            source = preset.sources[f"{unit}.{field.name}"]
            assert source.source.strip() and source.kind in (*KINDS, BORROWED)
    build(preset.machine, ports=2)


def test_the_fabric_of_the_paper():
    """Table 1: ring, 150 GB/s, 500 ns; 256 Tracker entries."""
    machine = load_preset("t3_2024").machine
    assert (machine.link.topology, machine.link.GB_per_s, machine.link.latency_ps) == (Topology.RING, 150.0, 500_000)
    assert (machine.tracker.entries, machine.tracker.wavefronts) == (256, 8)
    assert {machine.mca.strict, machine.mca.medium, machine.mca.loose} == {5, 10, 30}


def test_a_preset_may_say_otherwise(tmp_path):
    text = 'extends = "t3_2024"\n[link]\nGB_per_s = { value = 300.0, kind = "assumed", source = "twice" }\n'
    path = tmp_path / "fast.toml"
    path.write_text(text)
    fast = load_preset(path)
    assert fast.machine.link.GB_per_s == 300.0 and fast.machine.link.latency_ps == 500_000
    assert (fast.sources["link.GB_per_s"].source, fast.sources["link.latency_ps"].kind) == ("twice", "paper")


def test_a_case_whose_chunks_are_not_those_of_its_output_is_refused():
    preset = small_preset()
    problem, kernel = fp16_problem(96, 96, 32), TILE
    for gpus, cut, words in (
        (3, (4, 4), "found 8 tiles for 2 GPUs, allowed are the output's 9 tiles for 3"),
        (2, (4, 4), "8 tiles"),
    ):
        with pytest.raises(UserError, match=words):
            simulate_scenario(Scenario(preset, problem, kernel, gpus, chunks_of(cut)))
    with pytest.raises(UserError, match="gpus: found 16 for an output of 9 tiles"):
        simulate_scenario(Scenario(preset, problem, GemmKernel(tile_m=32, tile_n=32, warps_m=1, warps_n=1), 16))


def test_unequal_chunks_need_all_gpus():
    case = T3Case(96, 96, 32, 3, sizes=(2, 4, 3), explicit=False)
    plan = fused(case.source.output_tiles(), case.chunks, 0, Topology.RING)
    assert not can_be_symmetric(plan, port_distances(Topology.RING, 3))
    with pytest.raises(UserError, match=r"symmetric: chunks of \[2, 4, 3\] tiles are not equal; run all GPUs"):
        make_mirrors(plan, (1, 2))
    assert len(case.run("t3")[1].gpus) == 3  # chosen without being asked


def test_chunks_of_equal_count_and_unequal_tiles_need_all_gpus():
    """80 columns in tiles of 32: every third tile is narrow, so chunks of four tiles differ."""
    case = T3Case(64, 80, 32, 3, explicit=False)
    plan = fused(case.source.output_tiles(), case.chunks, 0, Topology.RING)
    with pytest.raises(UserError, match="differ in shape"):
        make_mirrors(replace(plan, chunks=even_chunks(6, 3)), (1, 2))


def test_a_cluster_takes_a_plan_for_each_gpu():
    case = T3Case(96, 96, 32, 3)
    plan = fused(case.source.output_tiles(), case.chunks, 0, Topology.RING)
    with pytest.raises(UserError, match="plans: found 2, allowed is one for each of 3 GPUs"):
        Cluster(case.machine, [plan, plan])


@pytest.mark.parametrize("topology", list(Topology))
@pytest.mark.parametrize("sizes", [(2, 2), (3, 1, 2), (1, 2, 3, 4)])
def test_counts_balance_over_all_gpus(sizes, topology):
    """What is sent of a tile arrives; every tile has one final sum in a reduction, none elsewhere."""
    chunks, output = chunks_of(sizes), T3Case(32, 32 * sum(sizes), 16, len(sizes)).source.output_tiles()
    for make, phases, reduced in ((fused, 1, 1), (reduce_scatter, 1, 1), (all_gather, 1, 0), (all_reduce, 2, 1)):
        plans = [make(output, chunks, gpu, topology) for gpu in range(len(sizes))]
        sent, arrived, final = (sum(getattr(p.counts, name) for p in plans) for name in ("sent", "arrived", "final"))
        assert (sent == arrived).all() and (sent == len(sizes) - 1).all()
        assert final[: chunks.tiles].tolist() == [reduced] * chunks.tiles and len(final) == phases * chunks.tiles
