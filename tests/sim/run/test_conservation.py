"""Random kernels on machines with room and on one whose every buffer fills: nothing is lost, doubled or left behind."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.host.gpu import Gpu
from sim.run.one_gpu import simulate
from tests.support.programs import (
    SMALL,
    TIGHT,
    compute,
    kernel,
    lines,
    load,
    random_kernel,
    recount,
    row,
    small_preset,
    store,
)
from tracer.sequence import CommandSequence
from traces.schema import Cache, Kind

MACHINES = {
    "roomy": small_preset(),
    "tight": small_preset(size=TIGHT),
    "accelsim": small_preset(name="accelsim_qv100"),
    "split": small_preset("hbm.queue=split", "l1.index=hash", "hbm.bank_map=ro", "hbm.page=closed", size=TIGHT),
    "jitter": small_preset("dispatch.jitter_ps=100000", "cu.issue_per_clk=0.25", "noc.latency_clk=3"),
}


def check_totals(totals, expected):
    """Counters of one kernel, flushed, against a naive recount of its events."""
    read, l2_read = totals["l1.read_sectors"], totals["l2.read_sectors"]
    missed = read - totals["l1.read_hit_sectors"] - totals["l1.read_merged_sectors"]
    assert totals["cu.warp_instructions"] == expected.instructions
    assert totals["lsu.line_requests"] == expected.line_requests
    assert read == expected.loads
    assert totals["l1.write_sectors"] == expected.stores
    assert totals["lsu.atomic_sectors"] == totals["l2.atomic_sectors"] == expected.atomics
    assert totals["l2.uncached_read_sectors"] == expected.uncached_loads
    assert missed == l2_read + expected.uncached_loads
    assert totals["l2.uncached_write_sectors"] == expected.uncached_stores
    assert totals["l2.write_sectors"] == expected.stores - expected.uncached_stores
    found = totals["l2.read_hit_sectors"] + totals["l2.read_merged_sectors"] + totals["l2.read_miss_sectors"]
    assert found == l2_read
    fetched_for_atomics = totals["l2.atomic_miss_sectors"]
    assert totals["hbm.read_columns"] == totals["l2.read_miss_sectors"] + fetched_for_atomics + expected.uncached_loads
    assert fetched_for_atomics <= expected.atomics
    written_back = totals["l2.writeback_sectors"] + totals["l2.flush_sectors"]
    assert totals["hbm.write_columns"] == written_back + expected.uncached_stores
    assert written_back >= len(expected.written) or expected.uncached_stores
    assert totals["noc.request_packets"] == totals["l2.requests_served"]


def check_rest(gpu):
    """The machine is empty, and all its time windows are over."""
    node = gpu.node
    assert gpu.now_ps <= gpu.rest_ps
    left = {gpu.fifo_names[k]: int(f["tail"] - f["head"]) for k, f in enumerate(node.fifos) if f["tail"] != f["head"]}
    assert left == {}
    assert not node.lsus["loads_used"].any() and not node.l1s["entries_used"].any()
    assert not node.banks["misses_used"].any() and not node.banks["reads_out"].any()
    assert not node.channels["queued"].any() and not node.cus["residents"].any()
    assert (node.lsus["blocked_since_ps"] == -1).all() and (node.banks["blocked_since_ps"] == -1).all()
    assert not node.warps["warp"]["slot"]["count"].any()
    assert (node.fifos["fill_max"] <= node.fifos["limit"]).all()
    for free in (*node.l1s["free"], *node.lsus["free"]):
        assert sorted(free) == list(range(free.size))
    joiners = zip(node.l1s["joiner_next"], node.l1s["free_joiner"], strict=True)
    assert all(_length(links, head) == links.size for links, head in joiners)
    assert all(_length(node.waiters["next"], bank["free_miss"]) == bank["misses"] for bank in node.banks)


def _length(links, head):
    """Elements of a linked list."""
    seen = set()
    while head >= 0:
        assert head not in seen
        seen.add(int(head))
        head = links[head]
    return len(seen)


def run_on(machine, *kernels, flush=True):
    """(gpu, Results totals per kernel, end times)."""
    gpu = Gpu(machine)
    ends = []
    for one in kernels:
        ends.append(gpu.run_kernel(one, gpu.rest_ps, None))
        if flush:
            gpu.flush_l2()
    return gpu, ends


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
@given(seed=st.integers(0, 1 << 32), region=st.sampled_from([512, 1 << 13, 1 << 17]))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_random_kernels_are_conserved(name, seed, region):
    one, other = (random_kernel(seed + k, workgroups=12, events=5, region=(1 << 20, region)) for k in range(2))
    results = simulate(CommandSequence([one, other]), MACHINES[name])
    for result, source in zip(results.kernels, (one, other), strict=True):
        check_totals(result.totals, recount(source))
        assert result.totals["cu.workgroups"] == len(source.items)
    gpu, _ = run_on(MACHINES[name].machine, one, other)
    check_rest(gpu)


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_bytes_in_are_bytes_out(seed):
    """What is stored once leaves once: after the flush DRAM got every sector that was written, no other."""
    random = np.random.default_rng(seed)
    kinds = [Kind.STORE, Kind.REDUCE, Kind.ATOMIC, Kind.LOAD]
    programs = [
        [
            [
                row(
                    int(random.choice(kinds)),
                    base=128 * int(random.integers(64)) + 4 * int(random.integers(32)),
                    mask=0xFF,
                )
                for _ in range(6)
            ]
            for _ in range(2)
        ]
        for _ in range(8)
    ]
    source = kernel(programs)
    totals = simulate(CommandSequence([source]), MACHINES["roomy"]).kernels[0].totals
    expected = recount(source)
    assert totals["l2.writeback_sectors"] == 0  # all of it fits
    assert totals["hbm.write_columns"] == totals["l2.flush_sectors"] == len(expected.written)


def test_a_kernel_that_writes_more_than_l2_holds():
    machine = small_preset("l2.bytes=16384", "l2.ways=4")
    source = kernel([[[store(512 * (8 * g + e), width_bytes=16, stride=16) for e in range(8)]] for g in range(16)])
    totals = simulate(CommandSequence([source]), machine).kernels[0].totals
    assert totals["hbm.write_columns"] == 16 * 8 * 16  # whole sectors, each once
    assert totals["l2.flush_sectors"] <= 16384 // 32
    assert totals["l2.writeback_sectors"] == 16 * 8 * 16 - totals["l2.flush_sectors"]
    assert totals["hbm.read_columns"] == 0


@pytest.mark.parametrize("miss", ["lazy", "all"])
@pytest.mark.parametrize("seed", range(3))
def test_write_through_writes_each_stored_sector_once_for_each_store(seed, miss):
    preset = small_preset("l2.write=through", f"l2.write_miss={miss}", size=TIGHT)
    source = random_kernel(seed, workgroups=12, events=8, region=(1 << 20, 1 << 13))
    totals = simulate(CommandSequence([source]), preset).kernels[0].totals
    expected = recount(source)
    written_back = totals["l2.writeback_sectors"] + totals["l2.flush_sectors"]
    assert totals["hbm.write_columns"] == expected.stores + written_back
    assert written_back <= expected.atomics  # they alone leave dirty sectors
    fetched_for_atomics = totals["hbm.read_columns"] - totals["l2.read_miss_sectors"] - expected.uncached_loads
    assert 0 <= fetched_for_atomics <= expected.atomics
    gpu, _ = run_on(preset.machine, source)
    check_rest(gpu)


@pytest.mark.parametrize("cache", [Cache.DEFAULT, Cache.UNCACHED])
@pytest.mark.parametrize("kind", [Kind.ATOMIC, Kind.REDUCE])
def test_atomics_of_either_policy_end(kind, cache):
    source = kernel([[[lines(kind, 1 << 20, 32, cache=cache, slot=1)] * 3]] * 4)
    gpu, _ = run_on(MACHINES["tight"].machine, source)
    check_rest(gpu)


def test_acknowledgements_from_another_partition_need_no_place():
    """More posted stores are under way than L1 has miss entries, which are the places of far answers."""
    halves = ("l2.partitions=2", "l2.sharing=home", "l2.far_latency_clk=200", "noc.ack_bytes=8", "l1.mshrs=4")
    stores = [[lines(Kind.STORE, (1 << 20) + 4096 * k, 32) for k in range(8 * w, 8 * w + 8)] for w in range(8)]
    gpu, _ = run_on(small_preset(*halves).machine, kernel([[[*one, load(1 << 24)]] for one in stores]))
    check_rest(gpu)
    assert gpu.node.noc["far_answers"].sum() > 0


LATE_DATA = {
    "tight": MACHINES["tight"],
    "narrow ports": small_preset("noc.response_bytes_per_clk=1", "noc.bank_bytes_per_clk=64"),
    "slow memory-side cache": small_preset(
        *("msc.present=true", "msc.bytes=65536", "msc.ways=4", "msc.mshrs=64", "msc.latency_clk=10000")
    ),
}


@pytest.mark.parametrize("name", LATE_DATA)
def test_loads_that_nobody_waits_for_are_answered(name):
    """The kernel behind them begins when their data have arrived."""
    programs = [[[lines(Kind.LOAD, (1 << 20) + 4096 * (g % 2), 32)]] for g in range(30)]
    gpu, _ = run_on(LATE_DATA[name].machine, kernel(programs), flush=False)
    check_rest(gpu)
    gpu.flush_l2()
    check_rest(gpu)


def test_kernels_in_a_row_do_not_see_each_others_workgroups():
    """Each workgroup of each kernel stores to a place of its own: all places are written."""
    sources = [kernel([[[store((k * 600 + g) * 128)]] for g in range(300)], name=f"k{k}", warps=1) for k in range(3)]
    results = simulate(CommandSequence(sources), MACHINES["roomy"])
    assert [r.totals["hbm.write_columns"] for r in results.kernels] == [1200] * 3
    assert all(before.end_ps <= after.start_ps for before, after in pairwise(results.kernels))


def test_all_residents_end_after_the_last_visit_of_the_host():
    """Thousands of workgroups that run at the same time: the list of ended ones holds them all."""
    machine = small_preset("cu.count=200", size=SMALL[1:])
    source = kernel([[[compute(cycles=10_000_000), store(128 * g)]] for g in range(6400)], warps=1)
    gpu, _ = run_on(machine.machine, source)
    assert gpu.node.channels["write_columns"].sum() == 6400 * 4
    assert gpu.node.engine[0]["freed"] <= len(gpu.node.freed)
    check_rest(gpu)
