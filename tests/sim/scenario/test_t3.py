"""Fused GEMMs and collectives on N GPUs: every byte of design.md's section 5, whatever shape, machine or delay."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sim.hw.request import SECTOR_BYTES
from sim.run.gpus_run import SideBySideRun
from sim.spec import Arbiter
from tests.support.paths import ROOT
from tests.support.t3_cases import FOUR_WARPS, NARROW, PARTS, TILE, T3Case, check_traffic, clusters
from tests.support.t3_plain import FIELDS, outcome
from tracer.gemm.source import Epilogue, Layout, TileOrder
from traces.errors import UserError

SMALL_TILE = replace(TILE, tile_m=16, tile_n=16, tile_k=16)
BIG_TILE = replace(TILE, tile_m=64, tile_n=64, warps_m=2, warps_n=2)


@st.composite
def cases(draw):
    """Anything: shape, N, tile, chunks, policies, links, Tracker, jitter, buffers."""
    gpus = draw(st.sampled_from([2, 2, 3, 4, 8]))
    tile_m, tile_n = draw(st.sampled_from([16, 32, 64])), draw(st.sampled_from([16, 32, 64]))
    layout = draw(st.sampled_from(Layout))
    along = tile_n if layout == Layout.ROW else tile_m
    halves = [1, 2] if along // 2 * 2 % SECTOR_BYTES == 0 else [1]  # two warps along a row may not share sectors
    kernel = replace(
        TILE,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=16,
        warps_m=draw(st.sampled_from(halves if layout == Layout.COLUMN else [1, 2])),
        warps_n=draw(st.sampled_from(halves if layout == Layout.ROW else [1, 2])),
        order=draw(st.sampled_from(TileOrder)),
        epilogue=draw(st.sampled_from(Epilogue)),
    )
    across, down = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    tiles = across * down
    assume(tiles >= gpus)
    sizes = ()
    if draw(st.booleans()):
        inner = draw(st.lists(st.integers(1, tiles - 1), min_size=gpus - 1, max_size=gpus - 1, unique=True))
        sizes = tuple(np.diff([0, *sorted(inner), tiles]).tolist())
    entries, ways = draw(st.sampled_from([(0, 8), (256, 8), (1, 1), (2, 1), (4, 2), (8, 8)]))
    choices = {
        "link.topology": ["ring", "ring", "fully_connected", "switch"],
        "link.GB_per_s": [20.0, 150.0, 900.0],
        "link.latency_ps": [40_000, 500_000, 3_000_000],
        "link.header_bytes": [0, 16],
        "dma.policy": ["tile", "paced", "chunk"],
        "dma.engines": [1, 2, 5],
        "tracker.count_at": ["enqueue", "service"],
        "hbm.queue": ["unified", "split"],
        "hbm.turn": ["request", "burst", "row"],
        "hbm.update_scope": ["same_group", "bank", "channel"],
        "l2.dram_order": ["streams", "in_order"],
        "l2.fabric": ["past", "through"],
        "dispatch.jitter_ps": [0, 200_000, 3_000_000],
        "dispatch.chunks": ["in_turn", "one_by_one"],
        "collective.slices": [1, 2, 5],
        "collective.step_ps": [0, 100_000],
        "collective.unroll": [1, 4, 16],
        "collective.warps": [1, 4],
    }
    if kernel.epilogue != Epilogue.STAGED and draw(st.booleans()):
        choices |= {"tracker.granularity": ["wavefront"], "dma.policy": ["tile", "paced"]}
    chosen = [f"{name}={draw(st.sampled_from(values))}" for name, values in choices.items()]
    narrow = NARROW if draw(st.integers(0, 2)) == 0 else ()
    return T3Case(
        m=tile_m * down - draw(st.integers(0, tile_m - 1)),
        n=tile_n * across - draw(st.integers(0, tile_n - 1)),
        k=draw(st.sampled_from([16, 40])),
        gpus=gpus,
        kernel=kernel,
        sizes=sizes,
        settings=(*chosen, f"tracker.entries={entries}", f"tracker.ways={ways}", "tracker.counter_bits=20", *narrow),
        arbiter=draw(st.sampled_from(list(Arbiter)[:5])),
        explicit=draw(st.booleans()),
        layout=layout,
    )


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
@given(case=cases())
@settings(max_examples=12, deadline=None, derandomize=True)
def test_traffic_is_exact_and_every_sum_counts_once(part, case):
    check_traffic(case, part, *case.run(part))


@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("part", PARTS)
def test_traffic_of_equal_chunks_in_closed_form(part, gpus):
    """The last column of the table: multiples of D/N."""
    result, _ = T3Case(256, 128, 32, gpus, explicit=False).run(part)
    d = 256 * 128 * 2
    expected = {
        "t3": (gpus - 1, gpus - 2, gpus - 1, gpus - 1),
        "rs": (0, 2 * gpus - 1, gpus, gpus - 1),
        "rs_nmc": (0, gpus - 1, gpus - 1, gpus - 1),
        "ag": (0, gpus - 1, gpus - 1, gpus - 1),
        "all_reduce": (0, 3 * gpus - 2, 2 * gpus - 1, 2 * gpus - 2),
    }[part]
    found = (*result.dram_bytes[1:].tolist(), result.link_bytes)
    assert found == tuple(share * d // gpus for share in expected)


WAYS = {
    "in order": ("l2.dram_order=in_order", "hbm.turn=row", "hbm.update_scope=bank"),
    "through l2": ("l2.fabric=through", "hbm.turn=burst"),
    "in order, through l2": ("l2.fabric=through", "l2.dram_order=in_order", "hbm.queue=split"),
    "stores": ("l2.write=through", "l2.write_miss=all", "l2.fabric=through"),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("way", WAYS)
def test_no_way_to_memory_changes_the_traffic(way, part):
    for arbiter in (Arbiter.ROUND_ROBIN, Arbiter.MCA):
        settings_ = (*NARROW, *WAYS[way])
        case = T3Case(96, 96, 64, 3, sizes=(2, 4, 3), settings=settings_, arbiter=arbiter)
        result, cluster = case.run(part)
        check_traffic(case, part, result, cluster)
        for gpu in cluster.gpus:
            node = gpu.node
            lines, sent = int(node.dmas["lines"].sum()), int(node.ports["packets"].sum())
            arrived = sum(int(node.wires[port["in_wire"]]["taken"]) for port in node.ports)
            of_cus = int(node.noc["request_packets"].sum()) - (sent - lines)  # the others leave over links
            of_fabric = lines + arrived if "l2.fabric=through" in settings_ else 0
            assert int(node.banks["requests_served"].sum()) == of_cus + of_fabric


@pytest.mark.parametrize("part", PARTS)
def test_a_column_major_output_is_the_transposed_one(part):
    """With tiles down the columns, chunks are those of the row-major product of swapped M and N: equal collectives."""
    across = T3Case(100, 168, 64, 3, replace(TILE, tile_m=16, tile_n=64), sizes=(2, 8, 11))
    down = replace(TILE, tile_m=64, tile_n=16, order=TileOrder.COLUMN)
    column = T3Case(168, 100, 64, 3, down, sizes=(2, 8, 11), layout=Layout.COLUMN)
    (found, cluster), (wanted, _) = column.run(part), across.run(part)
    check_traffic(column, part, found, cluster)
    assert found.link_bytes == wanted.link_bytes and (found.dram_bytes[1:] == wanted.dram_bytes[1:]).all()
    if part != "t3":  # the GEMM also loads A and B, whose order is another one
        assert found.time_ps == wanted.time_ps


FLAT = ("hbm.channels=1", "l2.banks=1", "link.GB_per_s=10.0")
"""One channel: all GPUs see the same memory, whatever chunk they begin with."""


@pytest.mark.parametrize("gpus", [2, 4])
def test_gpus_that_do_the_same_take_exactly_the_time_of_the_symmetric_machine(gpus):
    alone, ones = T3Case(512, 512, 128, gpus, BIG_TILE, settings=FLAT, explicit=False).run("t3")
    together, all_ = T3Case(512, 512, 128, gpus, BIG_TILE, settings=FLAT).run("t3")
    assert (len(ones.gpus), len(all_.gpus)) == (1, gpus)
    assert together.time_ps == alone.time_ps and together.kernel_ps == alone.kernel_ps
    assert (together.dram_bytes == alone.dram_bytes).all() and together.link_bytes == alone.link_bytes
    assert all(gpu.node.cus["last_exit_ps"].max() == alone.kernel_ps for gpu in all_.gpus)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["t3", "all_reduce"])
def test_sixty_four_gpus_are_a_set_of_64_bits(part):
    result, joined = T3Case(256, 256, 32, 64).run(part)
    assert len(joined.gpus) == 64 and result.exactly_once, result.wrong
    assert result.link_bytes == (2 if part == "all_reduce" else 1) * 63 * 256 * 256 * 2 // 64


def test_one_gpu_stands_for_sixty_four():
    result, joined = T3Case(512, 512, 32, 64, BIG_TILE, settings=FLAT, explicit=False).run("t3")
    assert len(joined.gpus) == 1 and result.exactly_once, result.wrong


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [2, 4, 8])
@pytest.mark.parametrize("part", ["t3", "rs", "ag"])
def test_the_symmetric_machine_agrees_with_explicit_ones(part, gpus):
    """Traffic exactly. Time within 1 %, where hashing of addresses makes the GPUs differ a little."""
    case = T3Case(512, 512, 512, gpus, BIG_TILE, settings=("link.GB_per_s=10.0", *INTERLEAVED), explicit=False)
    alone, _ = case.run(part)
    together, _ = replace(case, explicit=True).run(part)
    assert (together.dram_bytes == alone.dram_bytes).all() and together.link_bytes == alone.link_bytes
    assert alone.time_ps == pytest.approx(together.time_ps, rel=0.01)


INTERLEAVED = ("hbm.index=interleave", "l2.index=interleave", "l1.index=interleave")


def state(cluster):
    """All counters and times of every GPU."""
    gpus = sorted(zip((plan.gpu for plan in cluster.plans), cluster.gpus, strict=True), key=lambda pair: pair[0])
    found = []
    for _, gpu in gpus:
        node = gpu.node
        found += [array.tobytes() for array in (node.output.tiles, node.output.wavefronts, node.output.tracker)]
        found.append(node.output.released.tobytes())
        for records in (node.ports, node.dmas, *gpu.counters().values()):
            found.append({name: records[name].tobytes() for name in records.dtype.names})
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings_",
    [
        (),
        NARROW,
        ("link.credits=2", "dispatch.jitter_ps=400000"),
        ("link.topology=switch",),
        # Answers are on their way for long while stores wait for the link.
        (*NARROW, "l2.latency_clk=400", "link.latency_ps=3000000", "link.GB_per_s=5.0", "dispatch.jitter_ps=3000000"),
    ],
)
@pytest.mark.parametrize("part", ["t3", "all_reduce"])
def test_the_order_in_which_gpus_are_simulated_does_not_matter(part, settings_):
    case = T3Case(96, 96, 64, 3, settings=settings_, sizes=(2, 4, 3))

    def backwards(cluster, launches):
        for some in (cluster.gpus, cluster.plans, launches):
            some.reverse()

    forwards, cluster = case.run(part)
    with clusters(backwards) as seen:
        result = case._run(part)
    assert [plan.gpu for plan in seen[0].plans] == [2, 1, 0]
    assert (result.time_ps, result.link_bytes) == (forwards.time_ps, forwards.link_bytes)
    assert state(seen[0]) == state(cluster)


def test_the_same_run_gives_the_same_bits():
    case = T3Case(160, 96, 48, 3, settings=("dispatch.jitter_ps=300000",), sizes=(3, 7, 5))
    (one, first), (two, second) = (case.run("t3") for _ in range(2))
    assert one.totals == two.totals and one.figures == two.figures and one.time_ps == two.time_ps
    assert state(first) == state(second)


@pytest.mark.parametrize("granularity", ["workgroup", "wavefront"])
@pytest.mark.parametrize("entries", [1, 2, 8, 0])
def test_a_small_tracker_costs_time_and_no_byte(entries, granularity):
    settings_ = (f"tracker.entries={entries}", "tracker.ways=1", f"tracker.granularity={granularity}")
    case = T3Case(256, 128, 16, 4, replace(SMALL_TILE, warps_m=2), settings=settings_)
    result, cluster = case.run("t3")
    check_traffic(case, "t3", result, cluster)
    stalls = sum(int(gpu.node.output.tracker[0]["stalls"]) for gpu in cluster.gpus)
    assert (stalls > 0) == (entries > 0)
    tracked = case.chunks.tiles - len(case.chunks.span(0, 0))
    assert result.figures["tracker_triggers"] == tracked
    assert all(0 < gpu.node.output.tracker[0]["live_max"] <= tracked for gpu in cluster.gpus)


@pytest.mark.parametrize("shape", [(256, 256), (250, 232)])
@pytest.mark.parametrize("explicit", [True, False])
def test_parts_of_wavefronts_move_the_bytes_of_whole_tiles_and_the_first_goes_earlier(shape, explicit):
    whole, parts = (
        T3Case(*shape, 16, 4, FOUR_WARPS, settings=(f"tracker.granularity={name}",), explicit=explicit)
        for name in ("workgroup", "wavefront")
    )
    (one, before), (other, cluster) = whole.run("t3"), parts.run("t3")
    check_traffic(parts, "t3", other, cluster)
    assert (one.dram_bytes[1:] == other.dram_bytes[1:]).all() and one.link_bytes == other.link_bytes
    for result, descriptors in ((one, one.figures["dma_tiles"]), (other, sent_parts(cluster.plans[0]))):
        assert result.figures["dma_descriptors"] == descriptors
        reached = (cluster.gpus[0].node.output.wavefronts["threshold_bytes"] > 0).sum()
        assert result.figures["tracker_wavefronts"] == reached
    assert one.figures["dma_tiles"] == other.figures["dma_tiles"] == cluster.plans[0].tiles["sends"].sum()
    first_ps = [int(c.gpus[0].node.output.released[0, 2]) for c in (before, cluster)]
    assert first_ps[1] < first_ps[0]  # up to then both runs are the same


def sent_parts(plan):
    """Parts of the DMA tiles of a plan that lie in the output, for warps of 32 x 32."""
    tiles = plan.tiles[plan.tiles["sends"] > 0]
    return int((-(-tiles["runs"] // 32) * -(-tiles["run_bytes"] // 64)).sum())


def test_each_counter_holds_its_threshold_at_the_end():
    """Staged and direct, lines that hold two wavefronts' sectors: rows begin anywhere in a line."""
    for epilogue in Epilogue:
        case = T3Case(192, 144, 16, 3, replace(FOUR_WARPS, epilogue=epilogue), sizes=(3, 2, 4))
        _, cluster = case.run("t3")
        for gpu in cluster.gpus:
            counters = gpu.node.output.wavefronts
            assert counters.shape == (9, 4) and (counters["counted_bytes"] == counters["threshold_bytes"]).all()
            assert (counters["triggers"] == (counters["threshold_bytes"] > 0)).all()
            assert (gpu.node.output.tiles["counting"] == 0).all()


