"""The memory-side cache without storage: it passes on everything once, in order, and waits while the channel is
full."""

import numpy as np
import pytest

from sim.host.gpu import Gpu
from sim.hw.msc import msc_step
from sim.hw.msc_record import make_mscs
from sim.hw.request import NEVER, SECTOR_BYTES, STREAMS, Op, Stream
from sim.hw.tags import make_sets
from sim.machine.build import build, units_of
from sim.spec import CollectiveCache
from tests.support.fifo_bench import FifoBench
from tests.support.plain_records import kernel_view
from tests.support.programs import SMALL, TIGHT, kernel, load, random_kernel, small_preset
from tests.support.t3_cases import NARROW, PARTS, T3Case, check_traffic
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource

CLOCK_PS = 1000
ON = ("msc.present=true", "msc.clock_MHz=1000", "msc.latency_clk=20")
FEW_PLACES = (*ON, "msc.fifo=2", "msc.lines_per_clk=0.1")
GEMM = GemmSource(GemmProblem(256, 256, 128), GemmKernel(64, 64, 32, 2, 2))


class MscBench:
    """The unit of one channel between fifos 0 to 3 (in, by stream) and 4 to 7 (out)."""

    def __init__(self, latency_clk=20, lines_per_clk=1.0, room=64):
        self.fifo = FifoBench(*[512] * STREAMS, *[room] * STREAMS)
        settings = (*ON, f"msc.latency_clk={latency_clk}", f"msc.lines_per_clk={lines_per_clk}")
        machine = small_preset(*settings, size=("hbm.channels=1", "l2.banks=1")).machine
        numbers = np.arange(2 * STREAMS)[None]
        none = np.full((1, STREAMS), -1)
        wiring = {"in_fifo": numbers[:, :STREAMS], "fabric_fifo": none, "out_fifo": numbers[:, STREAMS:]}
        self.records, waiters, sets = make_mscs(machine, wiring)
        assert not len(waiters) and sets == 0
        self.none = kernel_view(make_sets(0)), kernel_view(waiters)

    def step(self, now_ps):
        return int(msc_step(kernel_view(self.records)[0], *self.none, self.fifo.fifos, self.fifo.pool, now_ps))

    def run(self, now_ps=0):
        """Until it sleeps; when each step was."""
        steps_ps = []
        while now_ps < NEVER:
            steps_ps.append(now_ps)
            now_ps = self.step(now_ps)
        return steps_ps

    def out(self, stream):
        """(tag, ready_ps) of what has been passed on."""
        return [(int(one["tag"]), int(one["ready_ps"])) for one in self.fifo.held(STREAMS + stream)]


def test_a_request_comes_out_as_it_went_in_a_latency_later():
    bench = MscBench()
    fields = {"line": 0x8000, "tag": 7, "op": Op.UPDATE, "sectors": 6, "contributors": 3, "wavefront": 2, "source": -1}
    bench.fifo.push(Stream.COMM_WRITE, ready_ps=500, **fields)
    before = bench.fifo.held(Stream.COMM_WRITE)[0].copy()
    assert bench.step(0) == 500 and not bench.out(Stream.COMM_WRITE)
    bench.step(500)
    after = bench.fifo.held(STREAMS + Stream.COMM_WRITE)[0].copy()
    assert after["ready_ps"] == 500 + 20 * CLOCK_PS
    after["ready_ps"] = before["ready_ps"]
    assert after == before
    record = bench.records[0]
    assert record["requests"].tolist() == [0, 0, 0, 1] and record["bytes"].tolist() == [0, 0, 0, 2 * SECTOR_BYTES]


def test_one_request_per_line_time_the_oldest_first():
    bench = MscBench(latency_clk=0, lines_per_clk=0.5)
    for tag, (stream, ready_ps) in enumerate([(1, 30), (0, 40), (0, 50), (3, 10), (2, 40)]):
        bench.fifo.push(stream, tag=tag, ready_ps=ready_ps)
    bench.run(60)
    assert bench.out(3) == [(3, 60)] and bench.out(1) == [(0, 2060)]
    assert bench.out(0) == [(1, 4060), (2, 8060)] and bench.out(2) == [(4, 6060)]


