"""Stores into the output: where the address-space configuration sends them, and when the Tracker holds them."""

import numpy as np
import pytest

from sim.hw.request import NEVER, Op, Stream
from sim.hw.space import BUFFER_BITS, BUFFER_SKEW_BYTES, PEER_BITS, SEND, SPACE, TILE, fingerprint
from sim.hw.tracker import make_tracker
from sim.hw.warp import ON_TRACKER
from sim.machine.build import no_output
from sim.spec import DmaPolicy
from tests.support.cu_bench import CLOCK_PS, run_cu
from tests.support.plain_records import kernel_view
from tests.support.programs import bulk, lines, load, row, small_preset, store, wait
from traces.schema import Bulk, Cache, Kind, Space

FIRST, TILE_BYTES, ELSEWHERE = 1 << 20, 4096, 1 << 16
PEER, BUFFER = 2 << PEER_BITS, (1 << BUFFER_BITS) + BUFFER_SKEW_BYTES


PLAIN, AWAY, HERE = ({}, {"routed": 1, "op": Op.UPDATE, "stores": 1}, {"routed": 1, "op": Op.UPDATE, "stay": 1})
"""Fields of a tile: stores are plain, leave over port 1 as updates, are updates here that the Tracker counts."""


def output_of(kinds, *overrides, **fields):
    """An output of one tile per kind, one row of 4 KB each; tracked where updates stay."""
    tiles = np.zeros(len(kinds), TILE)
    tiles["address"], tiles["runs"] = FIRST + np.arange(len(kinds)) * TILE_BYTES, 1
    tiles["run_bytes"] = tiles["bytes"] = TILE_BYTES
    tiles["gate"], tiles["own"] = -1, 1
    for tile, kind in zip(tiles, kinds, strict=True):
        for name, value in kind.items():
            tile[name] = value
    tiles["threshold_bytes"], tiles["entry"] = np.where(tiles["stay"] == 1, 2 * TILE_BYTES, 0), tiles["stay"]
    for name, value in fields.items():
        tiles[name] = value
    space, sends = np.zeros(1, SPACE), np.zeros(3, SEND)
    space["first_byte"], space["end_byte"], space["tiles"] = FIRST, FIRST + len(kinds) * TILE_BYTES, len(kinds)
    space["gpus"], space["set_mask"] = 4, 15
    sends["port"] = [1, 0, 2]
    tracker = make_tracker(small_preset(*overrides).machine.tracker, DmaPolicy.TILE)
    tracker["tiles"] = len(kinds)
    return no_output()._replace(space=space, tiles=tiles, sends=sends, tracker=tracker)


def one_store(kind, program, **fields):
    """What a workgroup whose tile has that map sends, and the tile."""
    output = output_of([kind], **fields)
    return run_cu([[program]], output=output).requests, output.tiles[0]


@pytest.mark.parametrize(
    ("kind", "op", "cache", "link", "contributors"),
    [
        (PLAIN, Op.WRITE, Cache.DEFAULT, 0, 0),
        (AWAY, Op.UPDATE, Cache.UNCACHED, 2, 1),
        (HERE, Op.UPDATE, Cache.UNCACHED, 0, 1),
        ({**AWAY, "op": Op.WRITE}, Op.WRITE, Cache.UNCACHED, 2, 1),
        ({**HERE, "op": Op.WRITE}, Op.WRITE, Cache.UNCACHED, 0, 1),
    ],
)
def test_a_store_goes_where_its_tile_is_mapped(kind, op, cache, link, contributors):
    requests, _ = one_store(kind, [store(FIRST), store(ELSEWHERE), load(FIRST, slot=1)])
    by_place = {(int(r["line"]), int(r["stream"])): r for r in requests}
    stored = by_place[FIRST, Stream.COMPUTE_WRITE]
    names = ("op", "cache", "link", "contributors", "tag", "sectors")
    assert [int(stored[name]) for name in names] == [op, cache, link, contributors, 0, 15]
    other = by_place[ELSEWHERE, Stream.COMPUTE_WRITE]  # outside the output a store is a store
    assert [int(other[name]) for name in names[:4]] == [Op.WRITE, Cache.DEFAULT, 0, 0]
    read = by_place[FIRST, Stream.COMPUTE_READ]  # and loads are loads
    assert [int(read[name]) for name in names[:4]] == [Op.READ, Cache.DEFAULT, 0, 0]