@pytest.mark.parametrize("strict_from", [0.0, 0.9])
def test_mca_takes_its_threshold_from_the_first_stage(strict_from):
    shares = ("mca.loose_from=0.0", "mca.medium_from=0.0", f"mca.strict_from={strict_from}", "mca.medium=11")
    result, cluster = T3Case(256, 128, 32, 4, settings=(*shares, "mca.strict=3"), explicit=False).run("t3")
    busy = result.figures["mca_occupancy"] / cluster.machine.hbm.queue_entries
    assert 0 < busy < 0.9
    assert result.figures["mca_threshold"] == (3 if strict_from == 0 else 11)
    assert set(cluster.gpus[0].node.channels["mca"]["limit"]) == {result.figures["mca_threshold"]}


def test_a_launch_overhead_delays_a_fused_gemm():
    case = T3Case(96, 96, 32, 3)
    late = T3Case(96, 96, 32, 3, settings=("dispatch.launch_ps=5000000",))
    assert late.run("t3")[0].time_ps >= case.run("t3")[0].time_ps + 4_900_000


def test_software_overlap_of_a_gemm_and_a_collective():
    """Both do what they do alone, slower, on CUs of their own."""
    case = T3Case(256, 256, 64, 4, BIG_TILE)
    common = {"preset": case.preset, "source": case.source, "chunks": case.chunks}
    result = SideBySideRun(kind="reduce_scatter", collective_cus=1, **common).execute()
    gemm_ps, collective_ps = result.figures["gemm_end_ps"], result.figures["collective_end_ps"]
    assert result.exactly_once and gemm_ps > 0 and 0 < collective_ps <= result.time_ps
    alone, _ = case.run("rs")
    assert (result.dram_bytes[2:] == alone.dram_bytes[2:]).all() and result.link_bytes == alone.link_bytes
    assert collective_ps > alone.kernel_ps
    for cus in (0, 4):
        with pytest.raises(UserError, match=rf"collective CUs: found {cus}, allowed are 1 to 3"):
            SideBySideRun(kind="all_gather", collective_cus=cus, **common).execute()


