"""L1: against its naive twin on random accesses, hit latency to the picosecond, merging, bypass."""

import numpy as np
import pytest

from sim.hw.l1 import (
    BYPASS,
    MAX_JOINERS,
    l1_close,
    l1_fill,
    l1_has_room,
    l1_hit_sectors,
    l1_join,
    l1_miss,
    l1_set,
    make_l1s,
)
from sim.hw.tags import make_sets
from tests.support.cache_twin import L1Twin
from tests.support.cu_bench import CLOCK_PS, run_cu
from tests.support.plain_records import kernel_view
from tests.support.programs import lines, load, small_preset, store
from traces.schema import Cache, Kind

A, P = 0x10000, 0x80000
ANSWER_PS = 30 * CLOCK_PS + 100_000


def make_l1(size_bytes, ways, mshrs):
    shape = (f"l1.bytes={size_bytes}", f"l1.ways={ways}", f"l1.mshrs={mshrs}", "l1.unified_with_shared=false")
    machine = small_preset(*shape).machine
    l1s, sets = make_l1s(machine.l1, 1000, 1)
    return l1s, kernel_view(l1s)[0], kernel_view(make_sets(sets))


def joiners(records, entry):
    """Loads that wait for an entry: who asked first, then those that joined."""
    record = records[0]
    found, joiner = [int(record["entry"][entry]["load"])], int(record["entry"][entry]["joiners"])
    while joiner >= 0:
        found.append(int(record["joiner_load"][joiner]))
        joiner = int(record["joiner_next"][joiner])
    return found


@pytest.mark.parametrize("seed", range(6))
def test_random_accesses_do_what_the_twin_does(seed):
    random = np.random.default_rng(seed)
    records, l1, sets = make_l1(2048, 4, 6)  # 4 sets
    twin, number = L1Twin(4, 4), 0
    for load_number in range(1500):
        if twin.misses and (random.random() < 0.4 or not l1_has_room(l1)):
            number = int(random.choice(list(twin.misses)))
            assert sorted(joiners(records, number)) == sorted(twin.misses[number][2])
            l1_fill(l1, sets, number)
            l1_close(l1, number)
            twin.answer(number)
            continue
        line, sectors = 128 * int(random.integers(0, 30)), int(random.integers(1, 16))
        keep = int(random.random() < 0.9)
        missing = sectors
        if keep:
            expected = twin.read(line, sectors, load_number)
            hit = int(l1_hit_sectors(l1, sets, l1_set(l1, line), line, sectors))
            joined, waits = map(int, l1_join(l1, line, sectors & ~hit, load_number)) if sectors & ~hit else (0, 0)
            missing = sectors & ~hit & ~joined
            assert (hit, joined, missing, waits) == expected
        if missing:
            number = int(l1_miss(l1, line, missing, load_number, l1_set(l1, line) if keep else BYPASS))
            assert number not in twin.misses
            twin.miss(number, line, missing, load_number, keep)
        assert records[0]["entries_used"] == len(twin.misses) <= 6
        assert l1_has_room(l1) == (len(twin.misses) < 6)


def test_room_ends_with_the_places_for_joiners():
    records, l1, _ = make_l1(2048, 4, 8)
    entry = l1_miss(l1, 0, 15, 0, l1_set(l1, 0))
    for _ in range(MAX_JOINERS - 4):
        assert l1_has_room(l1)
        assert l1_join(l1, 0, 1, 1) == (1, 1)
    assert l1_has_room(l1)  # four places are left
    l1_join(l1, 0, 1, 3)
    assert not l1_has_room(l1)
    l1_close(l1, entry)
    assert l1_has_room(l1) and records["joiners_used"][0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("latency_clk", [0, 1, 30])
def test_a_hit_arrives_a_latency_after_its_line(latency_clk):
    """Three lines go through the unit in turn; the last to come decides."""
    program = [lines(Kind.LOAD, A, 3, slot=1), lines(Kind.LOAD, A, 3, slot=2, wait=[1]), store(P, wait=[2])]
    bench = run_cu([[program]], f"l1.latency_clk={latency_clk}")
    second_ps = (latency_clk + 2) * CLOCK_PS + 100_000  # the answer to the third line
    assert bench.issued_ps(P) == [second_ps + max(3, 2 + latency_clk) * CLOCK_PS]
    assert bench.l1["read_hit_sectors"] == 3 and bench.l1["fills"] == 3


def test_a_second_miss_joins_the_first():
    warps = [[lines(Kind.LOAD, A, 1, slot=1), store(P + 128 * w, wait=[1])] for w in range(3)]
    bench = run_cu([warps], "cu.lsu_lines_per_clk=1000.0")
    assert len(bench.left_ps(A)) == 1
    assert [bench.issued_ps(P + 128 * w)[0] // CLOCK_PS for w in range(3)] == [ANSWER_PS // CLOCK_PS] * 3
    assert bench.l1["read_merged_sectors"] == 2 and bench.l1["read_sectors"] == 3


def test_other_sectors_of_the_line_are_asked_for_themselves():
    program = [load(A, mask=0x00FF, slot=1), load(A, mask=0xFFFF, slot=2), load(A, mask=0xFFFFFF, slot=3)]
    bench = run_cu([[program]])
    assert [int(r["sectors"]) for r in bench.requests] == [0b0001, 0b0010, 0b0100]
    assert bench.l1["read_merged_sectors"] == 1 + 2


@pytest.mark.parametrize("cache", [Cache.BYPASS_L1, Cache.UNCACHED])
def test_bypassing_loads_neither_hit_nor_fill(cache):
    program = [load(A, slot=1, cache=cache), load(A, slot=2, wait=[1]), load(A, slot=3, wait=[2], cache=cache)]
    bench = run_cu([[program]])
    assert len(bench.left_ps(A)) == 3 and bench.l1["fills"] == 1
    program = [load(A, slot=1, cache=cache), load(A, slot=2, cache=cache), load(A, slot=3)]
    assert len(run_cu([[program]]).left_ps(A)) == 3  # nor is anything merged with them


def test_stores_pass_and_leave_the_line_readable():
    program = [load(A, slot=1), store(A, wait=[1]), load(A, slot=2), store(P, wait=[2])]
    bench = run_cu([[program]])
    assert list(bench.requests["op"]) == [0, 1, 1] and bench.l1["write_sectors"] == 8
    assert bench.l1["read_hit_sectors"] == 4
    store_first = run_cu([[[store(A), load(A, slot=1)]]])
    assert len(store_first.left_ps(A)) == 2 and store_first.l1["read_hit_sectors"] == 0  # no write-allocate
