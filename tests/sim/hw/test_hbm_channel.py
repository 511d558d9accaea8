"""One channel from outside: answers, back-pressure, order, counters, mistakes in the spec, JIT on and off."""

import os
import subprocess
import sys

import numpy as np
import pytest

from sim.hw.hbm.channel import channel_step
from sim.hw.hbm.log import LOG, Command
from sim.hw.hbm.record import CHANNEL, COUNTERS
from sim.hw.hbm.setup import make_hbm_channels
from sim.hw.request import NEVER, STREAMS, Op, Stream
from sim.spec import Arbiter, CacheIndex, QueueOrganisation
from tests.support.address_inverse import channel_address
from tests.support.hbm_rig import Access, bench_fifos, bench_spec, random_accesses, run_bench
from tests.support.paths import ROOT
from traces.errors import UserError

READ, WRITE, UPDATE = int(Op.READ), int(Op.WRITE), int(Op.UPDATE)
NO_LOG = np.zeros(0, LOG)


def sectors(accesses, op):
    return sum(access.sectors.bit_count() for access in accesses if access.op == op)


@pytest.mark.parametrize("queue", QueueOrganisation)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_request_is_served_and_every_read_answered_once(queue, seed):
    accesses = random_accesses(seed, 800, spread_clk=2.0)
    bench = run_bench(bench_spec("G", "BG", queue=queue, extra_latency_ps=7000), accesses)
    channel = bench.channel
    reads = [tag for tag, access in enumerate(accesses) if access.op == READ]
    assert sorted(bench.answers["tag"]) == reads
    assert channel.read_columns.sum() == sectors(accesses, READ)
    assert channel.write_columns.sum() == sectors(accesses, WRITE)
    assert channel.update_columns.sum() == sectors(accesses, UPDATE)
    assert channel.accepted.sum() == len(accesses)
    assert channel.queued.sum() == channel.queued_stream.sum() == 0
    assert channel.bus_busy_ps == 1000 * sum(access.sectors.bit_count() for access in accesses)
    assert channel.acts == (bench.log["command"] == Command.ACT).sum()
    assert channel.row_hits == channel.atoms - channel.acts or channel.precharges > 0
    columns = bench.log[bench.log["column"] >= 0]
    for answer in bench.answers:
        last_ps = columns["time_ps"][columns["tag"] == answer["tag"]].max()
        assert answer["ready_ps"] == last_ps + 14_000 + 1000 + 7000
    latency_ps = sum(answer["ready_ps"] - bench.accepted_ps[answer["tag"]] for answer in bench.answers)
    assert channel.read_latency_ps == latency_ps
    assert channel.reads_answered == len(reads)


def test_occupancy_is_entries_times_their_time_in_the_queue():
    accesses = random_accesses(4, 300, spread_clk=2.0)
    bench = run_bench(bench_spec("G", "RO"), accesses)
    columns = bench.log[bench.log["column"] >= 0]
    for stream in range(STREAMS):
        of_stream = columns[columns["stream"] == stream]
        time_ps = of_stream["time_ps"] - bench.accepted_ps[of_stream["tag"]]
        assert bench.channel.occupancy[stream] == time_ps.sum()
        assert bench.channel.age_max_ps[stream] == time_ps.max()


@pytest.mark.parametrize("bank_map", ["RO", "BG"])
def test_a_row_with_pending_hits_is_never_closed(bank_map):
    accesses = random_accesses(6, 600, spread_clk=2.0)
    bench = run_bench(bench_spec("G", bank_map, queue=QueueOrganisation.UNIFIED), accesses)
    open_row = {}
    columns = bench.log[bench.log["column"] >= 0]
    for command in bench.log:
        if command["command"] == Command.ACT:
            open_row[int(command["bank"])] = command["row"]
        elif command["command"] == Command.PRE:
            later = columns[(columns["time_ps"] > command["time_ps"]) & (columns["bank"] == command["bank"])]
            hits = later[later["row"] == open_row[int(command["bank"])]]
            assert (bench.accepted_ps[hits["tag"]] > command["time_ps"]).all()


def test_each_channel_sees_its_own_addresses():
    """The lines of one channel of four go to banks and rows as if they were contiguous."""
    locals_ = [128 * n for n in range(0, 4000, 3)]
    shape = {"channels": 4, "interleave_bytes": 256, "index": CacheIndex.HASH}
    addresses = [int(channel_address(2, local, 256, 4, int(CacheIndex.HASH))) for local in locals_]
    alone = run_bench(bench_spec("G", "BG"), [Access(READ, local, 15) for local in locals_])
    among = run_bench(bench_spec("G", "BG", **shape), [Access(READ, address, 15) for address in addresses])
    for name in ("time_ps", "command", "bank", "row", "column", "tag"):
        assert (alone.log[name] == among.log[name]).all()