def test_a_link_shorter_than_a_time_window():
    for explicit in (False, True):
        case = T3Case(64, 64, 16, 2, settings=("link.latency_ps=2000",), explicit=explicit)
        check_traffic(case, "t3", *case.run("t3"))


@pytest.mark.parametrize("ack_bytes", [0, 8])
def test_collective_data_that_stay_in_l2_arrive_all_the_same(ack_bytes):
    settings = "collective.cache=allocate", f"noc.ack_bytes={ack_bytes}"
    for part in ("rs", "rs_nmc", "ag", "all_reduce"):
        for explicit in (False, True):
            case = T3Case(96, 96, 32, 3, settings=settings, explicit=explicit)
            result, _ = case.run(part)
            assert result.exactly_once, result.wrong
            d, chunk = 96 * 96 * 2, 96 * 96 * 2 // 3
            assert result.link_bytes == (2 if part == "all_reduce" else 1) * (d - chunk)


# --- What must not go unseen: the ledger finds every fault that is put in ---


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ({"split_k": 2, "tile_k": 16}, "split_k = 2: T3 .*cannot follow it: the Tracker .*leave split_k out"),
        ({"persistent": 3}, "persistent = 3: T3 .*leave persistent out"),
        ({"start_tile": 1}, "start_tile = 1: T3 .*leave start_tile out"),
        ({"tile_n": 48, "warps_n": 2}, r"warps_n = 2: warps would store 48 adjacent bytes"),
        ({"tile_n": 16, "warps_n": 2}, r"warps_n = 2: warps would store 16 adjacent bytes"),
        ({"tile_n": 40, "warps_n": 1}, r"tile_n = 40: tiles would store 80 adjacent bytes"),
    ],
)
def test_kernels_that_the_tracker_cannot_follow_are_refused(kernel, words):
    case = T3Case(96, 96, 32, 3, replace(TILE, **kernel))
    with pytest.raises(UserError, match=words):
        case.run("t3")