@pytest.mark.parametrize("stay", [0, 1])
@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_a_store_goes_to_each_of_a_set_of_gpus(stay, gpus):
    """Here first, then the others in turn; each copy names the SEND record by which it leaves."""
    output = output_of([{**AWAY, "stay": stay, "stores": gpus}])
    requests = run_cu([[[lines(Kind.STORE, FIRST, 2), load(FIRST, slot=1)]]], output=output).requests
    stores = requests[requests["op"] == Op.UPDATE]
    found = [(int(r["line"]) - FIRST, int(r["link"]), int(r["load"])) for r in stores]
    targets = [(0, -1)] * stay + [(2, 0), (1, 1), (3, 2)][:gpus]
    assert found == [(128 * k, *target) for target in targets for k in range(2)]
    assert len(requests) == len(stores) + 1


def test_a_workgroup_beyond_the_tiles_makes_a_further_share_of_one():
    """Split-K: workgroup 5 of two tiles makes share 2 of tile 1. Of the second buffer its tiles begin at tag 2."""
    output = output_of([HERE] * 4)
    spaces = np.repeat(output.space, 2)
    spaces["end_byte"][0] = spaces["first_byte"][1] = FIRST + 2 * TILE_BYTES
    spaces["tiles"], spaces["first_tag"] = 2, [0, 2]
    programs = [[[]] for _ in range(5)] + [[[row(Kind.REDUCE, base=FIRST + TILE_BYTES), store(FIRST + 3 * TILE_BYTES)]]]
    requests = run_cu(programs, output=output._replace(space=spaces)).requests
    assert requests[["tag", "share", "op"]].tolist() == [(1, 2, Op.UPDATE), (3, 2, Op.UPDATE)]


@pytest.mark.parametrize("kind", [AWAY, HERE])
def test_a_store_names_its_wavefront_within_the_workgroup(kind):
    """Two workgroups of three warps side by side on a CU."""
    output = output_of([kind] * 2)
    programs = [[[store(FIRST + TILE_BYTES * g + 128 * w)] for w in range(3)] for g in range(2)]
    requests = run_cu(programs, output=output).requests
    found = {int(r["line"]): (int(r["tag"]), int(r["wavefront"])) for r in requests}
    assert found == {FIRST + TILE_BYTES * g + 128 * w: (g, w) for g in range(2) for w in range(3)}


@pytest.mark.parametrize(("kind", "op"), [(Kind.STORE, Op.WRITE), (Kind.REDUCE, Op.UPDATE)])
@pytest.mark.parametrize("offset", [0, BUFFER, 3 * BUFFER])
def test_a_collectives_store_through_the_peer_window_leaves(kind, op, offset):
    """Its second tile: `work` counts from the workgroup's tag. What it carries is what the tile holds."""
    output = output_of([PLAIN] * 2, arrived=[0, 0b0110], arrived_bytes=[0, TILE_BYTES])
    event = lines(kind, PEER + offset + FIRST + TILE_BYTES, 3, work=1, cache=Cache.UNCACHED)
    requests = run_cu([[[event]]], output=output, comm=True).requests
    assert requests["line"].tolist() == [offset + FIRST + TILE_BYTES + 128 * k for k in range(3)]
    for name, value in {"op": op, "link": 2, "contributors": 0b0111, "tag": 1, "stream": Stream.COMM_WRITE}.items():
        assert set(requests[name]) == {value}, name


def test_a_collectives_reads_and_own_writes_stay():
    output = output_of([PLAIN])
    program = [load(FIRST, slot=1, cache=Cache.UNCACHED), wait(1), store(FIRST, cache=Cache.UNCACHED)]
    read, written = run_cu([[program]], output=output, comm=True).requests
    assert (read["op"], read["stream"], read["link"]) == (Op.READ, Stream.COMM_READ, 0)
    assert (written["op"], written["stream"], written["link"]) == (Op.WRITE, Stream.COMM_WRITE, 0)
    assert output.tiles[0]["local_bytes"] == 0  # its memory channel counts it


