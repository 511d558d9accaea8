"""The C loops of the benchmark do what the kernels do: same results, same state of every record, to the byte."""

import numpy as np
import pytest

from sim.hw.l1 import MAX_JOINERS
from sim.hw.tags import HELD
from sim.run.dram import channel_spec, drive, stream_state
from sim.run.dram_stream import Stream
from sim.spec import BankMap, CacheIndex, QueueOrganisation
from tracer.coalesce import LINES_PER_EVENT
from traces.errors import UserError
from traces.schema import EVENT, EXPLICIT, NO_SLOT, Cache, Kind, Pipe, Space
from validation import c_twins
from validation.bench.units import LOOPS, UNITS, _coalesce_all, cu_loop, noc_loop
from validation.c_records import RECORDS, records_header
from validation.c_twins import Loop, compiler, difference, race, run_c

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


def scattered_loads(index, limits):
    """The benchmark of the CU with loads of all patterns, some to the same lines, and tag sets with a past.

    Args:
        limits: field of the load/store unit or of L1 -> value.
    """
    random = np.random.default_rng(11)
    loop = cu_loop(1, buffer_bytes=1 << 18)
    *_, events, _, window_ps, _ = loop.fresh()
    events, loads, adds = events.copy(), events["kind"] == Kind.LOAD, events["kind"] == Kind.COMPUTE
    count = int(loads.sum())
    for chosen, field, values in (
        (loads, "width_bytes", [1, 4, 8, 16]),
        (loads, "stride", [0, 4, 16, 33, 512]),
        (loads, "inner", [EXPLICIT, 3, 8, 32]),
        (loads, "slot", [0, 1, 2, NO_SLOT]),
        (loads, "wait", [0, 0, 0, 0, 0, 0, 0, 0, 1, 7]),
        (loads, "cache", [Cache.DEFAULT, Cache.STREAM]),
        (loads, "mask", [0, 1, 1, 5, 5, (1 << 32) - 1]),
        (adds, "pipe", [Pipe.ALU, Pipe.FP64, Pipe.SFU]),
        (adds, "count", [1, 50]),
        (adds, "cycles", [0, 200]),
        (adds, "wait", [0, 1, 6, 7]),
    ):
        events[field][chosen] = random.choice(values, int(chosen.sum()))
    near = random.random(count) < 0.5
    base = np.where(near, random.integers(0, 1 << 10, count), random.integers(0, 1 << 22, count))
    events["base"][loads] = np.where(events["inner"][loads] == EXPLICIT, base % 32, base)
    addresses = random.integers(0, 1 << 62, (len(events), 64)).astype(np.uint64)

    def fresh():
        cus, lsus, l1s, sets, *rest = loop.fresh()[:7]
        l1s["hashed"] = index
        for field, value in limits.items():
            (l1s if field in l1s.dtype.names else lsus)[field] = value
        ages = np.random.default_rng(3).integers(0, HELD, sets["block"]["age"].shape)
        sets["block"]["age"] = np.where(ages < HELD - 200, ages % 99, HELD - 1 - ages % 8)  # some run out of numbers
        return cus, lsus, l1s, sets, *rest, events, addresses, window_ps, 60_000  # answers come while loads are in hand

    return loop._replace(fresh=fresh)


@needs_compiler
@pytest.mark.parametrize(
    "limits", [{"entries": 6, "loads": 12}, {"loads": 4}, {"joiners_used": MAX_JOINERS - 12}], ids=str
)
@pytest.mark.parametrize("index", CacheIndex)
def test_compute_unit_with_scattered_loads(index, limits):
    loop = scattered_loads(index, limits)
    assert difference(loop) is None
    _, lsus, l1s, sets, *_ = arguments = loop.fresh()
    old = sets.copy()
    loop.kernel(*arguments)
    counts = l1s[0]
    assert min(counts["fills"], counts["read_hit_sectors"], counts["read_merged_sectors"], lsus[0]["blocked_ps"]) > 0
    newest = [ages["block"]["age"].max(axis=(1, 2)) for ages in (old, sets)]
    assert (newest[1] < newest[0]).any()  # touch numbers were given anew


@needs_compiler
@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, {"kind": Kind.STORE}),
        (0, {"kind": Kind.BARRIER}),
        (0, {"cache": Cache.UNCACHED}),
        (0, {"space": Space.SHARED}),
        (4, {"pipe": Pipe.TENSOR}),
    ],
)
def test_compute_unit_refuses_other_events(place, change):
    loop = cu_loop(1)
    *units, events, addresses, window_ps, memory_ps = loop.fresh()
    events = events.copy()
    for field, value in change.items():
        events[field][0, place] = value
    with pytest.raises(UserError, match="leaves out"):
        run_c(loop, (*units, events, addresses, window_ps, memory_ps))


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
    assert all(f"struct {name} {{" in header for name in RECORDS)
    assert "#define OP_READ 0" in header


def test_without_a_compiler_the_c_times_are_left_out(monkeypatch):
    monkeypatch.setattr(c_twins, "compiler", lambda: None)
    assert c_twins.compiler_version() is None
    cost = UNITS["coalesce, 128-byte lines"](2000)
    assert cost.kernel_ns > 0 and cost.c_ns is None
