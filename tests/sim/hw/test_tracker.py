"""Tracker: thresholds of wavefronts, the one trigger, full sets, descriptors in order, and the ledger's counts."""

import pytest

from sim.collective.space import make_wavefronts
from sim.hw.dma import COMMAND
from sim.hw.request import NEVER, Op, Stream
from sim.hw.space import contributor_weight, fingerprint
from sim.hw.tracker import counts
from sim.spec import DmaPolicy, Granularity
from tests.support.fifo_bench import request
from tests.support.plain_records import kernel_view
from tests.support.tracker_bench import LINE, TrackerBench

LATENCY_PS = 1429


def test_the_last_byte_triggers_once_and_a_latency_later_the_descriptor_is_ready():
    bench = TrackerBench(3)
    bench.whole(1, now_ps=100)
    bench.count(1, 0, port=0, now_ps=200)
    bench.count(1, 1, sectors=7, port=0, now_ps=300)
    assert bench.ready == [] and bench.record[0]["live"] == 1  # one sector short
    bench.count(1, 1, sectors=8, port=0, now_ps=450)
    assert bench.ready == [(1, 450 + LATENCY_PS)]
    tile = bench.tile_records[1]
    assert (tile["triggers"], tile["done_ps"], bench.record[0]["live"], bench.record[0]["triggers"]) == (1, 450, 0, 1)
    bench.count(1, 1, sectors=8, port=0, now_ps=500)  # an update too many: no second trigger, but counted
    assert len(bench.ready) == 1 and tile["triggers"] == 1 and tile["arrived_bytes"] == 2 * LINE + 32


def test_every_wavefront_must_reach_its_own_threshold():
    """Two wavefronts of a line each. Updates of one do not stand for those of the other, however many."""
    bench = TrackerBench(1, part_bytes=LINE)
    for now_ps in (10, 20, 30):
        bench.count(0, 0, wavefront=0, now_ps=now_ps)
    bench.count(0, 1, wavefront=1, now_ps=40)
    assert bench.record[0]["wavefronts"] == 1 and bench.record[0]["triggers"] == 0 and bench.ready == []
    bench.count(0, 1, wavefront=1, port=0, sectors=7, now_ps=50)
    assert bench.ready == []
    bench.count(0, 1, wavefront=1, port=0, sectors=8, now_ps=60)
    assert bench.ready == [(0, 60 + LATENCY_PS)]
    assert bench.counters["counted_bytes"].tolist() == [[3 * LINE, 2 * LINE]]
    assert bench.counters["triggers"].tolist() == [[1, 1]] and bench.counters["done_ps"].tolist() == [[30, 60]]
    assert (bench.record[0]["wavefronts"], bench.record[0]["triggers"]) == (2, 1)


@pytest.mark.parametrize("sends", [1, 0])
def test_each_wavefronts_part_goes_when_its_own_counter_is_full(sends):
    bench = TrackerBench(2, part_bytes=LINE, granularity=Granularity.WAVEFRONT)
    bench.tile_records["sends"] = sends
    assert bench.grant(1)
    for port, wavefront, now_ps in ((None, 1, 10), (0, 0, 20), (0, 1, 30)):
        bench.count(1, wavefront, wavefront=wavefront, port=port, now_ps=now_ps)
    first, second = (1, 1, 30 + LATENCY_PS), (1, 0, 45 + LATENCY_PS)
    assert bench.descriptors == ([first] if sends else [])
    assert bench.record[0]["used"].sum() == 1 == bench.record[0]["live"]  # the entry is held for the other wavefront
    bench.count(1, 0, wavefront=0, now_ps=45)
    assert bench.descriptors == ([first, second] if sends else [])
    assert bench.record[0]["used"].sum() == 0 == bench.record[0]["live"] and bench.record[0]["freed"] == 1 + 1 % 32
    bench.count(1, 0, wavefront=0, now_ps=99)  # one too many
    assert bench.record[0]["triggers"] == 1 and bench.record[0]["released"] == 2 * sends