def test_counters_are_documented_fields():
    assert set(COUNTERS) <= set(CHANNEL.names)


def test_all_four_sectors_of_a_line_give_one_answer():
    bench = run_bench(bench_spec("G", "BG"), [Access(READ, 0, 15)])
    assert bench.answers.size == 1
    assert bench.channel.atoms == 2
    assert (bench.log["command"] == Command.RD).sum() == 4


def step_through(spec, accesses, answers_depth, pop_at_ps):
    """Run with a shallow answer fifo that is emptied only from `pop_at_ps` on; (answers, log, first full time)."""
    fifos, pool, _ = bench_fifos(accesses, answers_depth)
    channels = make_hbm_channels(spec, np.arange(STREAMS)[None], np.array([STREAMS]))
    channel = channels.view(np.recarray)[0]
    fifos = fifos.view(np.recarray)
    log = np.zeros(20 * len(accesses), LOG).view(np.recarray)
    out = fifos[STREAMS]
    popped = 0
    now_ps = 0
    while True:
        wake_ps = int(channel_step(channel, fifos, pool, now_ps, log))
        if now_ps >= pop_at_ps and out.tail > out.head:
            popped += int(out.tail - out.head)
            out.head = out.tail
            wake_ps = min(wake_ps, now_ps + 1000)
        assert out.tail - out.head <= answers_depth
        if wake_ps == NEVER and now_ps >= pop_at_ps:
            return popped, log[: channel.commands]
        now_ps = max(now_ps + 1, pop_at_ps) if wake_ps == NEVER else wake_ps


@pytest.mark.parametrize("queue", QueueOrganisation)
def test_a_full_answer_fifo_holds_reads_back_and_nothing_else(queue):
    accesses = [Access(READ, 128 * n, 15) for n in range(40)]
    accesses += [Access(WRITE, 0x100000 + 128 * n, 15, ready_ps=2_000_000) for n in range(40)]
    popped, log = step_through(bench_spec("G", "BG", queue=queue, queue_entries=16), accesses, 3, 5_000_000)
    times = {command: log["time_ps"][log["command"] == command] for command in (Command.RD, Command.WR)}
    assert popped == 40
    assert (times[Command.RD] < 5_000_000).sum() < 3 * 4 + 4
    if queue == QueueOrganisation.SPLIT:
        assert times[Command.WR].max() < 5_000_000


@pytest.mark.parametrize("queue", QueueOrganisation)
@pytest.mark.parametrize("store", [WRITE, UPDATE])
@pytest.mark.parametrize("read_first", [True, False])
def test_accesses_to_one_address_keep_their_order(queue, store, read_first):
    """Through one fifo, and with other reads that would like to go first."""
    fifo = Stream.COMPUTE_READ
    others = [Access(READ, 128 * n, 15, fifo) for n in range(1, 8)]
    pair = [Access(READ, 0, 15, fifo), Access(store, 0, 15, fifo)]
    accesses = [*others, *(pair if read_first else pair[::-1]), *others]
    bench = run_bench(bench_spec("G", "RO", queue=queue), accesses)
    order = [int(tag) for tag in bench.log["tag"] if tag in (7, 8)]
    assert order == [7] * 4 + [8] * 4


def test_writes_that_never_end_do_not_starve_reads():
    writes = [Access(WRITE, 128 * n, 15) for n in range(3000)]
    reads = [Access(READ, 0x200000 + 128 * n, 15, ready_ps=100_000) for n in range(50)]
    bench = run_bench(bench_spec("G", "BG"), [*writes, *reads])
    assert bench.answers["ready_ps"].max() < 1_500_000


def test_reads_that_never_end_do_not_starve_an_aged_write():
    reads = [Access(READ, 128 * n, 15) for n in range(3000)]
    for queue in QueueOrganisation:
        write = Access(WRITE, 0x200000, 15, ready_ps=100_000)
        bench = run_bench(bench_spec("G", "BG", queue=queue, age_limit_ps=1_000_000), [*reads, write])
        assert bench.channel.age_max_ps[Stream.COMPUTE_WRITE] < 1_300_000


