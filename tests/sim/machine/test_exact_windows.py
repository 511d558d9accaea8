"""A result does not depend on how it was computed: time windows, calls of units and rounds of GPUs change no byte."""

from dataclasses import replace

import numpy as np
import pytest

from sim.host import cluster
from sim.host.gpu import Gpu
from sim.machine.line_trace import line_of
from tests.support.any_windows import counters, facts, ways, windows
from tests.support.programs import (
    SMALL,
    TIGHT,
    bulk,
    kernel,
    lines,
    phase_arrive,
    phase_wait,
    random_cluster_kernel,
    random_kernel,
    small_preset,
    store,
)
from tests.support.t3_cases import COPIES, FOUR_WARPS, NARROW, T3Case
from tracer.gemm.source import Copy, Epilogue, GemmKernel, GemmProblem, GemmSource
from tracer.streams import BufferStream, Flow, PointerChase
from traces.schema import Bulk, Kind

INTERVAL_PS = 1_000_000
GEMM = GemmSource(GemmProblem(192, 192, 64), GemmKernel(64, 64, 32, 2, 2))
KERNELS = {
    "gemm": GEMM,
    "copy": BufferStream(Flow.COPY, 1 << 17),
    "chase": PointerChase(1 << 14, 128),
    "random": random_kernel(11, workgroups=30, events=8),
    "few lines": random_kernel(12, workgroups=20, events=8, region=(1 << 20, 1 << 11)),
}
WIDE = ("cu.count=8", "l2.banks=16", "hbm.channels=4")
DRAWN = ("msc.replacement=random", "l2.replacement=random")
HALVES = ("l2.partitions=2", "l2.far_latency_clk=9")
STORING = ("msc.present=true", "msc.bytes=16384", "msc.ways=4", "msc.latency_clk=9")
MACHINES = {
    "small": (SMALL, ()),
    "tight": (TIGHT, ("dispatch.jitter_ps=5000",)),
    "cache": (SMALL, ("msc.present=true", "msc.fifo=2", "hbm.page=closed")),
    "far home": (SMALL, (*HALVES, "l2.sharing=home", "l2.far_bytes_per_clk=7", "noc.ack_bytes=8")),
    "copies": (TIGHT, (*HALVES, "l2.sharing=copies", "cu.count=4", "l2.far_bytes_per_clk=9")),
    "private": (SMALL, ("l2.partitions=2", "l2.sharing=private", *STORING, "msc.write_back=true")),
    "stored": (
        TIGHT,
        (*STORING, "msc.mshrs=3", "msc.mshr_merges=1", "msc.replacement=random", "l2.replacement=random", "msc.fifo=2"),
    ),
    "fetch": (TIGHT, ("l2.write=through", "l2.write_miss=all", "l2.dram_order=in_order", "l2.dram_fifo=3")),
    "in order": (TIGHT, ("l2.dram_order=in_order", "hbm.turn=row", *STORING, "msc.write_back=true", "msc.fifo=2")),
    "four slices": (WIDE, ("l2.dram_fifo=2", "noc.bank_fifo=3", "noc.ack_bytes=32", "hbm.age_limit_ps=100000")),
}


def outcome(machine, source):
    """Times and facts of a kernel and of the flush behind it."""
    gpu = Gpu(machine, INTERVAL_PS)
    end_ps = gpu.run_kernel(source, 0, None)
    return end_ps, counters(gpu), gpu.flush_l2(), facts(gpu)


def check(run, given=None):
    """`run` gives the same whatever the windows are. given: arguments of `windows`, all ways if none."""
    expected = run()
    for way in given or ways():
        with windows(**way):
            assert run() == expected, way


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("size", MACHINES)
def test_windows_and_calls_change_no_byte(size, kernel):
    cut, overrides = MACHINES[size]
    machine = small_preset(*overrides, size=cut).machine
    check(lambda: outcome(machine, KERNELS[kernel]))


@pytest.mark.parametrize("name", ["v100", "a100_80g", "mi210", "h200", "accelsim_qv100", "h100_sxm", "mi300x"])
def test_on_every_preset(name):
    size = ("cu.count=16", "l2.banks=32", "hbm.channels=4") if name == "mi300x" else WIDE
    machine = small_preset(name=name, size=size).machine
    source = replace(KERNELS["copy"], lanes=machine.cu.lanes_per_warp)
    check(lambda: outcome(machine, source))


