"""What an L2 bank asks its channel for: streams, whose the data are, and no more reads than have room for answers."""

import numpy as np
import pytest

from sim.hw.request import REQUEST, Op, Stream
from tests.support.l2_bench import CLOCK_PS, DRAM, REQUESTS, Access, BankBench
from traces.schema import Cache

LINE = 1 << 14


def one_request(bench, **fields):
    """The bank serves a request that is not of a CU of this GPU."""
    request = np.zeros((), REQUEST)
    for name, value in {"line": LINE, "sectors": 15, "full": 15, **fields}.items():
        request[name] = value
    bench.push(REQUESTS, request, 0)
    bench.step(0)


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (Stream.COMPUTE_READ, Stream.COMPUTE_READ),
        (Stream.COMPUTE_WRITE, Stream.COMPUTE_READ),
        (Stream.COMM_READ, Stream.COMM_READ),
        (Stream.COMM_WRITE, Stream.COMM_READ),
    ],
)
@pytest.mark.parametrize("op", [Op.READ, Op.ATOMIC, Op.WRITE])
def test_what_a_collective_misses_is_read_as_communication(op, stream, expected):
    bench = BankBench("l2.write_miss=all")
    bench.ask(Access(0, op, LINE, full=0, stream=stream))
    bench.step(0)
    assert [(int(one["op"]), int(one["stream"])) for one in bench.dram] == [(Op.READ, expected)]


def test_data_for_a_store_of_another_gpu_come_to_the_bank():
    """Its source is a DMA engine there. Data for a negative source would go to an engine of this GPU."""
    bench = BankBench("l2.write_miss=all")
    one_request(bench, op=Op.WRITE, full=0, source=-1, stream=Stream.COMM_WRITE)
    assert [int(one["source"]) for one in bench.dram] == [0] and bench.bank["reads_out"] == 1


def test_a_read_of_a_dma_engine_does_not_come_back_to_the_bank():
    bench = BankBench()
    one_request(bench, op=Op.READ, cache=Cache.UNCACHED, source=-1, stream=Stream.COMM_READ)
    assert [int(one["source"]) for one in bench.dram] == [-1] and bench.bank["reads_out"] == 0


@pytest.mark.parametrize("write", ["through", "back"])
def test_a_store_that_leaves_l2_counts_no_more_for_its_tile(write):
    """The store was counted when it came to L2."""
    bench = BankBench(f"l2.write={write}")
    bench.drain = lambda: None
    one_request(bench, op=Op.WRITE, tag=3, stream=Stream.COMM_WRITE)
    bench.flush()
    sent = [one for stream in Stream for one in bench.take(DRAM + stream)]
    assert [(int(one["op"]), int(one["tag"])) for one in sent] == [(Op.WRITE, -1)]


def test_what_is_written_back_is_data_of_the_cache_whoever_drives_it_out():
    """A memory-side cache keeps it. An uncached request would leave nothing there."""
    bench = BankBench("l2.write=back")
    bench.drain = lambda: None
    bench.ask(Access(0, Op.WRITE, LINE))
    bench.step(0)
    bench.ask(Access(1, Op.READ, LINE, cache=Cache.UNCACHED), CLOCK_PS)
    bench.step(CLOCK_PS)
    sent = [one for stream in Stream for one in bench.take(DRAM + stream)]
    assert {(int(one["op"]), int(one["cache"])) for one in sent} == {
        (Op.READ, Cache.UNCACHED),
        (Op.WRITE, Cache.DEFAULT),
    }


def test_a_sector_that_is_overwritten_in_part_is_written_back_before():
    bench = BankBench("l2.write=back")
    bench.ask(Access(0, Op.WRITE, LINE, sectors=7, full=7))
    bench.ask(Access(1, Op.WRITE, LINE, sectors=6, full=4, cache=Cache.UNCACHED, stream=Stream.COMPUTE_WRITE))
    for clock in range(2):
        bench.step(clock * CLOCK_PS)
    assert bench.sent == [(Op.WRITE, LINE, 0b0010), (Op.WRITE, LINE, 0b0110)]
    assert bench.flush() == [(Op.WRITE, LINE, 0b0001)]


def test_there_are_no_more_reads_past_l2_than_places_for_their_answers():
    bench = BankBench("l2.mshrs=64", answers=24)
    for number in range(40):
        bench.ask(Access(number, Op.READ, LINE + number * 128, cache=Cache.UNCACHED))
    for clock in range(80):
        bench.step(clock * CLOCK_PS)
    assert 0 < len(bench.dram) <= 24
