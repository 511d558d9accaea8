"""Bulk copy unit: its lines and times against a naive twin, transaction barriers, room, what is refused."""

import numpy as np
import pytest

from sim.host.gpu import Gpu
from sim.hw.bulk import bulk_advance
from sim.machine.build import build
from tests.support.cu_bench import CLOCK_PS, ONE_CU, run_cu
from tests.support.plain_records import kernel_view
from tests.support.programs import (
    barrier,
    bulk,
    compute,
    kernel,
    lines,
    load,
    phase_arrive,
    phase_wait,
    row,
    small_preset,
    store,
)
from traces.errors import UserError
from traces.schema import NO_SLOT, Bulk, Cache, Kind, Pipe

L1_PS = 30 * CLOCK_PS
MEMORY_PS = 100_000
A, B, C, D = 0x10000, 0x20000, 0x30000, 0x40000
HAS = ("cu.bulk_lines_per_clk=1.0", "cu.bulk_latency_clk=7")
LATENCY_PS = 7 * CLOCK_PS


def twin_lines(base, rows, row_bytes, pitch_bytes):
    """(line, touched sectors, full sectors) of a box, byte by byte; rows without gaps are one row."""
    if pitch_bytes == row_bytes:
        rows, row_bytes = 1, rows * row_bytes
    found = []
    for k in range(rows):
        touched: dict = {}
        for address in range(base + k * pitch_bytes, base + k * pitch_bytes + row_bytes):
            touched.setdefault(address // 128 * 128, {}).setdefault(address % 128 // 32, set()).add(address)
        for line, sectors in touched.items():
            full = sum(1 << s for s, seen in sectors.items() if len(seen) == 32)
            found.append((line, sum(1 << s for s in sectors), full))
    return found


TO_MEMORY = (Bulk.LOAD, Bulk.STORE, Bulk.REDUCE)
"""Copies to another workgroup of a cluster are in `tests/sim/machine/test_clusters.py`."""
BOXES = [(1, 16, 16), (1, 4096, 4096), (5, 128, 4096), (3, 100, 208), (4, 64, 64), (7, 272, 288), (2, 1, 16)]


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("offset", [0, 16, 112])
@pytest.mark.parametrize("kind", TO_MEMORY)
def test_lines_and_times_are_those_of_the_twin(box, offset, kind):
    rows, row_bytes, pitch_bytes = box
    program = [bulk(A + offset, rows, row_bytes, pitch_bytes, kind=kind, slot=3), store(B, wait=[3])]
    bench = run_cu([[program]], *HAS, "noc.cu_fifo=128", "l1.mshrs=512", memory_ps=MEMORY_PS)
    expected = twin_lines(A + offset, rows, row_bytes, pitch_bytes)
    requests = bench.requests[:-1]
    full = [full if kind == Bulk.STORE else touched for _, touched, full in expected]
    assert requests["line"].tolist() == [line for line, _, _ in expected]
    assert requests["sectors"].tolist() == [touched for _, touched, _ in expected]
    assert requests["full"].tolist() == full
    assert set(requests["op"]) == {{Bulk.LOAD: 0, Bulk.STORE: 1, Bulk.REDUCE: 4}[kind]}
    leave_ps = LATENCY_PS + np.arange(len(expected)) * CLOCK_PS + (L1_PS if kind == Bulk.LOAD else 0)
    assert requests["ready_ps"].tolist() == leave_ps.tolist()
    assert bench.issued_ps(B) == [leave_ps[-1] + MEMORY_PS]  # the store waits for the last line
    sectors = sum(bin(touched).count("1") for _, touched, _ in expected)
    fields = ("copies", "line_requests", "read_sectors", "write_sectors")
    read = sectors if kind == Bulk.LOAD else 0
    assert [int(bench.bulk[f]) for f in fields] == [1, len(expected), read, sectors - read]
    assert bench.l1["fills"] == 0 and bench.lsu["loads_used"] == 0


@pytest.mark.parametrize(("rate", "line_ps"), [(0.5, 2 * CLOCK_PS), (4.0, CLOCK_PS // 4)])
def test_copies_follow_each_other_at_the_stated_rate(rate, line_ps):
    program = [bulk(A, 1, 2048, slot=0), bulk(B, 3, 128, 1024, slot=1)]
    bench = run_cu([[program]], f"cu.bulk_lines_per_clk={rate}", HAS[1], "noc.cu_fifo=128")
    assert bench.requests["line"].tolist() == [A + 128 * k for k in range(16)] + [B + 1024 * k for k in range(3)]
    assert bench.requests["ready_ps"].tolist() == [LATENCY_PS + L1_PS + k * line_ps for k in range(19)]


def test_a_copy_passes_l1():
    """Lines that a bulk load has read are not in L1, and lines in L1 are read again."""
    program = [load(A, slot=0), bulk(A, 1, 128, slot=1, wait=[0]), load(A, slot=2, wait=[1])]
    program += [bulk(B, 1, 128, slot=3), load(B, slot=4, wait=[3])]
    bench = run_cu([[program]], *HAS)
    assert len(bench.left_ps(A)) == 2  # the last load hits
    assert len(bench.left_ps(B)) == 2


def test_consumers_wait_at_the_transaction_barrier():
    producer = [bulk(A, 1, 1024, barrier=2), bulk(B, 1, 128, barrier=2), phase_arrive(2)]
    consumers = [[phase_wait(2, 1), store(C + 128 * w)] for w in range(2)]
    bench = run_cu([[producer, *consumers]], *HAS, memory_ps=MEMORY_PS)
    arrived_ps = LATENCY_PS + 8 * CLOCK_PS + L1_PS + MEMORY_PS  # of the second copy, the ninth line
    issued = [bench.issued_ps(C + 128 * w)[0] for w in range(2)]
    assert issued == [arrived_ps + CLOCK_PS, arrived_ps + CLOCK_PS + CLOCK_PS]
    assert bench.cu["barrier_stall_ps"] > 2 * MEMORY_PS - 1


def test_a_phase_that_is_over_is_not_waited_for_and_phases_are_counted():
    producer = [
        *(bulk(A, 1, 128, barrier=0), phase_arrive(0), phase_wait(1, 1)),
        *(bulk(B, 1, 128, barrier=0), phase_arrive(0)),
    ]
    consumer = [phase_wait(0, 1), phase_arrive(1), phase_wait(0, 2), phase_wait(0, 1), store(C)]
    bench = run_cu([[producer, consumer]], *HAS, memory_ps=MEMORY_PS)
    first_ps = LATENCY_PS + L1_PS + MEMORY_PS
    assert bench.left_ps(A) == [first_ps - MEMORY_PS]
    assert bench.issued_ps(B)[0] > first_ps  # the second copy was started after the consumer's arrival
    assert bench.issued_ps(C)[0] > bench.left_ps(B)[0] + MEMORY_PS


def test_a_phase_needs_all_its_arrivals():
    warps = [[phase_arrive(5, 3)] for _ in range(2)]
    late = [load(A, slot=0), phase_arrive(5, 3, wait=[0])]
    waiter = [phase_wait(5, 1), store(C)]
    bench = run_cu([[*warps, late, waiter]], *HAS, memory_ps=MEMORY_PS)
    assert bench.issued_ps(C)[0] > L1_PS + MEMORY_PS


@pytest.mark.parametrize("before", [[bulk(A, 1, 128, barrier=1)], [phase_arrive(0), phase_arrive(0)]])
def test_a_phase_waits_for_its_own_arrival(before):
    """Neither a copy that has ended stands for it nor two phases of another barrier."""
    waiter, late = [phase_wait(1, 1), store(C)], 300
    producer = [compute(5, Pipe.UNIFORM), *before, compute(late, Pipe.UNIFORM), phase_arrive(1)]
    bench = run_cu([[producer, waiter]], *HAS, memory_ps=MEMORY_PS)
    assert bench.issued_ps(C) == [(5 + len(before) + late + 1) * CLOCK_PS]


def test_transaction_barriers_and_workgroup_barriers_are_apart():
    warps = [[phase_arrive(0, 2), barrier(0), phase_wait(0, 1), store(C + 128 * w)] for w in range(2)]
    bench = run_cu([warps], *HAS)
    assert len(bench.issued_ps(C)) == len(bench.issued_ps(C + 128)) == 1


@pytest.mark.parametrize("others", [(30,), (15, 16, 0)])
def test_thirty_two_transaction_barriers_are_apart(others):
    """Phases of other barriers, of any number and however many, let no warp go on that waits at the last one."""
    busy = [phase_arrive(number) for number in others for _ in range(40)]
    late = compute(100_000, Pipe.UNIFORM)
    warps = [[*busy, late, phase_arrive(31)], *([phase_wait(31, phase), store(C + 128 * phase)] for phase in (1, 2))]
    warps[0] += [late, bulk(A, 1, 128, barrier=31), phase_arrive(31)]
    bench = run_cu([warps], *HAS, memory_ps=MEMORY_PS)
    (first,), (second,) = bench.issued_ps(C + 128), bench.issued_ps(C + 256)
    assert first > 100_000 * CLOCK_PS and second - first > 100_000 * CLOCK_PS + MEMORY_PS


@pytest.mark.parametrize("number", [0, 31])
def test_a_new_workgroup_begins_with_phase_0(number):
    """Also behind one whose phase was not complete."""
    warps = [[bulk(A, 1, 128, barrier=number), phase_arrive(number)], [phase_wait(number, 1), store(C)]]
    before = [[phase_arrive(number, 2, expected_bytes=64)], []]
    bench = run_cu([before, warps, warps], *HAS, memory_ps=MEMORY_PS, places=1)
    first, second = bench.issued_ps(C)
    assert second - first > MEMORY_PS


@pytest.mark.parametrize("limit", ["l1.mshrs=3", "noc.cu_fifo=1"])
@pytest.mark.parametrize("kind", TO_MEMORY)
def test_full_buffers_delay_and_lose_nothing(limit, kind):
    program = [bulk(A, 1, 4096, kind=kind, slot=0), lines(Kind.LOAD, B, 8, slot=1), store(C), store(D, wait=[0, 1])]
    bench = run_cu([[program]], *HAS, limit, "noc.latency_clk=1", memory_ps=MEMORY_PS, port_open_ps=50_000)
    expected = [A + 128 * k for k in range(32)] + [B + 128 * k for k in range(8)] + [C, D]
    assert sorted(bench.requests["line"]) == expected
    assert bench.bulk["blocked_ps"] > 0 and bench.requests["line"][-1] == D


@pytest.mark.parametrize("kind", TO_MEMORY)
def test_each_line_holds_an_entry_of_l1_until_its_answer(kind):
    bench = run_cu([[[bulk(A, 1, 12 * 128, kind=kind, slot=0)]]], *HAS, "l1.mshrs=3", memory_ps=MEMORY_PS)
    left_ps = bench.requests["ready_ps"] - (L1_PS if kind == Bulk.LOAD else 0)
    assert (left_ps[3:] - bench.requests["ready_ps"][:-3]).tolist() == [MEMORY_PS] * 9


@pytest.mark.parametrize(("leaves", "waits", "sent"), [(0, 0, 4), (0, 1, 0), (1, 1, 4)])
def test_a_load_store_unit_that_waits_for_the_port_goes_first(leaves, waits, sent):
    """It waits for room for several lines, so a copy must leave it the places. Copies to other GPUs have their port."""
    node, _ = build(small_preset(*HAS, "noc.cu_fifo=8", size=ONE_CU).machine)
    copy = node.bulks[0]["copy"][0]
    copy["next"], copy["row_left"], copy["rows_left"], copy["peer"] = A, 1024, 1, -1
    node.bulks["tail"], node.bulks["leaves"], node.lsus["port_room_ps"] = 1, leaves, waits * 5000
    units = (kernel_view(records)[0] for records in (node.bulks, node.lsus, node.l1s))
    bulk_advance(*units, kernel_view(node.fifos), kernel_view(node.pool), 0)
    assert node.bulks[0]["line_requests"] == sent


@pytest.mark.parametrize("left", [NO_SLOT, 5, 6])
def test_an_exit_leaves_the_copies_of_one_slot_to_the_next_workgroup_of_its_place(left):
    """Two workgroups, one place. The second one's store to D waits for slot 5, in which the first one's copy is."""
    first = [bulk(A, 1, 512, kind=Bulk.STORE, slot=5), row(Kind.EXIT, slot=left)]
    second = [store(C), store(D, wait=[5])]
    bench = run_cu([[first], [second]], *HAS, memory_ps=MEMORY_PS, places=1)
    acknowledged_ps = bench.left_ps(A + 384)[0] + MEMORY_PS
    began_ps, waited_ps = bench.issued_ps(C)[0], bench.issued_ps(D)[0]
    assert began_ps < acknowledged_ps == waited_ps if left == 5 else acknowledged_ps < began_ps <= waited_ps
    assert bench.lsu["loads_used"] == 0


def test_a_reduction_adds_once_to_each_address():
    """Other than lanes of a warp, which may all name one address (`l2.atomics_per_clk`)."""
    program = [lines(Kind.REDUCE, B, 2), bulk(A, 1, 512, kind=Bulk.REDUCE)]
    requests = run_cu([[program]], *HAS, "l2.atomics_per_clk=1").requests
    assert requests["need"][requests["line"] < B].tolist() == [1] * 4


def test_cache_policy_and_workgroup_go_with_the_request():
    requests = run_cu([[[bulk(A, 1, 128, cache=Cache.STREAM)]]], *HAS).requests
    assert [int(requests[0][f]) for f in ("cache", "stream", "tag", "source")] == [Cache.STREAM, 0, 0, 0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": 4}, "space: found 4, allowed of a bulk copy 0 to 3"),
        ({"slot": 64}, "slot: found 64, allowed of a bulk copy 0 to 63"),
        ({"slot": 255}, "slot: found 255, allowed of a bulk copy 0 to 63"),
        ({"barrier": 32}, "inner: found 32"),
        ({"kind": Bulk.STORE, "barrier": 1}, "inner: found 1"),
        ({"row_bytes": 0}, "stride: found 0"),
        ({"row_bytes": 1 << 20, "pitch_bytes": 1 << 20}, "stride: found 1048576"),
        ({"rows": 0}, "work: found 0"),
        ({"rows": 1 << 14}, "work: found 16384"),
        ({"pitch_bytes": 112}, "row_stride: found 112"),
        ({"pitch_bytes": 136}, "row_stride: found 136"),
        ({"base": 8}, "base: found 8"),
        ({"base": (1 << 63) - 16}, "base: found"),
        ({"cache": 9}, "cache: found 9"),
    ],
)
def test_impossible_copies_are_refused(fields, message):
    given = {"base": A, "rows": 2, "row_bytes": 128, "pitch_bytes": 256} | fields
    gpu = Gpu(small_preset(*HAS).machine)
    with pytest.raises(UserError, match=message):
        gpu.run_kernel(kernel([[[bulk(**given)]]]), 0, None)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (phase_arrive(0, 0), "work: found 0, allowed of an arrival"),
        (phase_arrive(0, 33), "work: found 33"),
        (phase_wait(32, 1), "slot: found 32"),
        (barrier(0, space=6), "space: found 6"),
    ],
)
def test_impossible_transaction_barriers_are_refused(event, message):
    with pytest.raises(UserError, match=message):
        Gpu(small_preset(*HAS).machine).run_kernel(kernel([[[event]]]), 0, None)


def test_a_machine_without_the_unit_refuses():
    with pytest.raises(UserError, match="found a bulk copy, but the machine has none"):
        Gpu(small_preset().machine).run_kernel(kernel([[[bulk(A, 1, 128)]]]), 0, None)
