"""The C loops of the benchmark do what the kernels do: same results, same state of every record, to the byte."""

import numpy as np
import pytest

from sim.dram import channel_spec, drive, stream_state
from sim.dram_stream import Stream
from sim.spec import BankMap, CacheIndex, QueueOrganisation
from tracer.coalesce import LINES_PER_EVENT
from traces.errors import UserError
from traces.schema import EVENT, EXPLICIT, Kind
from validation import c_twins
from validation.bench_units import LOOPS, UNITS, _coalesce_all, noc_loop
from validation.c_twins import Loop, compiler, difference, race, records_header, run_c

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler on this machine")


@needs_compiler
@pytest.mark.parametrize("name", LOOPS)
def test_the_benchmarked_loops_agree(name):
    assert difference(LOOPS[name](3000)) is None


@needs_compiler
@pytest.mark.parametrize("bank_map", BankMap)
@pytest.mark.parametrize("queue", QueueOrganisation)
def test_channel_with_reads_and_writes(bank_map, queue):
    random = np.random.default_rng(5)
    count = 4000
    address = random.integers(0, 1 << 16, count) * 64  # few rows: hits, misses, reads after writes
    op = random.integers(0, 2, count).astype(np.uint8)
    stream = Stream(op, address, np.sort(random.integers(0, 20 * count, count)))
    spec = channel_spec("G", bank_map.name, queue=queue)
    assert difference(Loop(drive, "hbm_channel_loop", lambda: stream_state(stream, spec))) is None


@needs_compiler
@pytest.mark.parametrize("index", CacheIndex)
def test_crossbar_with_full_banks(index):
    loop = noc_loop(3000, step_bytes=1 << 18)  # without a hash all lines lie in one bank

    def fresh():
        noc, *rest = loop.fresh()
        noc["index"] = noc["set_index"] = index
        return noc, *rest

    assert difference(loop._replace(fresh=fresh)) is None
    arguments = fresh()
    loop.kernel(*arguments)
    assert (arguments[0]["refused"][0] > 0) == (index == CacheIndex.INTERLEAVE)


@needs_compiler
def test_coalesce_of_all_lane_patterns():
    random = np.random.default_rng(7)
    events = np.zeros(400, EVENT)
    events["kind"] = random.choice([Kind.LOAD, Kind.STORE], events.size)
    events["width_bytes"] = random.choice([1, 2, 4, 8, 16], events.size)
    events["inner"] = random.choice([EXPLICIT, 1, 3, 8, 32], events.size)
    events["stride"] = random.choice([0, 1, 2, 16, 33, 512, -64], events.size)
    events["row_stride"] = random.integers(-4096, 4096, events.size)
    events["mask"] = random.integers(0, 1 << 32, events.size)
    listed = events["inner"] == EXPLICIT
    events["base"] = np.where(
        listed, random.integers(0, 64, events.size), random.integers(1 << 20, 1 << 21, events.size)
    )
    addresses = np.sort(random.integers(0, 2000, 128)).astype(np.uint64) * np.uint64(2)
    for event in events:  # one by one: the outputs of each are compared
        one = np.array([event])

        def fresh(one=one):
            return one, addresses, *(np.zeros(LINES_PER_EVENT, kind) for kind in ("i8", "u1", "u1")), 1

        assert difference(Loop(_coalesce_all, "coalesce_loop", fresh)) is None, event


@needs_compiler
def test_what_the_c_loop_leaves_out_is_refused():
    stream = Stream(np.zeros(10, np.uint8), np.arange(10) * 64, np.zeros(10, np.int64))
    loop = Loop(drive, "hbm_channel_loop", lambda: stream_state(stream, channel_spec("G", "BG", REFI=3900)))
    with pytest.raises(UserError, match="leaves out"):
        run_c(loop, loop.fresh())


@needs_compiler
def test_a_difference_is_found():
    loop = LOOPS["HBM channel, sequential 64-byte reads"](100)

    def forgetful(*state):
        drive(*state)
        state[0]["row_hits"] += 1

    with pytest.raises(UserError, match="row_hits"):
        race(loop._replace(kernel=forgetful))


def test_every_record_is_in_the_header():
    header = records_header()
    assert all(f"struct {name} {{" in header for name in c_twins.RECORDS)
    assert "#define OP_READ 0" in header


def test_without_a_compiler_the_c_times_are_left_out(monkeypatch):
    monkeypatch.setattr(c_twins, "compiler", lambda: None)
    assert c_twins.compiler_version() is None
    cost = UNITS["coalesce, 128-byte lines"](2000)
    assert cost.kernel_ns > 0 and cost.c_ns is None