def test_a_packet_of_several_wavefronts_is_shared_out_by_the_plan():
    """Parts of 96 bytes: the first line holds three sectors of wavefront 0 and one of wavefront 1."""
    bench = TrackerBench(1, part_bytes=96, lines=3, updates=1)
    assert bench.counters["threshold_bytes"].tolist() == [[96] * 4]
    bench.count(0, 0, port=0, wavefront=-1)
    assert bench.counters["counted_bytes"].tolist() == [[96, 32, 0, 0]]
    bench.count(0, 1, sectors=0b0110, port=0, wavefront=-1)
    assert bench.counters["arrived_bytes"].tolist() == [[96, 64, 32, 0]]
    bench.count(0, 2, port=0, wavefront=-1)
    bench.count(0, 1, sectors=0b1001, port=0, wavefront=-1)
    assert bench.counters["counted_bytes"].tolist() == [[96] * 4] and len(bench.ready) == 1


def test_a_wavefront_beyond_the_edge_of_the_output_is_not_waited_for():
    """Of two wavefronts along a run the second has nothing where the run ends early."""
    bench = TrackerBench(1, part_bytes=LINE, updates=1)
    bench.tile_records["run_bytes"] = bench.tile_records["bytes"] = bench.tile_records["threshold_bytes"] = LINE
    bench.counters[:] = make_wavefronts(bench.tile_records)
    bench.tile_records["counting"] = 1
    assert bench.counters["threshold_bytes"].tolist() == [[LINE, 0]]
    bench.count(0, 0, wavefront=0, now_ps=5)
    assert bench.ready == [(0, 5 + LATENCY_PS)]


def test_contributors_are_known_by_wavefront():
    bench = TrackerBench(1, part_bytes=LINE, updates=9)
    bench.count(0, 0, wavefront=0, port=0, contributors=0b0010)
    bench.count(0, 1, wavefront=1)
    assert bench.counters["arrived"].tolist() == [[0b10, 0]] and bench.tile_records["arrived"].tolist() == [0b10]
    assert bench.counters["arrived_bytes"].tolist() == [[LINE, 0]]
    bench.count(0, 0, wavefront=0, port=1, contributors=0b0100)
    assert bench.counters["arrived"].tolist() == [[0b110, 0]]


def test_channels_tell_in_any_order_and_the_latest_time_counts():
    """Notes of several channels come channel by channel, not by time."""
    bench = TrackerBench(1, updates=1)
    bench.count(0, 0, now_ps=900)
    bench.count(0, 1, now_ps=300)
    assert bench.ready == [(0, 900 + LATENCY_PS)]


@pytest.mark.parametrize("sends", [0, 1, 2])
def test_a_tile_triggers_a_descriptor_for_each_gpu_that_it_goes_to(sends):
    bench = TrackerBench(1, updates=1)
    bench.tile_records["sends"] = sends
    bench.whole(0)
    assert bench.tile_records[0]["triggers"] == 1 and bench.ready == [(0, LATENCY_PS)] * sends
    assert bench.released_records[:sends, 3].tolist() == list(range(sends))


def test_a_chunk_is_released_as_a_whole_and_in_walk_order():
    bench = TrackerBench(6, updates=1, chunks=2, start=4, policy=DmaPolicy.CHUNK)
    for now_ps, tile in enumerate((1, 4, 2)):
        bench.whole(tile, now_ps=now_ps)
    assert bench.ready == []
    bench.whole(0, now_ps=70)  # the last of chunk 0
    assert bench.ready == [(tile, 70 + LATENCY_PS) for tile in (0, 1, 2)]
    bench.whole(3, now_ps=80)
    bench.whole(5, now_ps=60)  # told last, by a channel whose turn is late, but tile 3 was later
    assert bench.ready[3:] == [(tile, 80 + LATENCY_PS) for tile in (4, 5, 3)]  # the walk begins at tile 4
    assert bench.released_records[[0, 3], COMMAND].tolist() == [3, 3]


