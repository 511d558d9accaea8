"""The memory-side cache with storage: hits, misses, writes, updates, replacement; its naive twin; whole machines."""

import numpy as np
import pytest

from sim.host.gpu import Gpu
from sim.hw.address_map import channel_of
from sim.hw.msc import msc_retry_ps, msc_step
from sim.hw.msc_record import make_mscs
from sim.hw.msc_storage import msc_write
from sim.hw.request import NEVER, SECTOR_BYTES, STREAMS, Op, Stream
from sim.hw.tags import make_sets
from sim.presets.load import PresetError
from tests.support.fifo_bench import FifoBench, request
from tests.support.msc_twin import MscSliceTwin, MscTwin
from tests.support.plain_records import kernel_view
from tests.support.programs import SMALL, TIGHT, random_kernel, small_preset
from tests.support.t3_cases import T3Case
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from traces.schema import Cache

CLOCK_PS = 1000
SETS, WAYS = 4, 2
ON = ("msc.present=true", "msc.clock_MHz=1000", "msc.latency_clk=20", "msc.index=interleave")
ONE_CHANNEL = ("hbm.channels=1", "l2.banks=1", f"msc.ways={WAYS}", f"msc.bytes={SETS * WAYS * 128}")
FILLS, ANSWERS, DATA = 2 * STREAMS, 2 * STREAMS + 1, 2 * STREAMS + 2
READ, WRITE, UPDATE = Op.READ, Op.WRITE, Op.UPDATE
STREAM_OF = {READ: Stream.COMPUTE_READ, WRITE: Stream.COMPUTE_WRITE, UPDATE: Stream.COMM_WRITE}
GEMM = GemmSource(GemmProblem(256, 256, 128), GemmKernel(64, 64, 32, 2, 2))


class Bench:
    """One slice between fifos 0 to 3 (in), 4 to 7 (out), 8 (data from the channel), 9 and 10 (answers: L2, DMA)."""

    def __init__(self, *settings, room=64):
        self.fifo = FifoBench(*[64] * STREAMS, *[room] * STREAMS, 256, 256, 256)
        machine = small_preset(*ON, *settings, size=ONE_CHANNEL).machine
        numbers = np.arange(2 * STREAMS)[None]
        none = np.full((1, STREAMS), -1)
        wiring = {"in_fifo": numbers[:, :STREAMS], "fabric_fifo": none, "out_fifo": numbers[:, STREAMS:]}
        self.records, waiters, sets = make_mscs(
            machine, {**wiring, "fills": [FILLS], "answers": [ANSWERS], "data": [DATA]}
        )
        self.arrays = make_sets(sets), waiters
        self.now_ps = self.tag = 0

    @property
    def record(self):
        return self.records[0]

    def step(self, now_ps):
        views = map(kernel_view, self.arrays)
        return int(msc_step(kernel_view(self.records)[0], *views, self.fifo.fifos, self.fifo.pool, now_ps))

    def last_credit_ps(self, number):
        """The credit for the last request taken from a fifo; 0 if none was."""
        fifo = self.fifo.records[number]
        return int(self.fifo.credits_ps[fifo["first"] + ((fifo["head"] - 1) & fifo["room"])])

    def retry_ps(self):
        return int(msc_retry_ps(kernel_view(self.records)[0], self.fifo.fifos, self.fifo.pool))

    def run(self):
        """Until it sleeps. Returns (what it sent to the channel, tags that it answered); both are taken out.

        Sets `passed` (was a read sent that is not for a line here?) and `answered_ps`.
        """
        while self.now_ps < NEVER:
            last_ps = self.now_ps
            self.now_ps = self.step(self.now_ps)
        self.now_ps = last_ps + CLOCK_PS
        requests = [one for stream in range(STREAMS) for one in self._take(STREAMS + stream)]
        sent = [(int(one["op"]), int(one["line"]), int(one["sectors"])) for one in requests]
        self.passed = any(one["op"] == READ and one["cache"] == Cache.UNCACHED for one in requests)
        self.answered_ps = [int(one["ready_ps"]) for one in self.fifo.held(ANSWERS)]
        return sent, [int(one["tag"]) for one in self._take(ANSWERS)]

    def _take(self, number):
        return self.fifo.take(number, len(self.fifo.held(number)))

    def ask(self, op, line, sectors=15, **fields):
        fields = {"op": op, "line": line, "sectors": sectors, "stream": STREAM_OF[op], "tag": self.tag, **fields}
        self.fifo.push(STREAM_OF[op], ready_ps=self.now_ps, **fields)
        self.tag += 1
        return self.run()

    def fill(self, line, sectors, **fields):
        self.fifo.push(FILLS, line=line, sectors=sectors, ready_ps=self.now_ps, **fields)
        return self.run()