@pytest.mark.parametrize("refresh_clk", [134, 166, 184, 200])
def test_refreshes_behind_the_last_request(refresh_clk):
    """Of an idle channel: they are counted up to a time that the windows do not change."""
    machine = small_preset(f"hbm.timing.REFI={refresh_clk}", "hbm.timing.RFC=30").machine
    check(lambda: outcome(machine, KERNELS["copy"]), [{"length": 0.0}, {"seed": 3}])


HAS_BULK = ("cu.bulk_lines_per_clk=0.7", "cu.bulk_latency_clk=11")
CLUSTER_GEMM = GemmSource(
    GemmProblem(256, 256, 128), GemmKernel(64, 64, 32, 2, 2, 3, copy=Copy.BULK, cluster_m=2, cluster_n=2)
)
BULK_GEMM = GemmSource(GemmProblem(256, 128, 128), GemmKernel(64, 64, 32, 2, 2, 3, copy=Copy.BULK))


def mixed_bulk(seed):
    """Workgroups whose first warp makes bulk copies of all kinds; the others load and store, then wait for them."""
    random, groups = np.random.default_rng(seed), []
    for _ in range(12):
        first, others = [], [[] for _ in range(2)]
        for phase in range(3):
            for slot in range(3):
                rows, row_bytes = int(random.integers(1, 9)), int(random.choice([16, 100, 128, 400]))
                base = (1 << 20) + int(random.integers(0, 1 << 11)) * 16
                kind = Bulk(int(random.integers(0, 3)))
                first.append(bulk(base, rows, row_bytes, 512, kind=kind, barrier=0 if kind == 0 else 255, slot=slot))
            first += [phase_arrive(0), phase_wait(0, phase + 1)]  # a phase ends before the next one begins
            for other in others:
                some = random.integers(0, 1 << 13, 2) * 4 + (1 << 20)
                other += [lines(Kind.STORE, int(some[0]), 9), lines(Kind.LOAD, int(some[1]), 20, slot=1)]
                other += [phase_wait(0, phase + 1), store(int(some[1]), wait=[1])]
        groups.append([first, *others])
    return kernel(groups, name=f"bulk{seed}")


@pytest.mark.parametrize("size", ["small", "tight", "far home", "stored"])
@pytest.mark.parametrize("source", [BULK_GEMM, mixed_bulk(1), mixed_bulk(2)], ids=["gemm", "mixed1", "mixed2"])
def test_windows_and_calls_change_no_byte_of_bulk_copies(size, source):
    cut, overrides = MACHINES[size]
    machine = small_preset(*overrides, *HAS_BULK, size=cut).machine
    check(lambda: outcome(machine, source))


HAS_CLUSTERS = (*HAS_BULK, "cu.groups=2", "cu.peer_latency_clk=13", "cu.peer_bytes_per_clk=9")


@pytest.mark.parametrize("size", ["small", "tight", "far home", "stored"])
@pytest.mark.parametrize("seed", [1, 2])
def test_windows_and_calls_change_no_byte_of_clusters(size, seed):
    cut, overrides = MACHINES[size]
    machine = small_preset(*overrides, *HAS_CLUSTERS, "cu.count=4", "noc.header_bytes=4", size=cut).machine
    check(lambda: outcome(machine, random_cluster_kernel(seed)))


@pytest.mark.parametrize("size", ["small", "far home"])
def test_windows_and_calls_change_no_byte_of_a_gemm_with_clusters(size):
    cut, overrides = MACHINES[size]
    machine = small_preset(*overrides, *HAS_CLUSTERS, size=cut).machine
    check(lambda: outcome(machine, CLUSTER_GEMM))


