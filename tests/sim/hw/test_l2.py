"""L2 bank: against its naive twin on random streams, and its timing, blocking and flush step by step."""

import numpy as np
import pytest

from sim.hw.l2_record import FOR_ANSWERS
from sim.hw.request import NEVER, Op, Stream
from sim.spec import DramOrder, L2Write, Replacement, WriteMiss
from tests.support.cache_twin import L2Twin
from tests.support.l2_bench import CLOCK_PS, DRAM, HITS, LATE, REQUESTS, Access, BankBench
from traces.schema import Cache

SMALL = ("l2.bytes=2048", "l2.ways=4", "l2.mshrs=5", "l2.mshr_merges=3")  # 4 sets
READS_OUT = 2 * 5  # places for their data
LATENCY_PS = 125 * CLOCK_PS
PATH_PS = 50_000


def random_access(random, number):
    op = int(random.choice([Op.READ] * 5 + [Op.WRITE] * 4 + [Op.ATOMIC, Op.REDUCE, Op.UPDATE]))
    sectors = int(random.integers(1, 16))
    full = sectors & int(random.integers(0, 16)) if op == Op.WRITE else sectors
    cache = int(random.choice([Cache.DEFAULT] * 3 + [Cache.BYPASS_L1, Cache.STREAM, Cache.UNCACHED]))
    if op == Op.WRITE and cache == Cache.UNCACHED:
        full = sectors
    line = 128 * int(random.integers(0, 40))
    stream = Stream.COMPUTE_READ if op == Op.READ else Stream.COMPUTE_WRITE
    awaited = op in (Op.WRITE, Op.REDUCE) and random.random() < 0.3
    return Access(number, op, line, sectors, full, cache, stream, awaited)


@pytest.mark.parametrize("fills", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(8))
def test_a_random_stream_does_what_the_twin_does(seed, fills):
    same_as_twin(seed, fills)


@pytest.mark.parametrize("seed", range(4))
def test_random_replacement_does_what_the_twin_does(seed):
    same_as_twin(seed, 0.5, "l2.replacement=random")


@pytest.mark.parametrize("write", L2Write)
@pytest.mark.parametrize("miss", WriteMiss)
@pytest.mark.parametrize("order", DramOrder)
def test_every_policy_of_stores_does_what_the_twin_does(write, miss, order):
    policies = {"write": write, "write_miss": miss, "dram_order": order}
    for fills in (0.1, 0.7):
        same_as_twin(20, fills, *(f"l2.{field}={one.name.lower()}" for field, one in policies.items()))


