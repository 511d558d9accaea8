"""Tracker: thresholds, the one trigger, sets that are full, descriptors in order, and the ledger's counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.hw.request import NEVER, REQUEST, Op, Stream
from sim.hw.space import GATE, SPACE, TILE, Map, fingerprint
from sim.hw.tracker import counts, make_tracker, tracker_bits, tracker_count, tracker_grant
from sim.presets import load_preset
from sim.spec import DmaPolicy
from tests.hw.fifo_bench import request
from tests.hw.tracker_twin import TrackerTwin
from tests.plain_records import kernel_view
from tests.sim.programs import small_preset

LINE = 128
LATENCY_PS = 1429


class TrackerBench:
    """A Tracker and tiles of `lines` lines; every tile gets `updates` updates of each byte."""

    def __init__(self, tiles, *overrides, updates=2, lines=2, start=0, gpus=4, policy=DmaPolicy.TILE, chunks=1):
        spec = small_preset(*overrides).machine.tracker
        self.record, self.tile_records = make_tracker(spec, policy), np.zeros(tiles, TILE)
        self.record["tiles"], self.record["first_tile"] = tiles, start
        self.lines = lines
        self.tile_records["address"] = np.arange(tiles) * lines * LINE
        self.tile_records["runs"], self.tile_records["run_bytes"] = 1, lines * LINE
        self.tile_records["bytes"] = lines * LINE
        self.tile_records["map"], self.tile_records["gate"] = Map.DMA, -1
        self.tile_records["threshold_bytes"] = lines * LINE * updates
        self.tile_records["chunk"] = np.arange(tiles) * chunks // tiles
        space = np.zeros(1, SPACE)
        space["gpus"], space["set_mask"] = gpus, (1 << gpus) - 1
        self.gate_records = np.zeros(2, GATE)
        self.gate_records["open_ps"] = NEVER
        self.released_records = np.zeros((tiles, 2), np.int64)
        self.left = np.bincount(self.tile_records["chunk"], minlength=chunks).astype(np.int64)
        self.tracker, self.space = kernel_view(self.record)[0], kernel_view(space)[0]
        arrays = (self.tile_records, self.gate_records, self.released_records, self.left)
        self.tiles, self.gates, self.released, self.chunk_left = map(kernel_view, arrays)

    def grant(self, tile):
        return bool(tracker_grant(self.tracker, self.tiles, tile))

    def count(self, tile, line=0, sectors=15, port=None, contributors=0b10, now_ps=0):
        """An update of a line of the tile; `port`: it came over that link."""
        link = 0 if port is None else 1 + port
        address = int(self.tile_records[tile]["address"]) + line * LINE
        one = request(tag=tile, line=address, sectors=sectors, op=Op.UPDATE, link=link, contributors=contributors)
        arrays = (self.tiles, self.gates, self.released, self.chunk_left)
        return bool(tracker_count(self.tracker, self.space, *arrays, kernel_view(one)[0], now_ps))

    def whole(self, tile, now_ps=0, **fields):
        for line in range(self.lines):
            self.count(tile, line, now_ps=now_ps, **fields)

    @property
    def ready(self):
        """(tile, ready_ps) of the descriptors released so far."""
        return [tuple(int(part) for part in one) for one in self.released_records[: self.record[0]["released"]]]


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


def test_channels_tell_in_any_order_and_the_latest_time_counts():
    """Notes of several channels come channel by channel, not by time."""
    bench = TrackerBench(1, updates=1)
    bench.count(0, 0, now_ps=900)
    bench.count(0, 1, now_ps=300)
    assert bench.ready == [(0, 900 + LATENCY_PS)]


@pytest.mark.parametrize(("kind", "sends"), [(Map.DMA, True), (Map.FINAL, False)])
def test_a_final_tile_triggers_without_a_descriptor(kind, sends):
    bench = TrackerBench(1, updates=1)
    bench.tile_records["map"] = kind
    bench.whole(0)
    assert bench.tile_records[0]["triggers"] == 1 and bool(bench.ready) == sends


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


def test_a_set_is_picked_by_the_workgroups_number():
    bench = TrackerBench(12, "tracker.entries=4", "tracker.ways=1")
    assert [bench.grant(tile) for tile in (0, 1, 2, 3)] == [True] * 4
    assert not bench.grant(4) and bench.grant(1)  # 4 meets 0 in set 0; 1 has its entry
    assert bench.record[0]["used"][:4].tolist() == [1, 1, 1, 1] and bench.record[0]["stalls"] == 1
    for updates in range(2):
        bench.whole(0, port=None if updates else 0)
    assert bench.record[0]["freed"] == 1 and bench.record[0]["waiting"] == 1
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
    bench.tile_records["threshold_bytes"][0] = 0
    assert bench.grant(0) and bench.grant(1) and bench.grant(0)
    assert bench.record[0]["used"].sum() == 1 == bench.record[0]["begun"]


def test_arrivals_are_never_held_and_are_spilled_where_no_entry_is_free():
    bench = TrackerBench(5, "tracker.entries=2", "tracker.ways=2")
    for tile in range(5):
        bench.count(tile, port=0)
    assert (bench.record[0]["live"], bench.record[0]["live_max"], bench.record[0]["spilled"]) == (5, 5, 3)
    assert bench.grant(0) and not bench.record[0]["stalls"]


def test_without_limit_nothing_waits_and_nothing_is_spilled():
    bench = TrackerBench(40, "tracker.entries=0")
    assert all(bench.grant(tile) for tile in reversed(range(40)))
    for tile in range(40):
        bench.count(tile, port=0)
    assert bench.record[0]["spilled"] == bench.record[0]["stalls"] == 0 and bench.record[0]["live_max"] == 40


def test_a_gate_opens_with_its_last_byte():
    bench = TrackerBench(2)
    bench.tile_records["gate"], bench.gate_records["needed_bytes"][1] = 1, 3 * LINE
    assert not bench.count(0, 0, port=0, now_ps=10) and not bench.count(0, 0, now_ps=20)  # its own do not count
    assert not bench.count(1, 1, port=0, now_ps=30) and bench.gate_records[1]["open_ps"] == NEVER
    assert bench.count(1, 0, port=0, now_ps=40) and bench.gate_records[1]["open_ps"] == 40
    assert bench.gate_records[0]["open_ps"] == NEVER


@pytest.mark.parametrize(
    ("arrivals", "doubled", "arrived"),
    [
        ([(0, 0b0010), (0, 0b0010)], 0, 0b0010),  # both lines of the tile
        ([(0, 0b0010), (1, 0b0100)], 0, 0b0110),  # two GPUs over two links
        ([(0, 0b0010), (1, 0b0010)], 1, 0b0010),  # the same GPU again, over the other link
        ([(0, 0b0110), (1, 0b0100)], 1, 0b0110),
        ([(0, 0b0011)], 1, 0b0011),  # its own sum comes back
        ([(0, 0b0010), (0, 0b0110)], 1, 0b0010),  # the second line holds one more
    ],
)
def test_sets_of_contributors_merge_only_when_disjoint(arrivals, doubled, arrived):
    bench = TrackerBench(1, updates=9)
    for line, (port, contributors) in enumerate(arrivals):
        bench.count(0, line, port=port, contributors=contributors)
    assert (bench.tile_records[0]["doubled"], bench.tile_records[0]["arrived"]) == (doubled, arrived)


def test_bytes_and_sectors_are_counted_by_side():
    bench = TrackerBench(1, updates=9)
    bench.count(0, 0, sectors=15)
    bench.count(0, 1, sectors=3, port=2)
    tile = bench.tile_records[0]
    assert (tile["local_bytes"], tile["arrived_bytes"], tile["port_bytes"][:4].tolist()) == (128, 64, [0, 0, 64, 0])
    sums = [int(fingerprint(bench.tiles[0], line, sectors)) for line, sectors in ((0, 15), (128, 3))]
    assert [
        (int(tile[name]) - one) % (1 << 64) for name, one in zip(("local_sum", "arrived_sum"), sums, strict=True)
    ] == [0, 0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"op": Op.UPDATE, "stream": Stream.COMPUTE_WRITE}, True),
        ({"op": Op.UPDATE, "stream": Stream.COMM_WRITE}, True),
        ({"op": Op.WRITE, "stream": Stream.COMM_WRITE}, True),
        ({"op": Op.WRITE, "stream": Stream.COMPUTE_WRITE}, False),
        ({"op": Op.READ, "stream": Stream.COMM_READ}, False),
        ({"op": Op.UPDATE, "stream": Stream.COMPUTE_WRITE, "tag": -1}, False),
    ],
)
def test_what_counts(fields, expected):
    assert bool(counts(kernel_view(request(**fields))[0])) == expected


moves = st.lists(st.tuples(st.sampled_from(["grant", "local", "arrive"]), st.integers(0, 19)), max_size=120)


@given(
    moves=moves,
    start=st.integers(0, 19),
    size=st.sampled_from([(0, 1), (1, 1), (2, 1), (2, 2), (8, 2), (64, 8)]),
    untracked=st.sets(st.integers(0, 19), max_size=6),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_same_grants_and_triggers_as_the_twin(moves, start, size, untracked):
    """Any order of first stores, updates and arrivals; updates come only after their grant, as in the machine."""
    tiles, (entries, ways) = 20, size
    bench = TrackerBench(tiles, f"tracker.entries={entries}", f"tracker.ways={ways}", start=start, lines=1, gpus=32)
    bench.tile_records["threshold_bytes"][list(untracked)] = 0
    walk = [(start + k) % tiles for k in range(tiles)]
    twin = TrackerTwin(walk, bench.tile_records["threshold_bytes"].tolist(), entries=entries, ways=ways)
    done = {"local": set(), "arrive": set()}
    for kind, tile in moves:
        if kind == "grant":
            assert bench.grant(tile) == twin.grant(tile)
        elif tile not in done[kind] and (kind == "arrive" or twin.grant(tile)):
            done[kind].add(tile)
            if kind == "local":
                assert bench.grant(tile)
            bench.count(tile, port=0 if kind == "arrive" else None)
            twin.count(tile, LINE)
        assert bench.record[0]["live"] == twin.live
    assert [tile for tile, _ in bench.ready] == twin.triggered


@given(seed=st.integers(0, 1 << 32), size=st.sampled_from([(1, 1), (2, 1), (4, 2)]))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_the_smallest_tracker_makes_progress_whatever_stores_first(seed, size):
    """A machine full of workgroups that ask in any order again and again: all tiles trigger."""
    random = np.random.default_rng(seed)
    bench = TrackerBench(24, f"tracker.entries={size[0]}", f"tracker.ways={size[1]}", start=int(random.integers(24)))
    waiting = [(k + int(bench.record[0]["first_tile"])) % 24 for k in range(24)]
    for tile in range(24):
        bench.whole(tile, port=0)
    rounds = 0
    while waiting:
        rounds += 1
        assert rounds <= 24, "the Tracker is stuck"
        resident = waiting[:6]
        random.shuffle(resident)
        for tile in resident:
            if bench.grant(tile):
                bench.whole(tile)
                waiting.remove(tile)
    assert bench.record[0]["triggers"] == 24 and not bench.record[0]["used"].any()


def test_storage_follows_from_the_fields():
    """The paper's Tracker: 256 entries of 8 wavefronts; it says 19 KB."""
    spec = load_preset("t3_2024").machine.tracker
    counter = spec.address_bits + spec.counter_bits + 3 + 1  # one of 8 wavefronts, valid
    assert tracker_bits(spec, 1 << 16) == 256 * (8 * counter + 16 - 5)  # 32 sets know 5 bits of the workgroup
    assert 0.9 * 19_000 < tracker_bits(spec) / 8 < 1.1 * 19 * 1024
    whole = load_preset("t3_2024", ["tracker.ways=256"]).machine.tracker
    assert tracker_bits(whole, 1 << 16) == 256 * (8 * counter + 16)


def test_the_record_has_room_for_a_request_of_any_port():
    assert TILE["port_bytes"].shape[0] == 32 and REQUEST["link"] == np.int8