def test_a_miss_asks_the_channel_and_a_hit_does_not():
    bench = Bench()
    assert bench.ask(READ, 0x1000, 6) == ([(READ, 0x1000, 6)], [])
    assert bench.fill(0x1000, 6) == ([], [0])
    assert bench.ask(READ, 0x1000, 2) == ([], [1])
    assert bench.ask(READ, 0x1000, 12) == ([(READ, 0x1000, 8)], []), "only the sector that is not there"
    counts = {name: int(bench.record[f"read_{name}_sectors"]) for name in ("hit", "merged", "miss")}
    assert counts == {"hit": 2, "merged": 0, "miss": 3} and bench.record["read_sectors"] == 5


def test_every_answer_takes_the_latency_once():
    bench = Bench()
    bench.ask(READ, 0)
    filled_ps = bench.now_ps
    bench.fill(0, 15)
    assert bench.answered_ps == [filled_ps + 20 * CLOCK_PS]
    hit_ps = bench.now_ps
    bench.ask(READ, 0)
    assert bench.answered_ps == [hit_ps + 20 * CLOCK_PS]


def test_reads_of_sectors_in_flight_wait_for_them():
    bench = Bench()
    bench.ask(READ, 0, 3)
    assert bench.ask(READ, 0, 1) == ([], [])
    assert bench.ask(READ, 0, 7) == ([(READ, 0, 4)], [])
    assert bench.fill(0, 3)[1] == [1, 0]
    assert bench.fill(0, 4)[1] == [2]
    assert bench.record["misses_used"] == 0 and bench.record["misses_used_max"] == 1


@pytest.mark.parametrize("write_back", [True, False])
def test_a_write_stays_here_or_goes_through(write_back):
    bench = Bench(f"msc.write_back={str(write_back).lower()}")
    assert bench.ask(WRITE, 0x80, 3)[0] == ([] if write_back else [(WRITE, 0x80, 3)])
    assert bench.ask(READ, 0x80, 3) == ([], [1]), "the written sectors are there"
    sent = [bench.ask(WRITE, 0x80 + k * SETS * 128, 15)[0] for k in (1, 2)]
    assert sent[1] == ([(WRITE, 0x80, 3)] if write_back else [(WRITE, 0x80 + 2 * SETS * 128, 15)])
    assert bench.record["writeback_sectors"] == (2 if write_back else 0)


def test_a_sector_written_in_part_is_fetched():
    bench = Bench()
    bench.ask(WRITE, 0, 1)
    bench.ask(WRITE, 0x80, 1, full=0)
    assert bench.ask(READ, 0x80, 1)[0] == [(READ, 0x80, 1)]


def test_an_update_goes_to_memory_behind_the_dirty_sectors_and_drops_copies():
    bench = Bench("msc.write_back=true")
    bench.ask(WRITE, 0, 15)
    assert bench.ask(UPDATE, 0, 3)[0] == [(WRITE, 0, 3), (UPDATE, 0, 3)]
    assert bench.ask(READ, 0, 5)[0] == [(READ, 0, 1)]


def test_an_uncached_request_leaves_nothing_but_uses_what_is_there():
    bench, uncached = Bench(), {"cache": Cache.UNCACHED}
    assert bench.ask(WRITE, 0, 15, **uncached)[0] == [(WRITE, 0, 15)]
    assert bench.ask(READ, 0, 6, **uncached) == ([(READ, 0, 6)], [])
    assert bench.ask(READ, 0, 2) == ([(READ, 0, 2)], []), "neither of them left a copy"
    assert bench.fill(0, 6, tag=1, **uncached) == ([], [1]) and bench.record["misses_used"] == 1
    assert bench.fill(0, 2) == ([], [2]) and bench.record["misses_used"] == 0
    assert bench.ask(READ, 0, 2, **uncached) == ([], [3])
    assert bench.ask(READ, 0, 3, **uncached) == ([(READ, 0, 1)], [])
    assert bench.fill(0, 1) == ([], [4]), "what it misses of a line that is here comes into the line"
    assert bench.ask(READ, 0, 1) == ([], [5])