def test_a_collectives_write_that_ends_in_l2_is_counted_here():
    output = output_of([PLAIN])
    run_cu([[[store(FIRST, cache=Cache.BYPASS_L1)]]], output=output, comm=True)
    tile = output.tiles[0]
    assert tile["local_bytes"] == 128 and tile["local_sum"] == fingerprint(kernel_view(output.tiles)[0], FIRST, 15)


def test_what_leaves_before_all_of_an_arrival_is_there_carries_nobody():
    output = output_of([PLAIN], arrived=0b0010, arrived_bytes=TILE_BYTES - 32)
    (request,) = run_cu([[[store(PEER + FIRST)]]], output=output, comm=True).requests
    assert request["contributors"] == 0 and output.tiles[0]["early"] == 1


def test_a_store_without_a_tracker_entry_waits_and_nothing_else_does():
    """One entry; workgroup 0 takes it with its first store, so workgroup 1 goes as far as its own."""
    output = output_of([HERE] * 2, "tracker.entries=1", "tracker.ways=1")
    local = row(Kind.STORE, space=Space.SHARED, base=FIRST + TILE_BYTES)  # of the workgroup's own memory
    one = [store(FIRST)]
    other = [load(FIRST + TILE_BYTES, slot=1), wait(1), local, store(ELSEWHERE), store(FIRST + TILE_BYTES)]
    bench = run_cu([[one], [other]], output=output)
    assert sorted(bench.requests["line"].tolist()) == [ELSEWHERE, FIRST, FIRST + TILE_BYTES]
    assert bench.requests["op"][bench.requests["line"] == FIRST + TILE_BYTES].tolist() == [Op.READ]
    assert (bench.states == ON_TRACKER).sum() == 1
    tracker = output.tracker[0]
    assert (tracker["waiting"], tracker["stalls"], tracker["begun"], tracker["used"][0]) == (1, 1, 1, 1)


def test_a_workgroup_that_runs_the_events_of_another_stores_where_it_is():
    """Its store, and the question whether that needs a Tracker entry, go by its own address (sim.host.program)."""
    output = output_of([HERE] * 2, "tracker.entries=1", "tracker.ways=1")
    programs, shifts = [[[store(FIRST)]], [[store(ELSEWHERE)]]], (0, FIRST + TILE_BYTES - ELSEWHERE)
    bench = run_cu(programs, output=output, shifts=shifts)
    assert bench.requests["line"].tolist() == [FIRST] and (bench.states == ON_TRACKER).sum() == 1
    bench = run_cu(programs, output=output_of([HERE] * 2), shifts=shifts)
    assert {int(r["line"]): int(r["tag"]) for r in bench.requests} == {FIRST: 0, FIRST + TILE_BYTES: 1}
    assert set(bench.requests["op"]) == {Op.UPDATE}


def test_all_stores_of_a_workgroup_share_its_entry():
    output = output_of([HERE], "tracker.entries=1", "tracker.ways=1")
    bench = run_cu([[[store(FIRST + 128 * (8 * w + k)) for k in range(8)] for w in range(4)]], output=output)
    assert len(bench.requests) == 32 and output.tracker[0]["begun"] == 1
    assert bench.exit_ps < NEVER and not (bench.states == ON_TRACKER).any()


def test_tiles_that_leave_at_once_need_no_entry():
    output = output_of([AWAY] * 3, "tracker.entries=1", "tracker.ways=1")
    bench = run_cu([[[store(FIRST + TILE_BYTES * w)]] for w in range(3)], output=output)
    assert len(bench.requests) == 3 and output.tracker[0]["begun"] == output.tracker[0]["stalls"] == 0


COPIES = ("cu.bulk_lines_per_clk=1.0", "cu.bulk_latency_clk=7")