@pytest.mark.slow
def test_a_conflict_behind_endless_row_hits_is_served_by_age():
    hits = [Access(READ, 128 * (n % 16), 15, Stream.COMPUTE_READ) for n in range(2000)]
    other_row = Access(READ, 32768, 15, Stream.COMM_READ, ready_ps=100_000)
    turns = {"arbiter": Arbiter.ROUND_ROBIN}
    free = run_bench(bench_spec("G", "RO", **turns), [*hits, other_row])
    aged = run_bench(bench_spec("G", "RO", **turns, age_limit_ps=500_000), [*hits, other_row])
    assert free.channel.age_max_ps[Stream.COMM_READ] > 10_000_000
    assert aged.channel.age_max_ps[Stream.COMM_READ] < 700_000


def test_a_call_between_clocks_waits_for_the_edge():
    spec = bench_spec("G", "RO", clock_MHz=850)
    fifos, pool, _ = bench_fifos([Access(READ, 0, 1, ready_ps=100)])
    channel = make_hbm_channels(spec, np.arange(STREAMS)[None], np.array([STREAMS])).view(np.recarray)[0]
    fifos = fifos.view(np.recarray)
    assert channel_step(channel, fifos, pool, 0, NO_LOG) == 100
    assert channel_step(channel, fifos, pool, 100, NO_LOG) == 1176
    assert channel.accepted.sum() == 0
    channel_step(channel, fifos, pool, 1176, NO_LOG)
    assert channel.accepted.sum() == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bank_groups": 3}, "hbm.bank_groups: found 3, allowed is a power of two"),
        ({"bank_groups": 32, "banks_per_group": 4}, "at most 64"),
        ({"row_bytes": 64}, "hbm.row_bytes: found 64, allowed is 128 to 65,536"),
        ({"interleave_bytes": 192}, "hbm.interleave_bytes: found 192, allowed is a power of two"),
        ({"queue_entries": 3}, "hbm.queue_entries: found 3, allowed is 4 to 512"),
        ({"queue_entries": 257}, "hbm.queue_entries: found 257, allowed is at most 256"),
        ({"queue_entries": 600, "queue": QueueOrganisation.UNIFIED}, "4 to 512"),
        ({"column_bytes": 16}, "hbm.column_bytes: found 16, allowed is 32 to 64"),
        ({"write_low": 0.9}, "hbm.write_low: found 0.9, allowed is less than hbm.write_high = 0.8"),
        ({"REFI": 100}, "hbm.timing.REFI: found 100, allowed is 0 .* or at least"),
    ],
)
def test_a_channel_that_cannot_be(fields, message):
    with pytest.raises(UserError, match=message):
        bench_spec(**fields)


DIGEST = """
import hashlib
from sim.spec import Arbiter, CacheIndex, QueueOrganisation
from tests.support.hbm_rig import bench_spec, random_accesses, run_bench
for queue in QueueOrganisation:
    spec = bench_spec("G", "BG", queue=queue, REFI=700, RFC=100, age_limit_ps=200_000)
    bench = run_bench(spec, random_accesses(8, 150, spread_clk=2.0))
    print(hashlib.sha256(bench.log.tobytes() + bench.answers.tobytes()).hexdigest(), bench.log.size)
"""


@pytest.mark.slow
def test_plain_python_gives_the_same_bytes():
    """Kernels compiled, and the same functions run as Python."""
    outputs = []
    for disabled in ("0", "1"):
        environment = {**os.environ, "NUMBA_DISABLE_JIT": disabled, "PYTHONPATH": str(ROOT)}
        run = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True, cwd=ROOT
        )
        outputs.append(run.stdout)
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 2


@pytest.mark.parametrize("in_order", [False, True])
def test_in_order_a_read_waits_behind_the_stores_before_it(in_order):
    stores = [Access(WRITE, 128 * n, 15) for n in range(20)]
    loads = [Access(READ, 0x100000, 15, ready_ps=1000), Access(READ, 0x200000, 15, Stream.COMM_READ, ready_ps=1000)]
    spec = bench_spec("G", "RO", queue=QueueOrganisation.UNIFIED, queue_entries=4, arbiter=Arbiter.ROUND_ROBIN)
    bench = run_bench(spec, [*stores, *loads], in_order=in_order)
    passed = (bench.accepted_ps[:20, None] > bench.accepted_ps[None, 20:]).sum(axis=0)
    assert (passed[0] == 0) == in_order  # stores that the load of compute has passed
    assert passed[1] > 15  # communication has a fifo of its own