SMALL_STORE = (
    *("msc.present=true", "msc.bytes=2048", "msc.ways=4", "msc.mshrs=3", "msc.mshr_merges=1", "msc.fifo=3"),
    *("msc.latency_clk=9", "dma.outstanding=64", "hbm.arbiter=mca"),
)
"""Some reads of DMA engines hit, on another clock than that of the channels."""
FABRIC = {
    "t3": ("t3", ()),
    "wavefronts": ("t3", ("tracker.granularity=wavefront", "tracker.count_at=service")),
    "a small tracker": ("t3", ("tracker.entries=2", "tracker.ways=1", "dispatch.jitter_ps=400000")),
    "narrow": ("t3", NARROW),
    "bulk": ("t3", ("link.topology=switch", "dispatch.jitter_ps=400000")),
    "detached": ("t3", (*NARROW, "l1.mshrs=3", "cu.loads_outstanding=2")),
    "switch": ("all_reduce", ("link.topology=switch", "link.credits=3", "link.GB_per_s=20.0")),
    "direct": ("t3", ("link.topology=fully_connected", "dma.policy=chunk", "dma.engines=3", "hbm.arbiter=mca_fixed")),
    "collective": ("rs", ("collective.slices=2", "collective.step_ps=10000")),
    "updates": ("rs_nmc", ("hbm.queue=split", "mca.age_limit_ps=30000")),
    "halves": ("t3", ("l2.partitions=2", "l2.far_latency_clk=9", "l2.sharing=copies")),
    "stored": ("all_reduce", (*STORING, *NARROW)),
    "dma, stored": ("t3", (*SMALL_STORE, "msc.clock_MHz=777", "dma.engines=1")),
    "two engines, stored": ("t3", (*SMALL_STORE, "msc.clock_MHz=777", "msc.lines_per_clk=0.1", "dma.engines=2")),
    "in l2": ("all_reduce", ("collective.cache=allocate",)),
    "cache": ("all_reduce", ("msc.present=true", "msc.fifo=2", *NARROW)),
    "in order": ("t3", ("l2.dram_order=in_order", "hbm.turn=row", "hbm.arbiter=round_robin", *NARROW)),
    "through l2": ("t3", ("l2.fabric=through", "l2.dram_order=in_order", "tracker.granularity=wavefront", *NARROW)),
    "through l2, cached": ("all_reduce", ("l2.fabric=through", "l2.write=through", "collective.cache=allocate")),
    "in order, cache": ("all_reduce", ("l2.dram_order=in_order", "hbm.turn=burst", *STORING, *NARROW)),
}


def fabric_outcome(case, part):
    result, joined = case.run(part)
    assert result.exactly_once, result.wrong
    return result.time_ps, result.totals, result.figures, [facts(gpu) for gpu in joined.gpus]


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("name", FABRIC)
def test_windows_and_calls_change_no_byte_of_joined_gpus(name, explicit):
    part, settings = FABRIC[name]
    columns = 128 if explicit else 192  # all three GPUs are simulated: two tiles of each chunk are enough
    epilogue = {"bulk": Epilogue.BULK, "detached": Epilogue.DETACHED}.get(name, Epilogue.DIRECT)
    case = T3Case(192, columns, 64, 3, replace(FOUR_WARPS, epilogue=epilogue), settings=settings, explicit=explicit)
    check(lambda: fabric_outcome(case, part))


@pytest.mark.parametrize("settings", [(), NARROW])
def test_a_unit_for_bulk_copies_that_nobody_uses_changes_nothing(settings):
    """CUs take turns at the crossbar as without their ports for bulk copies."""
    without, _ = T3Case(192, 192, 64, 3, FOUR_WARPS, settings=settings).run("t3")
    unused, _ = T3Case(192, 192, 64, 3, FOUR_WARPS, settings=(*COPIES, *settings)).run("t3")
    assert without.time_ps == unused.time_ps
    assert {name: unused.totals[name] for name in without.totals} == without.totals


@pytest.mark.parametrize("share", [1.0, 0.3, 0.003])
def test_rounds_of_gpus_change_no_byte(share, monkeypatch):
    case = T3Case(192, 192, 64, 3, FOUR_WARPS, settings=("link.credits=4", "dispatch.jitter_ps=400000"))
    expected = fabric_outcome(case, "t3")
    longest_ps = cluster.round_ps

    def shorter_ps(machine, grid_ps):
        return max(int(longest_ps(machine, grid_ps) * share) // grid_ps, 1) * grid_ps

    monkeypatch.setattr(cluster, "round_ps", shorter_ps)
    assert fabric_outcome(case, "t3") == expected


def test_looking_moves_nothing():
    """Counters (which settle the channels), the time series and the line trace in mid-run."""
    machine = small_preset("hbm.timing.REFI=400").machine
    gpu = Gpu(machine)
    expected = gpu.run_kernel(GEMM, 0, None), counters(gpu)
    looked = Gpu(machine, 50_000, line_trace=lambda node: (line_of(node), looked.counted()))
    assert (looked.run_kernel(GEMM, 0, None), counters(looked)) == expected
    assert len(looked.recorded().series["l2_read_sectors"]) > 20


def test_a_credit_that_comes_too_early_is_seen(monkeypatch):
    """What these tests can see: room that travels faster than the lookahead."""
    machine = small_preset(size=TIGHT).machine

    def hasty():
        gpu = Gpu(machine)
        fast = gpu.node.fifos["credit_ps"] > 0
        gpu.node.fifos["credit_ps"][fast] //= 4
        return gpu.run_kernel(KERNELS["random"], 0, None), counters(gpu)

    with pytest.raises(AssertionError):
        check(hasty, [{"length": 0.0}])