def test_a_chunk_is_one_command_for_each_gpu_that_it_goes_to():
    bench = TrackerBench(4, updates=1, chunks=2, policy=DmaPolicy.CHUNK)
    bench.tile_records["sends"] = [2, 1, 1, 1]
    bench.whole(0)
    bench.whole(1)
    released = bench.released_records[: bench.record[0]["released"]]
    assert released[:, [0, 3]].tolist() == [[0, 0], [1, 0], [0, 1]]
    assert released[[0, 2], COMMAND].tolist() == [2, 1]


def test_a_set_is_picked_by_the_workgroups_number():
    bench = TrackerBench(12, "tracker.entries=4", "tracker.ways=1")
    assert [bench.grant(tile) for tile in (0, 1, 2, 3)] == [True] * 4
    assert not bench.grant(4) and bench.grant(1)  # 4 meets 0 in set 0; 1 has its entry
    assert bench.record[0]["used"][:4].tolist() == [1, 1, 1, 1]
    for updates in range(2):
        bench.whole(0, port=None if updates else 0)
    assert bench.record[0]["freed"] == 1 + 0  # set 0
    assert bench.grant(4) and not bench.grant(8)


def test_a_place_is_kept_for_every_earlier_workgroup():
    """Two places, three tiles of one set before the last: it waits though both places are free."""
    bench = TrackerBench(4, "tracker.entries=2", "tracker.ways=2")
    assert not bench.grant(3) and not bench.grant(2)
    assert bench.grant(1) and bench.grant(0)
    assert not bench.grant(2)  # both places taken
    for tile in (0, 1):
        bench.whole(tile)
        bench.whole(tile, port=0)
    assert not TrackerBench(4, "tracker.entries=2", "tracker.ways=2").grant(3)
    assert bench.grant(3) and bench.grant(2)


def test_the_earlier_ones_are_those_of_the_staggered_walk():
    bench = TrackerBench(4, "tracker.entries=1", "tracker.ways=1", start=2)
    assert [bench.grant(tile) for tile in (0, 1, 3)] == [False] * 3 and bench.grant(2)


def test_tiles_that_are_not_tracked_need_no_place():
    bench = TrackerBench(3, "tracker.entries=1", "tracker.ways=1")
    bench.tile_records["entry"][0] = 0
    assert bench.grant(0) and bench.grant(1) and bench.grant(0)
    assert bench.record[0]["used"].sum() == 1 == bench.record[0]["begun"]


def test_a_tile_without_a_place_frees_none():
    """Its updates all come from other GPUs (a receive buffer). The tile of the same set keeps its place."""
    bench = TrackerBench(3, "tracker.entries=1", "tracker.ways=1", updates=1)
    bench.tile_records["entry"][1] = 0
    assert bench.grant(0)
    bench.whole(1, port=0)
    assert bench.record[0]["triggers"] == 1 == bench.record[0]["used"].sum() and not bench.grant(2)


def test_arrivals_are_never_held_and_are_spilled_where_no_entry_is_free():
    bench = TrackerBench(5, "tracker.entries=2", "tracker.ways=2")
    for tile in range(5):
        bench.count(tile, port=0)
    assert (bench.record[0]["live"], bench.record[0]["live_max"], bench.record[0]["spilled"]) == (5, 5, 3)
    assert bench.grant(0)


def test_an_arrival_takes_no_entry():
    """The only entry goes to the tile whose local stores begin, though another tile has some of its updates."""
    bench = TrackerBench(2, "tracker.entries=1", "tracker.ways=1")
    bench.count(1, port=0)
    assert bench.record[0]["used"].sum() == 0 == bench.record[0]["spilled"] and bench.grant(0)
    bench.count(0)
    assert bench.record[0]["used"].sum() == 1 and bench.record[0]["live"] == 2