def test_the_least_recently_used_way_goes_or_any():
    lines = [k * SETS * 128 for k in range(3)]
    bench = Bench()
    for line in (lines[0], lines[1], lines[0], lines[2]):
        bench.ask(WRITE, line)
    assert bench.ask(READ, lines[0])[1] and not bench.ask(READ, lines[1])[1]
    gone = set()
    for first in range(8):
        bench = Bench("msc.replacement=random")
        bench.records["victims"] = first
        for line in lines:
            bench.ask(WRITE, line)
        gone |= {line for line in lines if not bench.ask(READ, line)[1]}
    assert gone >= set(lines[:2])


def test_lines_in_flight_are_never_replaced():
    bench = Bench()
    for k in range(WAYS):
        bench.ask(READ, k * SETS * 128)
    assert bench.ask(WRITE, WAYS * SETS * 128) == ([], [])
    assert bench.record["blocked_since_ps"][Stream.COMPUTE_WRITE] >= 0
    assert bench.fill(0, 15)[0] == [(WRITE, WAYS * SETS * 128, 15)]


def test_a_request_without_a_way_does_not_hold_up_other_streams():
    bench = Bench()
    for k in range(WAYS):
        bench.ask(READ, k * SETS * 128)
    assert bench.ask(WRITE, WAYS * SETS * 128) == ([], [])
    assert bench.ask(READ, 0x80) == ([(READ, 0x80, 15)], []) and bench.ask(UPDATE, 0x100)[0] == [(UPDATE, 0x100, 15)]