def test_warps_share_sectors_along_the_columns_of_a_column_major_output():
    kernel = replace(TILE, tile_m=16, tile_n=16, warps_m=2, warps_n=2)
    case = T3Case(96, 96, 32, 3, kernel, layout=Layout.COLUMN)
    with pytest.raises(UserError, match="warps_m = 2: warps would store 16 adjacent bytes"):
        case.run("t3")
    assert replace(case, kernel=replace(kernel, warps_m=1)).run("t3")[0].exactly_once


def test_a_tracker_with_fewer_counters_than_wavefronts_is_refused():
    case = T3Case(256, 256, 32, 3, BIG_TILE, settings=("tracker.wavefronts=3",))
    with pytest.raises(UserError, match=r"tracker.wavefronts: found 3, but workgroups have 4 wavefronts"):
        case.run("t3")
    assert replace(case, settings=("tracker.wavefronts=4",)).run("t3")[0].exactly_once


@pytest.mark.slow
def test_the_compiler_changes_nothing():
    """Fused GEMM and collective on three GPUs in plain Python."""
    answer = subprocess.run(
        [sys.executable, "-m", "tests.support.t3_plain"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    found, expected = json.loads(answer.stdout), json.loads(json.dumps(outcome()))
    assert found == expected and set(found[0]) == set(FIELDS)