def test_without_limit_nothing_waits_and_nothing_is_spilled():
    bench = TrackerBench(40, "tracker.entries=0")
    assert all(bench.grant(tile) for tile in reversed(range(40)))
    for tile in range(40):
        bench.count(tile, port=0)
    assert bench.record[0]["spilled"] == 0 and bench.record[0]["live_max"] == 40


def test_a_gate_opens_with_its_last_byte():
    bench = TrackerBench(2)
    bench.tile_records["threshold_bytes"] = 0
    bench.tile_records["gate"], bench.gate_records["needed_bytes"][1] = 1, 3 * LINE
    assert not bench.count(0, 0, port=0, now_ps=10) and not bench.count(0, 0, now_ps=20)  # its own do not count
    assert not bench.count(1, 1, port=0, now_ps=30) and bench.gate_records[1]["open_ps"] == NEVER
    assert bench.count(1, 0, port=0, now_ps=40) and bench.gate_records[1]["open_ps"] == 40
    assert bench.gate_records[0]["open_ps"] == NEVER


def test_a_gate_of_tracked_tiles_opens_with_the_last_trigger():
    bench = TrackerBench(2)
    bench.tile_records["gate"], bench.gate_records["needed_bytes"][0] = 0, 4 * LINE
    opened = [bench.count(tile, line, port=port, now_ps=10 * tile) for port in (None, 0) for tile in (1, 0)
              for line in range(2)]  # fmt: skip
    assert opened == [False] * 7 + [True] and bench.gate_records[0]["open_ps"] == LATENCY_PS


@pytest.mark.parametrize(
    ("arrivals", "arrived"),
    [
        ([0b0010, 0b0010], 0b0010),  # both lines of the tile
        ([0b0010, 0b0100], 0b0110),
        ([0b0110, 0b0100], 0b0110),
    ],
)
def test_sets_of_contributors_are_counted_by_their_weight(arrivals, arrived):
    bench = TrackerBench(1, updates=9)
    expected = 0
    for line, contributors in enumerate(arrivals):
        bench.count(0, line, port=line, contributors=contributors)
        expected += int(fingerprint(bench.tiles[0], line * LINE, 15)) * int(contributor_weight(contributors))
    tile = bench.tile_records[0]
    assert tile["arrived"] == arrived and (int(tile["arrived_sum"]) - expected) % (1 << 64) == 0


def test_bytes_and_sectors_are_counted_by_side_and_share():
    bench = TrackerBench(1, updates=9)
    bench.count(0, 0, sectors=15)
    bench.count(0, 0, sectors=15, share=2)
    bench.count(0, 1, sectors=3, port=2, share=1)
    tile = bench.tile_records[0]
    assert (tile["local_bytes"], tile["arrived_bytes"]) == (256, 64)
    local, arrived = (int(fingerprint(bench.tiles[0], line, sectors)) for line, sectors in ((0, 15), (128, 3)))
    sums = {"local_sum": local * (1 + 5), "arrived_sum": arrived * 3 * int(contributor_weight(0b10))}
    assert all((int(tile[name]) - one) % (1 << 64) == 0 for name, one in sums.items())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"op": Op.UPDATE, "stream": Stream.COMPUTE_WRITE}, True),
        ({"op": Op.UPDATE, "stream": Stream.COMM_WRITE}, True),
        ({"op": Op.WRITE, "stream": Stream.COMM_WRITE}, True),
        ({"op": Op.WRITE, "stream": Stream.COMPUTE_WRITE, "contributors": 0}, False),
        ({"op": Op.WRITE, "stream": Stream.COMPUTE_WRITE, "contributors": 1}, True),
        ({"op": Op.READ, "stream": Stream.COMM_READ}, False),
        ({"op": Op.UPDATE, "stream": Stream.COMPUTE_WRITE, "tag": -1}, False),
    ],
)
def test_what_counts(fields, expected):
    assert bool(counts(kernel_view(request(**fields))[0])) == expected