@pytest.mark.parametrize("write_back", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_same_as_the_twin(seed, write_back):
    bench = Bench(f"msc.write_back={str(write_back).lower()}", "msc.mshrs=32", "msc.mshr_merges=8")
    twin, random = MscTwin(SETS, WAYS, write_back), np.random.default_rng(seed)
    in_flight = []  # (line, sectors, tag of an uncached read that passed or -1)
    for _ in range(1000):
        op = (READ, READ, WRITE, UPDATE)[int(random.integers(0, 4))]
        line, sectors = int(random.integers(0, 20)) * 128, int(random.integers(1, 16))
        uncached, tag = bool(random.random() < 0.3), bench.tag
        before = len(twin.sent), len(twin.answered)
        while not twin.serve(op, line, sectors, tag, uncached):
            _answer_one(bench, twin, in_flight, random)
            before = len(twin.sent), len(twin.answered)
        passes = op == READ and uncached and twin.line(line) is None
        sent, answered = bench.ask(op, line, sectors, cache=Cache.UNCACHED if uncached else Cache.DEFAULT)
        assert sorted(sent) == sorted(twin.sent[before[0] :]) and answered == twin.answered[before[1] :]
        assert bench.passed == passes
        in_flight += [(at, which, tag if passes else -1) for kind, at, which in sent if kind == READ]
        while in_flight and random.random() < 0.4:
            _answer_one(bench, twin, in_flight, random)
    assert {name: int(bench.record[f"read_{name}_sectors"]) for name in twin.counts} == twin.counts
    assert twin.counts["merged"] > 10 and twin.counts["hit"] > 80


def _answer_one(bench, twin, in_flight, random):
    line, sectors, passed = in_flight.pop(int(random.integers(0, len(in_flight))))
    before = len(twin.answered)
    if passed >= 0:
        twin.answered.append(passed)
        sent, answered = bench.fill(line, sectors, tag=passed, cache=Cache.UNCACHED)
    else:
        twin.fill(line, sectors)
        sent, answered = bench.fill(line, sectors)
    assert not sent and answered == twin.answered[before:]


@pytest.mark.parametrize("write_back", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_few_places_everywhere_are_those_of_the_twin(seed, write_back):
    """Requests of all streams at any time, a channel that takes and answers late, and little room for all of it."""
    random = np.random.default_rng(seed)
    room, misses, merges = int(random.integers(2, 5)), int(random.integers(1, 5)), int(random.integers(1, 4))
    few = f"msc.mshrs={misses}", f"msc.mshr_merges={merges}", "msc.lines_per_clk=0.5"
    bench = Bench(f"msc.write_back={str(write_back).lower()}", *few, room=room)
    twin = MscSliceTwin(
        MscTwin(SETS, WAYS, write_back), 2 * CLOCK_PS, 20 * CLOCK_PS, room, misses, places=misses * merges
    )
    now_ps, wake_ps, asked, filled_ps, engines = 0, 0, 0, 0, set()
    for _ in range(300):
        for _ in range(int(random.integers(0, 3))):
            op = (READ, READ, WRITE, UPDATE)[int(random.integers(0, 4))]
            stream = int(random.choice([0, 2] if op == READ else [1, 3]))
            line, sectors, uncached = (
                128 * int(random.integers(0, 20)),
                int(random.integers(1, 16)),
                random.random() < 0.3,
            )
            full, ready_ps = sectors & int(random.integers(0, 16)), now_ps + int(random.integers(0, 4000))
            fields = {"stream": stream, "cache": Cache.UNCACHED if uncached else Cache.DEFAULT}
            if op == READ and random.random() < 0.3:
                engines.add(asked)
                fields["source"] = -1
            bench.fifo.push(
                stream, op=op, line=line, sectors=sectors, full=full, tag=asked, ready_ps=ready_ps, **fields
            )
            twin.waiting[stream].append((ready_ps, op, line, sectors, full, asked, uncached))
            asked, wake_ps = asked + 1, min(wake_ps, ready_ps)
        end_ps = now_ps + 3000
        while wake_ps < end_ps:  # the unit only when it wants to, the twin always
            for time_ps in range(now_ps, wake_ps, 500):
                twin.look(time_ps)
            now_ps = max(now_ps, wake_ps)
            twin.look(now_ps)
            wake_ps = bench.step(now_ps)
            held = [bench.fifo.held(STREAMS + stream) for stream in range(STREAMS)]
            sent = [
                [tuple(one[name] for name in ("op", "line", "sectors", "tag", "full")) for one in out] for out in held
            ]
            assert sent == [[one[:5] for one in out] for out in twin.out]
            assert all((out["stream"] == stream).all() for stream, out in enumerate(held))
        for time_ps in range(now_ps, end_ps, 500):
            twin.look(time_ps)
        now_ps = end_ps
        for fifo, own in ((ANSWERS, 0), (DATA, 1)):
            answered = [(one["tag"], one["ready_ps"], one["next"]) for one in bench._take(fifo)]
            assert answered == [(*one, 0) for one in twin.answers if (one[0] in engines) == own]
        twin.answers.clear()
        assert bench.record["sent_ps"] == min(twin.sent_ps, default=NEVER)
        bench.records["sent_ps"] = NEVER  # as the engine does
        twin.sent_ps.clear()
        credits = [one - 1 for one in map(bench.last_credit_ps, range(STREAMS))]
        assert credits == [time_ps if count else -1 for time_ps, count in zip(twin.taken_ps, twin.taken, strict=True)]
        stream, taken = int(random.integers(0, STREAMS)), int(random.integers(1, 4))
        room_ps = max([now_ps + int(random.integers(0, 5000)), *twin.leaving[stream]])
        bench.fifo.take(STREAMS + stream, len(twin.out[stream][:taken]), room_ps)
        twin.leaving[stream] += [room_ps] * len(twin.out[stream][:taken])
        for op, line, sectors, tag, _, passed in twin.out[stream][:taken]:
            if op == READ:
                filled_ps = max(filled_ps, now_ps + int(random.integers(0, 9000)))
                twin.fills.append((filled_ps, line, sectors, tag if passed else -1))
                fields = {"cache": Cache.UNCACHED if passed else Cache.DEFAULT, "tag": tag}
                fields["source"] = -1 if tag in engines else 0
                bench.fifo.push(FILLS, line=line, sectors=sectors, ready_ps=filled_ps, **fields)
                wake_ps = min(wake_ps, filled_ps)
        del twin.out[stream][:taken]
        if bench.record["blocked"]:
            wake_ps = min(wake_ps, max(now_ps, bench.retry_ps()))
    counts = {name: int(bench.record[f"read_{name}_sectors"]) for name in twin.cache.counts}
    assert counts == twin.cache.counts and sum(counts.values()) == bench.record["read_sectors"]
    assert (bench.record["write_sectors"], bench.record["writeback_sectors"]) == (
        twin.cache.written,
        twin.cache.written_back,
    )
    assert (bench.record["misses_used"], bench.record["misses_used_max"]) == (twin.in_flight(), twin.misses_max)
    assert bench.record["requests"].tolist() == twin.taken and bench.record["blocked_ps"].tolist() == twin.blocked_ps
    assert min(twin.taken) > 10 and max(twin.blocked_ps) > 0


@pytest.mark.parametrize("index", ["interleave", "hash"])
@pytest.mark.parametrize("channels", [2, 3])
def test_a_buffer_of_the_size_of_the_cache_fills_the_sets_of_all_slices(channels, index):
    size = (
        f"hbm.channels={channels}",
        f"l2.banks={channels}",
        f"l2.bytes={channels << 14}",
        "hbm.capacity_bytes=16106127360",
    )
    settings = "msc.write_back=true", "msc.ways=4", f"msc.bytes={channels << 13}", "msc.mshrs=2", "msc.mshr_merges=3"
    machine = small_preset(*ON, f"msc.index={index}", *settings, size=size).machine
    fifo, wiring = FifoBench(8), {"in_fifo": np.zeros((channels, STREAMS)), "out_fifo": np.zeros((channels, STREAMS))}
    records, waiters, count = make_mscs(machine, wiring)
    sets, hbm = make_sets(count), machine.hbm
    for line in range(0, channels << 13, 128):
        h = channel_of(line, hbm.interleave_bytes, channels, int(hbm.index))
        one = kernel_view(request(op=WRITE, line=line))[0]
        assert msc_write(kernel_view(records)[h], kernel_view(sets), fifo.fifos, fifo.pool, one, 0)
    assert (sets["way"]["valid"][:, :4] == 15).all() and not records["writeback_sectors"].any()
    for h, place in enumerate(records["free_waiter"]):  # and its reads wait in places of their own
        chain = [int(place)]
        while waiters["next"][chain[-1]] >= 0:
            chain.append(int(waiters["next"][chain[-1]]))
        assert chain == list(range(6 * h, 6 * h + 6))


STORES = (*ON, "msc.ways=4", "msc.index=hash")
SMALL_STORE = (*STORES, "msc.bytes=16384", "msc.mshrs=2", "msc.mshr_merges=2", "msc.fifo=2", "msc.write_back=true")


def hbm_bytes(gpu):
    counted = gpu.counted()
    return [
        int(counted["hbm"][name].sum()) * SECTOR_BYTES for name in ("read_columns", "write_columns", "update_columns")
    ]


def test_a_gemm_that_fits_reads_memory_once_and_its_second_run_not_at_all():
    gpu = Gpu(small_preset(*STORES, "msc.bytes=1048576").machine)
    bare = Gpu(small_preset().machine)
    for one in (gpu, bare):
        one.run_kernel(GEMM, 0, None)
        one.flush_l2()
    first = hbm_bytes(gpu)
    assert first == hbm_bytes(bare) and first[0] == (256 * 128 + 128 * 256) * 2
    gpu.run_kernel(GEMM, int(gpu.node.engine[0]["now_ps"]), None)
    gpu.flush_l2()
    assert hbm_bytes(gpu) == [first[0], 2 * first[1], 0]


@pytest.mark.parametrize("size", [SMALL, TIGHT])
@pytest.mark.parametrize("settings", [(*STORES, "msc.bytes=32768"), SMALL_STORE])
@pytest.mark.parametrize("seed", range(6))
def test_random_kernels_come_to_rest(size, settings, seed):
    """Loads, stores, atomics and reductions, cached or not, with back-pressure through every fifo."""
    gpu = Gpu(small_preset(*settings, size=size).machine)
    now_ps = 0
    for k in range(2):
        one = random_kernel(2 * seed + k, workgroups=12, events=5, region=(1 << 20, 1 << 13))
        gpu.run_kernel(one, now_ps, None)
        now_ps = gpu.flush_l2()
    counted = gpu.counted()["msc"]
    read = counted["read_hit_sectors"] + counted["read_merged_sectors"] + counted["read_miss_sectors"]
    assert (read == counted["read_sectors"]).all() and counted["read_sectors"].sum() > 0
    assert hbm_bytes(gpu)[0] == int(counted["read_miss_sectors"].sum()) * SECTOR_BYTES


@pytest.mark.parametrize("part", ["t3", "rs"])
def test_t3_keeps_its_sums_with_a_cache_of_memory(part):
    case = T3Case(96, 96, 32, 3, settings=(*STORES, "msc.bytes=65536"), explicit=True)
    result, cluster = case.run(part)
    assert result.exactly_once, result.wrong
    for gpu in cluster.gpus:
        assert hbm_bytes(gpu)[0] == int(gpu.counted()["msc"]["read_miss_sectors"].sum()) * SECTOR_BYTES


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("msc.present=true", "msc.bytes=1000"), "msc.bytes: found 1000, allowed is a multiple of"),
        (("msc.bytes=1048576",), "msc.bytes: found 1048576, allowed is 0, as msc.present = false"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(settings, words):
    with pytest.raises(PresetError, match=words):
        small_preset(*settings)