def test_a_full_stream_waits_and_the_others_go_on():
    bench = MscBench(latency_clk=0, room=1)
    for tag in range(2):
        bench.fifo.push(Stream.COMM_READ, tag=tag)
        bench.fifo.push(Stream.COMPUTE_READ, tag=10 + tag, ready_ps=5 * CLOCK_PS * tag)
    bench.run()
    assert bench.out(Stream.COMM_READ) == [(0, CLOCK_PS)] and bench.out(Stream.COMPUTE_READ) == [(10, 0)]
    assert bench.records[0]["blocked"] == 1
    bench.fifo.take(STREAMS + Stream.COMPUTE_READ)
    assert bench.step(9 * CLOCK_PS) == 10 * CLOCK_PS
    assert bench.out(Stream.COMPUTE_READ) == [(11, 9 * CLOCK_PS)]
    bench.fifo.take(STREAMS + Stream.COMM_READ)
    assert bench.step(12 * CLOCK_PS) == 13 * CLOCK_PS
    assert bench.out(Stream.COMM_READ) == [(1, 12 * CLOCK_PS)] and bench.records[0]["blocked"] == 0
    assert bench.records[0]["blocked_ps"].tolist() == [4 * CLOCK_PS, 0, 10 * CLOCK_PS, 0]


class Twin:
    """The unit as a book explains it: lists, no wake times; it looks at every picosecond that it is told."""

    def __init__(self, latency_ps, line_ps, room):
        self.latency_ps, self.line_ps, self.room, self.free_ps = latency_ps, line_ps, room, 0
        self.waiting, self.out = [[] for _ in range(STREAMS)], [[] for _ in range(STREAMS)]
        self.passed, self.since_ps, self.blocked_ps = [0] * STREAMS, [None] * STREAMS, [0] * STREAMS

    def look(self, now_ps):
        if now_ps < self.free_ps:
            return
        seen = [s for s in range(STREAMS) if self.waiting[s] and self.waiting[s][0][1] <= now_ps]
        for stream in seen:
            if len(self.out[stream]) >= self.room and self.since_ps[stream] is None:
                self.since_ps[stream] = now_ps
        may = [s for s in seen if len(self.out[s]) < self.room]
        if not may:
            return
        stream = min(may, key=lambda s: (self.waiting[s][0][1], s))
        tag, _ = self.waiting[stream].pop(0)
        self.out[stream].append((tag, now_ps + self.latency_ps))
        self.passed[stream] += 1
        if self.since_ps[stream] is not None:
            self.blocked_ps[stream] += now_ps - self.since_ps[stream]
            self.since_ps[stream] = None
        self.free_ps = now_ps + self.line_ps


@pytest.mark.parametrize("seed", range(8))
def test_the_same_as_the_twin(seed):
    random = np.random.default_rng(seed)
    latency_clk, room = int(random.integers(0, 4)), int(random.integers(1, 6))
    bench, twin = MscBench(latency_clk, 0.5, room), Twin(latency_clk * CLOCK_PS, 2 * CLOCK_PS, room)
    tag, now_ps, wake_ps = 0, 0, 0
    for _ in range(400):
        for _ in range(int(random.integers(0, 3))):
            stream, ready_ps = int(random.integers(0, STREAMS)), now_ps + int(random.integers(0, 4000))
            bench.fifo.push(stream, tag=tag, ready_ps=ready_ps)
            twin.waiting[stream].append((tag, ready_ps))
            tag, wake_ps = tag + 1, min(wake_ps, ready_ps)
        end_ps = now_ps + 3000
        while wake_ps < end_ps:  # the unit only when it wants to, the twin always
            for time_ps in range(now_ps, wake_ps, 500):
                twin.look(time_ps)
            now_ps = max(now_ps, wake_ps)
            twin.look(now_ps)
            wake_ps = bench.step(now_ps)
            assert [bench.out(stream) for stream in range(STREAMS)] == twin.out
        now_ps = end_ps
        taken = int(random.integers(0, STREAMS))  # the channel makes room
        bench.fifo.take(STREAMS + taken, len(twin.out[taken]))
        twin.out[taken].clear()
        wake_ps = now_ps if bench.records[0]["blocked"] else wake_ps
    assert bench.records[0]["requests"].tolist() == twin.passed and sum(twin.passed) > 200
    assert bench.records[0]["blocked_ps"].tolist() == twin.blocked_ps