def same_as_twin(seed, fills, *overrides):
    """After each step: the same traffic to DRAM, the same answers, the same request waiting."""
    random = np.random.default_rng(seed)
    bench = BankBench(*SMALL, *overrides)
    bank = bench.bank
    twin = L2Twin(
        *(4, 4, 3, bank["write_through"] == 1, WriteMiss(int(bank["write_miss"]))),
        random=bank["replacement"] == Replacement.RANDOM,
    )
    stream = [random_access(random, number) for number in range(400)]
    asked = served = 0
    while served < len(stream) or bench.dram:
        while asked < len(stream) and asked - served < 8:
            bench.ask(stream[asked], bench.now_ps)
            asked += 1
        if bench.dram and (random.random() < fills or served == len(stream) or bench.bank["blocked_since_ps"] >= 0):
            request = bench.dram[int(random.integers(len(bench.dram)))]
            bench.fill(request, bench.now_ps)
            uncached = int(request["load"]) if request["cache"] == Cache.UNCACHED else None
            twin.fill(int(request["line"]), int(request["sectors"]), uncached)
        before = len(twin.sent)
        if served < asked and twin.lines_in_flight() < 5 and len(bench.dram) < READS_OUT:
            served += twin.serve(stream[served])
        bench.step(bench.now_ps + CLOCK_PS)
        assert bench.bank["requests_served"] == served
        # Streams have fifos of their own: within a step their order is not defined.
        assert sorted(bench.sent[before:]) == sorted(twin.sent[before:])
        assert sorted(bench.answered) == sorted(twin.answered)
        assert bench.bank["misses_used"] == twin.lines_in_flight()
    expected = [one.number for one in stream if one.answered]
    assert sorted(bench.answered) == expected  # each once
    assert {(line, sectors) for _, line, sectors in bench.flush()} == twin.dirty()
    assert bench.bank["reads_out"] == 0 and bench.bank["misses_used"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_counters_of_a_random_stream(seed):
    random = np.random.default_rng(100 + seed)
    bench = BankBench(*SMALL)
    stream = [random_access(random, number) for number in range(300)]
    for access in stream:
        bench.ask(access, bench.now_ps)
        while bench.fifos[REQUESTS]["tail"] > bench.fifos[REQUESTS]["head"]:
            for request in list(bench.dram):
                bench.fill(request, bench.now_ps)
            bench.step(bench.now_ps + CLOCK_PS)
    bench.flush()
    bank, width = bench.bank, [bin(one.sectors).count("1") for one in stream]

    def total(*ops, uncached=False):
        of = [
            w
            for w, one in zip(width, stream, strict=True)
            if one.op in ops and (one.op == Op.UPDATE or (one.cache == Cache.UNCACHED) == uncached)
        ]
        return sum(of)

    assert bank["read_sectors"] == total(Op.READ)
    assert bank["read_hit_sectors"] + bank["read_merged_sectors"] + bank["read_miss_sectors"] == total(Op.READ)
    assert bank["write_sectors"] == total(Op.WRITE)
    assert bank["uncached_read_sectors"] == total(Op.READ, uncached=True)
    assert bank["uncached_write_sectors"] == total(Op.WRITE, uncached=True) + total(Op.UPDATE)
    atomics = (Op.ATOMIC, Op.REDUCE)
    assert bank["atomic_sectors"] == total(*atomics) + total(*atomics, uncached=True)
    writes = sum(bin(sectors).count("1") for op, _, sectors in bench.sent if op != Op.READ)
    assert writes == bank["writeback_sectors"] + bank["flush_sectors"] + bank["uncached_write_sectors"]


def test_write_through_sends_each_store_at_once_and_keeps_its_sectors():
    stores = [Access(k, Op.WRITE, 128 * (k % 2), sectors=3 + k, full=3) for k in range(4)]
    bench = settled(*stores, Access(9, Op.READ, 0, sectors=3), overrides=(*SMALL, "l2.write=through"))
    assert bench.sent == [(Op.WRITE, one.line, one.sectors) for one in stores]
    assert bench.answered == [9] and bench.flush() == []


@pytest.mark.parametrize(("miss", "fetched"), [("lazy", []), ("partial", [4]), ("all", [5])])
def test_a_store_fetches_the_absent_sectors_that_the_policy_names(miss, fetched):
    store = Access(0, Op.WRITE, 0, sectors=5, full=1)  # sector 0 whole, sector 2 in part
    bench = settled(store, store, overrides=(*SMALL, f"l2.write_miss={miss}"))
    assert bench.sent == [(Op.READ, 0, sectors) for sectors in fetched]
    assert bench.bank["read_miss_sectors"] == sum(sectors.bit_count() for sectors in fetched)
    assert bench.flush() == [(Op.WRITE, 0, 5)]


def settled(*accesses, overrides=SMALL, victims=0):
    """A bank in which accesses were done one after the other. victims: replaced before."""
    bench = BankBench(*overrides)
    bench.banks["victims"] = victims
    for access in accesses:
        bench.ask(access, bench.now_ps)
        bench.step(bench.now_ps + CLOCK_PS)
        for request in list(bench.dram):
            bench.fill(request, bench.now_ps)
        bench.step(bench.now_ps + CLOCK_PS)
    return bench


def test_a_hit_is_answered_a_latency_later_and_one_request_is_taken_per_clock():
    bench = settled(Access(0, Op.READ, 0))
    start_ps = bench.now_ps + 10 * CLOCK_PS
    for number in (1, 2):
        bench.ask(Access(number, Op.READ, 0, 3), start_ps)
    assert bench.step(start_ps - 1) == start_ps
    assert bench.step(start_ps) == start_ps + CLOCK_PS
    assert bench.step(start_ps + CLOCK_PS - 1) == start_ps + CLOCK_PS and 2 not in bench.answers_ps
    assert bench.step(start_ps + CLOCK_PS) == NEVER
    assert bench.answers_ps[1] == start_ps + LATENCY_PS and bench.answers_ps[2] == start_ps + CLOCK_PS + LATENCY_PS


def test_a_miss_reaches_dram_a_path_later_and_its_fill_is_answered_at_once():
    bench = BankBench(*SMALL)
    bench.ask(Access(0, Op.READ, 256, 6), 7000)
    bench.step(7000)
    assert bench.sent == [(Op.READ, 256, 6)] and bench.dram[0]["ready_ps"] == 7000 + PATH_PS == bench.bank["sent_ps"]
    bench.fill(bench.dram[0], 90_000)
    assert bench.step(89_999) == 90_000 and not bench.answers_ps
    bench.step(90_000)
    assert bench.answers_ps == {0: 90_000}


def test_only_the_sectors_that_are_missing_are_fetched():
    bench = settled(Access(0, Op.READ, 0, 0b0011), Access(1, Op.READ, 0, 0b0110))
    assert bench.sent == [(Op.READ, 0, 0b0011), (Op.READ, 0, 0b0100)]
    assert bench.bank["read_hit_sectors"] == 1


def test_a_sector_written_in_part_is_fetched_when_it_is_read():
    bench = settled(Access(0, Op.WRITE, 0, 0b0111, 0b0001))
    assert bench.sent == []  # write-allocate without fetch
    assert settled(Access(0, Op.WRITE, 0, 0b0111, 0b0001), Access(1, Op.READ, 0, 0b0001)).sent == []
    bench = settled(Access(0, Op.WRITE, 0, 0b0111, 0b0001), Access(1, Op.READ, 0, 0b0011))
    assert bench.sent == [(Op.READ, 0, 0b0010)]
    assert bench.flush() == [(Op.WRITE, 0, 0b0111)]  # what was written in part is written back too


def test_the_least_recently_used_line_goes_and_writes_exactly_its_dirty_sectors():
    same_set = [512 * k for k in range(5)]  # 4 sets, 4 ways
    writes = [Access(k, Op.WRITE, line, 1 << k % 4, 1 << k % 4) for k, line in enumerate(same_set[:4])]
    touch = Access(9, Op.READ, same_set[0], 1)
    bench = settled(*writes, touch, Access(10, Op.WRITE, same_set[4], 15))
    assert bench.sent == [(Op.WRITE, same_set[1], 0b0010)]
    assert bench.bank["writeback_sectors"] == 1


@pytest.mark.parametrize("cache", [Cache.DEFAULT, Cache.UNCACHED])
@pytest.mark.parametrize(("ack_bytes", "awaited", "answered"), [(0, False, []), (0, True, [7]), (40, True, [7])])
def test_a_store_is_acknowledged_after_the_latency_if_a_warp_waits(ack_bytes, awaited, answered, cache):
    bench = BankBench(f"noc.ack_bytes={ack_bytes}")
    bench.ask(Access(7, Op.WRITE, 0, cache=cache, stream=Stream.COMPUTE_WRITE, awaited=awaited))
    bench.step(0)
    assert bench.answered == answered
    assert list(bench.answers_ps.values()) == [LATENCY_PS] * len(answered)


@pytest.mark.parametrize(("ack_bytes", "answered"), [(0, []), (40, [-1])])
def test_a_store_is_acknowledged_to_nobody_where_the_machine_does_so(ack_bytes, answered):
    bench = BankBench(f"noc.ack_bytes={ack_bytes}")
    bench.ask(Access(7, Op.WRITE, 0))
    bench.step(0)
    assert bench.answered == answered
    assert list(bench.answers_ps.values()) == [LATENCY_PS] * len(answered)


def test_a_store_that_came_over_a_link_is_not_acknowledged():
    """Its source is a CU of the GPU that sent it, and its link the port over which it came."""
    bench = BankBench("noc.ack_bytes=40")
    bench.ask(Access(7, Op.WRITE, 0, stream=Stream.COMM_WRITE, link=1))
    bench.step(0)
    assert bench.answered == []
    assert bench.bank["write_sectors"] == 4


def test_any_line_goes_with_random_replacement_but_streamed_lines_go_first():
    lines = [512 * k for k in range(5)]  # one more than a set has ways
    drawn = (*SMALL, "l2.replacement=random")
    writes = [Access(k, Op.WRITE, line) for k, line in enumerate(lines)]
    first = [settled(*writes, overrides=drawn, victims=number).sent for number in range(40)]
    assert {line for ((_, line, _),) in first} == set(lines[:4])
    reads = [Access(k, Op.READ, line, cache=Cache.STREAM if k == 3 else Cache.DEFAULT) for k, line in enumerate(lines)]
    assert [line for _, line, _ in settled(*reads, *reads[:3], overrides=drawn).sent] == lines


def test_streamed_lines_go_first():
    reads = [Access(k, Op.READ, 512 * k, cache=Cache.STREAM if k == 3 else Cache.DEFAULT) for k in range(5)]
    bench = settled(*reads, Access(5, Op.READ, 0), Access(6, Op.READ, 512 * 3))
    assert [line for _, line, _ in bench.sent] == [0, 512, 1024, 1536, 2048, 1536]


@pytest.mark.parametrize(("second", "evicted"), [(Cache.STREAM, [1536, 0]), (Cache.DEFAULT, [0])])
def test_a_line_streamed_in_halves_goes_first_until_a_plain_access(second, evicted):
    halves = [Access(3, Op.READ, 1536, 3, cache=Cache.STREAM), Access(4, Op.READ, 1536, 12, cache=second)]
    plain = [Access(k, Op.READ, 512 * k) for k in range(3)]
    bench = settled(*plain, *halves, *(Access(5 + k, Op.READ, line) for k, line in enumerate((2048, 1536, 0))))
    assert [line for _, line, _ in bench.sent] == [0, 512, 1024, 1536, 1536, 2048, *evicted]


def test_reads_of_one_line_merge_up_to_the_limit_and_block_in_order():
    bench = BankBench(*SMALL)
    for number in range(5):
        bench.ask(Access(number, Op.READ, 0 if number < 4 else 128))
    for step in range(6):
        wake_ps = bench.step(step * CLOCK_PS)
    assert bench.bank["requests_served"] == 3 and bench.bank["blocked_since_ps"] >= 0 and wake_ps == NEVER
    assert bench.sent == [(Op.READ, 0, 15)]  # 128 waits behind the fourth read of 0
    bench.fill(bench.dram[0], 50 * CLOCK_PS)
    for step in (50, 51):
        bench.step(step * CLOCK_PS)
    assert sorted(bench.answered) == [0, 1, 2, 3] and bench.sent[1:] == [(Op.READ, 128, 15)]
    assert bench.bank["blocked_ps"] == 47 * CLOCK_PS and bench.bank["read_merged_sectors"] == 8


def test_lines_in_flight_are_limited():
    bench = BankBench(*SMALL)
    for number in range(7):
        bench.ask(Access(number, Op.READ, 128 * number))
    for step in range(10):
        bench.step(step * CLOCK_PS)
    assert bench.bank["misses_used"] == bench.bank["misses_used_max"] == len(bench.dram) == 5


def test_a_set_whose_lines_are_all_on_their_way_blocks():
    bench = BankBench(*SMALL[:2], "l2.mshrs=50")
    for number in range(5):
        bench.ask(Access(number, Op.WRITE if number == 4 else Op.READ, 512 * number))
    for step in range(9):
        bench.step(step * CLOCK_PS)
    assert bench.bank["requests_served"] == 4
    bench.fill(bench.dram[2], 20 * CLOCK_PS)
    bench.step(20 * CLOCK_PS)
    assert bench.bank["requests_served"] == 5


def test_no_room_towards_dram_blocks():
    bench = BankBench(*SMALL, "l2.dram_fifo=2")
    bench.drain = lambda: None
    for number in range(3):
        bench.ask(Access(number, Op.READ, 128 * number))
    for step in range(4):
        assert (bench.step(step * CLOCK_PS) == NEVER) == (step > 0)
    assert bench.bank["requests_served"] == 1 and bench.fifos[DRAM]["tail"] == 1
    bench.take(DRAM)
    bench.step(9 * CLOCK_PS)
    assert bench.bank["requests_served"] == 2


@pytest.mark.parametrize("cache", [Cache.DEFAULT, Cache.UNCACHED])
def test_no_room_for_answers_blocks_until_the_crossbar_takes_some(cache):
    """Three lines in flight may have three readers each. With room for 10 late answers the bank takes two of them."""
    bench = BankBench(*SMALL, answers=10)
    drain, bench.drain_answers = bench.drain_answers, lambda: None
    for number in range(12):
        bench.ask(Access(number, Op.READ, 128 * number, cache=cache))
    for step in range(40):
        wake_ps = bench.step(step * CLOCK_PS)
        for request in list(bench.dram):
            bench.fill(request, step * CLOCK_PS)
    assert wake_ps == NEVER and bench.bank["blocked"] == FOR_ANSWERS and bench.bank["requests_served"] < 12
    assert bench.fifos[LATE]["tail"] == bench.bank["requests_served"] <= 10
    before = int(bench.bank["requests_served"])
    drain()
    bench.step(41 * CLOCK_PS)
    assert bench.bank["requests_served"] == before + 1


def test_no_room_for_hits_blocks_stores_too():
    bench = BankBench(*SMALL)
    bench.fifos[HITS]["limit"] = bench.fifos[HITS]["free"] = 3
    bench.ask(Access(0, Op.READ, 0))
    bench.step(0)
    bench.fill(bench.dram[0], CLOCK_PS)
    bench.step(CLOCK_PS)
    assert bench.answered == [0]
    bench.drain_answers = lambda: None
    for number in range(1, 5):
        bench.ask(Access(number, Op.READ, 0))
    bench.ask(Access(5, Op.WRITE, 0))
    start_ps = bench.now_ps + CLOCK_PS
    for step in range(6):
        wake_ps = bench.step(start_ps + step * CLOCK_PS)
    assert bench.bank["requests_served"] == 4 and wake_ps == NEVER and bench.bank["blocked"] == FOR_ANSWERS
    assert len(bench.take(HITS)) == 3
    for step in range(6, 9):
        bench.step(start_ps + step * CLOCK_PS)
    assert bench.bank["requests_served"] == 6


def test_uncached_accesses_pass_and_take_the_copy_with_them():
    dirty = Access(0, Op.WRITE, 0, 0b0011)
    read = settled(dirty, Access(1, Op.READ, 0, 0b0110, cache=Cache.UNCACHED))
    assert read.sent == [(Op.READ, 0, 0b0110), (Op.WRITE, 0, 0b0010)] or read.sent == [
        (Op.WRITE, 0, 0b0010),
        (Op.READ, 0, 0b0110),
    ]
    assert read.answered == [1] and read.flush() == [(Op.WRITE, 0, 0b0001)]
    stream = {"cache": Cache.UNCACHED, "stream": Stream.COMPUTE_WRITE}
    write = settled(dirty, Access(1, Op.WRITE, 0, 0b0001, 0b0001, **stream), Access(2, Op.READ, 0, 0b0011))
    assert write.sent == [(Op.WRITE, 0, 0b0001), (Op.READ, 0, 0b0001)]  # overwritten bytes are not written back
    update = settled(dirty, Access(1, Op.UPDATE, 0, 0b0001, 0b0001, stream=Stream.COMPUTE_WRITE))
    assert update.sent == [(Op.WRITE, 0, 0b0001), (Op.UPDATE, 0, 0b0001)]  # added to what was there


@pytest.mark.parametrize("cache", list(Cache))
def test_atomics_are_done_here_and_leave_dirty_sectors(cache):
    bench = settled(Access(0, Op.ATOMIC, 0, 2, cache=cache), Access(1, Op.REDUCE, 0, 6, cache=cache))
    assert bench.sent == [(Op.READ, 0, 2), (Op.READ, 0, 4)] and bench.answered == [0]
    assert bench.flush() == [(Op.WRITE, 0, 6)] and bench.bank["atomic_sectors"] == 3


def test_a_flush_takes_one_line_per_clock_and_waits_for_room():
    bench = settled(*(Access(k, Op.WRITE, 128 * k) for k in range(6)), overrides=(*SMALL, "l2.dram_fifo=4"))
    bench.drain = lambda: None
    bench.banks["flush_set"] = 0
    start_ps = bench.now_ps + CLOCK_PS
    wakes = [bench.step(start_ps + k * CLOCK_PS) for k in range(5)]
    assert wakes[:3] == [start_ps + (k + 1) * CLOCK_PS for k in range(3)] and wakes[4] == NEVER
    assert bench.bank["blocked"] == 1 and len(bench.take(DRAM + Stream.COMPUTE_WRITE)) == 4
    for k in range(5, 9):
        bench.step(start_ps + k * CLOCK_PS)
    assert len(bench.take(DRAM + Stream.COMPUTE_WRITE)) == 2 and bench.bank["flush_set"] == -1
    assert bench.fifos[LATE]["tail"] == 0