@pytest.mark.parametrize("kind", [Bulk.STORE, Bulk.REDUCE])
@pytest.mark.parametrize(
    ("place", "op", "link", "send"),
    [(AWAY, Op.UPDATE, 2, 0), (HERE, Op.UPDATE, 0, -1), ({**AWAY, "op": Op.WRITE}, Op.WRITE, 2, 0)],
)
def test_a_bulk_copy_goes_where_its_tile_is_mapped(place, op, link, send, kind):
    """Nobody acknowledges its lines; the slot is clear when the last one has left, and then a store may follow."""
    program = [bulk(FIRST, 3, 256, 512, kind=kind, slot=1), store(ELSEWHERE, wait=[1])]
    output = output_of([place])
    bench = run_cu([[program]], *COPIES, output=output, memory_ps=NEVER // 4)
    *copied, after = bench.requests
    assert [int(r["line"]) - FIRST for r in copied] == [0, 128, 512, 640, 1024, 1152]
    names = ("op", "cache", "link", "contributors", "tag", "sectors", "full", "load", "wavefront", "stream")
    expected = [op, Cache.UNCACHED, link, 1, 0, 15, 15, send, 0, Stream.COMPUTE_WRITE]
    assert all([int(r[name]) for name in names] == expected for r in copied)
    assert bench.bulk["write_sectors"] == (24 if link == 0 else 0)  # copies to other GPUs have a unit of their own
    left_ps = int(copied[-1]["ready_ps"])
    assert left_ps < int(after["born_ps"]) <= left_ps + 2 * CLOCK_PS
    assert bench.lsu["loads_used"] == 0 and bench.lsu["load_table"]["open"].sum() == 0


def test_a_bulk_copy_into_a_plain_tile_is_acknowledged():
    program = [bulk(FIRST, 1, 256, kind=Bulk.STORE, slot=1), store(ELSEWHERE, wait=[1])]
    requests = run_cu([[program]], *COPIES, output=output_of([PLAIN]), memory_ps=10_000_000).requests
    assert requests["op"].tolist() == [Op.WRITE] * 3 and requests["cache"].tolist() == [Cache.DEFAULT] * 3
    assert requests["born_ps"][2] >= 10_000_000


def test_a_bulk_copy_waits_for_the_entry_of_its_tile():
    """The Tracker has one entry: the second workgroup's copy is not sent."""
    output = output_of([HERE, HERE], "tracker.entries=1", "tracker.ways=1")
    programs = [[[bulk(FIRST + k * TILE_BYTES, 1, 128, kind=Bulk.STORE, slot=1)]] for k in range(2)]
    bench = run_cu(programs, *COPIES, output=output)
    assert bench.requests["tag"].tolist() == [0]
    assert bench.states.tolist().count(ON_TRACKER) == 1


def test_bulk_copies_of_workgroups_that_share_a_tile_name_their_shares():
    programs = [[[bulk(FIRST, 1, 256, kind=Bulk.REDUCE, slot=1)]] for _ in range(3)]
    requests = run_cu(programs, *COPIES, output=output_of([HERE])).requests
    assert sorted(zip(requests["tag"].tolist(), requests["share"].tolist(), strict=True)) == [
        (0, share) for share in (0, 0, 1, 1, 2, 2)
    ]


def test_a_collectives_store_to_another_gpu_is_not_acknowledged():
    """Its slot is clear at once, so the store behind it follows. One to this GPU is acknowledged."""
    for link in (0, 1):
        program = [store(FIRST + (link << PEER_BITS), slot=1), store(FIRST + 128, wait=[1])]
        bench = run_cu([[program]], output=output_of([PLAIN]), comm=True, memory_ps=10_000_000)
        assert bench.requests["link"].tolist() == [link, 0] and bench.lsu["loads_used"] == 0
        assert (bench.requests["born_ps"][1] >= 10_000_000) == (link == 0)


@pytest.mark.parametrize(("alone", "own", "contributors"), [(0, 1, 0b101), (0, 0, 0b100), (1, 1, 1), (1, 0, 1)])
def test_a_collective_sends_what_has_arrived_unless_its_data_are_of_this_gpu_alone(alone, own, contributors):
    output = output_of([PLAIN], alone=alone, own=own, arrived=0b100, arrived_bytes=TILE_BYTES)
    requests = run_cu([[[store(PEER + FIRST)]]], output=output, comm=True).requests
    assert requests["contributors"].tolist() == [contributors]