def test_a_machine_without_it_has_no_trace_of_it():
    node, names = build(small_preset().machine)
    assert "msc" not in units_of(node) and not any(name.startswith("msc") for name in names)


def end_ps(*settings):
    """When a lone load from DRAM has come back to its warp."""
    gpu = Gpu(small_preset("hbm.timing.REFI=0", "hbm.clock_MHz=1000", *settings).machine)
    gpu.run_kernel(kernel([[[load(1 << 20, slot=1)]]]), 0, None)
    return int(gpu.node.cus["last_exit_ps"].max())


@pytest.mark.parametrize("latency_clk", [0, 1, 20, 300])
def test_a_lone_load_takes_longer_by_exactly_its_latency(latency_clk):
    assert end_ps(*ON, f"msc.latency_clk={latency_clk}") == end_ps() + latency_clk * CLOCK_PS


def totals(gpu):
    counted = gpu.counted()
    moved = sum(counted["hbm"][name].sum(axis=0) for name in ("read_columns", "write_columns", "update_columns"))
    return counted, moved * SECTOR_BYTES


def check_passed(gpu):
    """What the channels took is what the unit passed on, and nothing is left."""
    counted, moved_bytes = totals(gpu)
    assert counted["msc"]["requests"].sum(axis=0).tolist() == counted["hbm"]["accepted"].sum(axis=0).tolist()
    assert counted["msc"]["bytes"].sum(axis=0).tolist() == moved_bytes.tolist()
    assert (gpu.node.fifos["head"] == gpu.node.fifos["tail"]).all()
    assert (gpu.node.mscs["blocked_since_ps"] == -1).all()


def test_a_gemm_moves_the_same_data_later():
    ends_ps, traffic = [], []
    for settings in ((), ON, FEW_PLACES):
        gpu = Gpu(small_preset(*settings).machine)
        ends_ps.append(gpu.run_kernel(GEMM, 0, None))
        gpu.flush_l2()
        traffic.append(totals(gpu)[1].tolist())
        if settings:
            check_passed(gpu)
    assert traffic[0] == traffic[1] == traffic[2]
    assert ends_ps[0] < ends_ps[1] < ends_ps[2]


@pytest.mark.parametrize("size", [SMALL, TIGHT])
@pytest.mark.parametrize("settings", [ON, FEW_PLACES])
@pytest.mark.parametrize("seed", range(6))
def test_random_kernels_come_to_rest(size, settings, seed):
    """Loads, stores, atomics and reductions, cached or not, with back-pressure through every fifo."""
    gpu = Gpu(small_preset(*settings, size=size).machine)
    for k in range(2):
        one = random_kernel(2 * seed + k, workgroups=12, events=5, region=(1 << 20, 1 << 13))
        gpu.run_kernel(one, gpu.rest_ps, None)
        gpu.flush_l2()
    check_passed(gpu)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("settings", [ON, (*FEW_PLACES, *NARROW)])
def test_t3_and_collectives_pass_it_exactly_once(part, explicit, settings):
    case = T3Case(96, 96, 32, 3, settings=settings, explicit=explicit)
    result, cluster = case.run(part)
    check_traffic(case, part, result, cluster)
    for gpu in cluster.gpus:
        check_passed(gpu)


def test_collective_data_that_stay_in_l2_pass_it_too():
    case = T3Case(96, 96, 32, 3, settings=(*ON, "collective.cache=allocate"))
    assert case.machine.collective.cache == CollectiveCache.ALLOCATE
    result, cluster = case.run("rs")
    assert result.exactly_once, result.wrong
    for gpu in cluster.gpus:
        check_passed(gpu)
