"""Load/store unit: one line per `line_ps` or less, blocking when L1 or the port is full, and who comes next."""

import numpy as np
import pytest

from tests.support.cu_bench import CLOCK_PS, run_cu
from tests.support.programs import lines, load, row, store
from traces.schema import Cache, Kind

L1_PS = 30 * CLOCK_PS
MEMORY_PS = 100_000
A, B, C = 0x10000, 0x20000, 0x30000


@pytest.mark.parametrize(("rate", "line_ps"), [(1.0, CLOCK_PS), (0.5, 2 * CLOCK_PS), (4.0, CLOCK_PS // 4)])
@pytest.mark.parametrize(("kind", "latency_ps"), [(Kind.STORE, 0), (Kind.LOAD, L1_PS), (Kind.ATOMIC, 0)])
def test_one_line_per_line_ps(rate, line_ps, kind, latency_ps):
    bench = run_cu([[[lines(kind, A, 16), lines(kind, B, 1)]]], f"cu.lsu_lines_per_clk={rate}", "noc.cu_fifo=64")
    assert list(bench.requests["line"][:16]) == [A + 128 * k for k in range(16)]
    assert list(bench.requests["ready_ps"][:16]) == [latency_ps + k * line_ps for k in range(16)]
    # The next event starts when the lines of the one before are through, not earlier, not later.
    assert bench.left_ps(B) == [latency_ps + max(16 * line_ps, CLOCK_PS)]
    assert bench.lsu["line_requests"] == 17


@pytest.mark.parametrize(
    ("tags", "sectors", "clocks"),
    [(0.0, 1, 1), (0.5, 1, 1), (4.0, 1, 1 / 4), (4.0, 2, 1 / 2), (4.0, 4, 1), (2.0, 1, 1 / 2), (2.0, 3, 3 / 4)],
)
@pytest.mark.parametrize("kind", [Kind.STORE, Kind.LOAD])
def test_a_line_of_fewer_sectors_takes_less_but_a_look_up_of_its_tag(kind, tags, sectors, clocks):
    """tags: per clock, never fewer than whole lines."""
    rows = {"inner": sectors, "stride": 32, "row_stride": 128, "width_bytes": 4, "mask": (1 << 8 * sectors) - 1}
    bench = run_cu([[[row(kind, base=A, **rows), lines(kind, B, 1)]]], f"cu.lsu_tags_per_clk={tags}", "noc.cu_fifo=64")
    ready_ps = bench.requests["ready_ps"][:8]
    assert [int(mask).bit_count() for mask in bench.requests["sectors"][:8]] == [sectors] * 8
    assert np.diff(ready_ps).tolist() == [clocks * CLOCK_PS] * 7
    first_ps = L1_PS if kind == Kind.LOAD else 0
    assert bench.left_ps(B) == [first_ps + max(8 * clocks, 1) * CLOCK_PS]
    last = CLOCK_PS if tags < 1 else CLOCK_PS / tags
    assert bench.lsu["busy_ps"] == 8 * clocks * CLOCK_PS + last


def test_requests_say_what_they_are():
    program = [load(A, slot=0), store(B, width_bytes=1, stride=1, mask=0xFF, cache=Cache.UNCACHED)]
    program += [lines(Kind.REDUCE, C, 1), lines(Kind.ATOMIC, C, 1)]
    requests = run_cu([[program]]).requests
    by_line = {(int(r["line"]), int(r["op"])): r for r in requests}
    assert set(by_line) == {(A, 0), (B, 1), (C, 4), (C, 3)}
    assert [int(by_line[A, 0][f]) for f in ("sectors", "full", "stream", "cache", "source", "tag")] == [
        15,
        15,
        0,
        0,
        0,
        0,
    ]
    assert [int(by_line[B, 1][f]) for f in ("sectors", "full", "stream", "cache", "load")] == [
        1,
        0,
        1,
        Cache.UNCACHED,
        -1,
    ]
    assert by_line[C, 4]["load"] == -1 and by_line[C, 3]["load"] >= 0


def test_a_full_l1_blocks_and_each_answer_lets_one_line_through():
    bench = run_cu([[[lines(Kind.LOAD, A, 6, slot=1), store(B)]]], "l1.mshrs=2", memory_ps=MEMORY_PS)
    first = L1_PS + MEMORY_PS  # answers to the two lines that had an entry
    assert list(bench.requests["ready_ps"][:2]) == [L1_PS, L1_PS + CLOCK_PS]
    assert list(bench.requests["ready_ps"][2:4]) == [first + L1_PS, first + L1_PS + CLOCK_PS]
    second = first + L1_PS + MEMORY_PS
    assert list(bench.requests["ready_ps"][4:6]) == [second + L1_PS, second + L1_PS + CLOCK_PS]
    assert bench.issued_ps(B) == [second + 2 * CLOCK_PS]  # the store had to wait for the unit, not for the data
    assert bench.l1["entries_used_max"] == 2
    assert bench.lsu["blocked_ps"] == second + CLOCK_PS  # from the start, at which all tags are looked up


def test_stores_need_no_room_in_l1():
    bench = run_cu([[[lines(Kind.LOAD, A, 2, slot=1), lines(Kind.STORE, B, 4)]]], "l1.mshrs=2")
    assert bench.left_ps(B) == [2 * CLOCK_PS]


def test_a_full_port_blocks_until_it_opens():
    opens_ps = 50_000
    bench = run_cu(
        [[[lines(Kind.STORE, A, 32), store(B)]]], "noc.cu_fifo=1", "noc.latency_clk=1", port_open_ps=opens_ps
    )
    ready_ps = bench.requests["ready_ps"]
    assert (np.diff(ready_ps) >= CLOCK_PS).all()
    inside = int((ready_ps < opens_ps).sum())
    assert 1 <= inside < 32
    assert ready_ps[inside] == opens_ps + CLOCK_PS  # the port is empty; the unit looks again one clock later
    assert opens_ps < bench.lsu["blocked_ps"] <= ready_ps[31]
    assert [int(line) for line in bench.requests["line"]] == [A + 128 * k for k in range(32)] + [B]


def test_the_load_table_bounds_events_in_flight():
    warps = [[load(A + 0x1000 * w, slot=1), store(B + 128 * w)] for w in range(3)]
    bench = run_cu([warps], "cu.loads_outstanding=2", memory_ps=MEMORY_PS)
    assert [bench.left_ps(A + 0x1000 * w)[0] for w in range(2)] == [L1_PS, L1_PS + CLOCK_PS]
    # The stores and the third load queue behind each other until the first answer frees an entry.
    assert bench.issued_ps(A + 0x2000) == [L1_PS + MEMORY_PS]


def test_loads_that_end_with_one_answer_make_room_for_the_next():
    warps = [[load(A, slot=1), load(B, slot=2)], [load(A, slot=1), load(C, slot=2)]]  # the second joins the first
    bench = run_cu([warps], "cu.loads_outstanding=2", memory_ps=MEMORY_PS)
    assert bench.l1["read_merged_sectors"] == 4
    assert [bench.issued_ps(line) for line in (B, C)] == [[L1_PS + MEMORY_PS], [L1_PS + MEMORY_PS + CLOCK_PS]]


def test_every_line_of_a_load_fills_its_own_set():
    """Later loads of single lines, in any order, hit."""
    program = [lines(Kind.LOAD, A, 4, slot=1)]
    program += [lines(Kind.LOAD, A + 128 * k, 1, slot=2, wait=[1, 2]) for k in (3, 1, 2, 0)]
    bench = run_cu([[program]], memory_ps=MEMORY_PS)
    assert bench.requests.size == 4 and bench.l1["read_hit_sectors"] == 4


def test_waiting_warps_go_in_the_order_in_which_they_came():
    warps = [[lines(Kind.STORE, A, 20)]] + [[store(B + 128 * w)] for w in range(1, 9)]
    bench = run_cu([warps], "noc.cu_fifo=64")
    later = bench.requests[bench.requests["line"] >= B]
    # All but 4 and 8, whose scheduler had just issued for warp 0, came at once.
    assert list((later["line"] - B) // 128) == [1, 2, 3, 5, 6, 7, 4, 8]
    assert list(later["ready_ps"]) == [(20 + k) * CLOCK_PS for k in range(8)]


def test_an_event_without_active_lanes_makes_no_request():
    bench = run_cu([[[load(A, mask=0, slot=1), store(B, wait=[1])]]])
    assert list(bench.requests["line"]) == [B] and bench.issued_ps(B) == [CLOCK_PS]


def test_a_load_of_hits_and_misses_ends_with_its_last_answer():
    program = [lines(Kind.LOAD, A, 1, slot=1), lines(Kind.LOAD, A, 2, slot=2, wait=[1]), store(B, wait=[2])]
    bench = run_cu([[program]], memory_ps=MEMORY_PS)
    answered_ps = L1_PS + MEMORY_PS
    assert bench.left_ps(A) == [L1_PS]  # once: the second time it hits
    assert bench.left_ps(A + 128) == [answered_ps + CLOCK_PS + L1_PS]
    assert bench.issued_ps(B) == [answered_ps + CLOCK_PS + L1_PS + MEMORY_PS]
    assert bench.l1["read_hit_sectors"] == 1
