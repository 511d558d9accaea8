"""Tracker: the same as its twin, whatever comes in whatever order; and progress with the fewest entries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.spec import Granularity
from tests.support.tracker_bench import TrackerBench
from tests.support.tracker_twin import TrackerTwin

KINDS = ["grant", "local", "arrive", "packet"]
moves = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 19), st.integers(1, 15)), max_size=160)


@pytest.mark.slow
@given(
    moves=moves,
    by_wavefront=st.booleans(),
    start=st.integers(0, 19),
    size=st.sampled_from([(0, 1), (1, 1), (2, 1), (2, 2), (8, 2), (64, 8)]),
    untracked=st.sets(st.integers(0, 19), max_size=6),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_same_grants_and_triggers_as_the_twin(moves, by_wavefront, start, size, untracked):
    """Any order of first stores, updates and arrivals; updates come only after their grant, as in the machine.

    A tile is a line, a sector of each of four wavefronts; packets without a wavefront hold any of them.
    """
    tiles, (entries, ways) = 20, size
    granularity = Granularity.WAVEFRONT if by_wavefront else Granularity.WORKGROUP
    machine = (f"tracker.entries={entries}", f"tracker.ways={ways}")
    bench = TrackerBench(tiles, *machine, start=start, lines=1, gpus=32, part_bytes=32, granularity=granularity)
    for name in ("threshold_bytes", "entry"):
        bench.tile_records[name][list(untracked)] = 0
    walk = [(start + k) % tiles for k in range(tiles)]
    thresholds = [[0] * 4 if tile in untracked else [64] * 4 for tile in range(tiles)]
    twin = TrackerTwin(walk, thresholds, entries=entries, ways=ways, by_wavefront=by_wavefront)
    done = set()
    for kind, tile, mask in moves:
        if kind == "grant":
            assert bench.grant(tile) == twin.grant(tile)
            continue
        if kind == "local" and not twin.grant(tile):
            continue
        assert kind != "local" or bench.grant(tile)
        side = "local" if kind == "local" else "arrive"
        new = [wavefront for wavefront in range(4) if mask >> wavefront & 1 and (side, tile, wavefront) not in done]
        done |= {(side, tile, wavefront) for wavefront in new}
        requests = [(-1, sum(1 << one for one in new))] if kind == "packet" else [(one, 1 << one) for one in new]
        for wavefront, sectors in requests:
            if sectors:
                bench.count(tile, sectors=sectors, wavefront=wavefront, port=None if side == "local" else 0)
        for wavefront in new:
            twin.count(tile, wavefront, 32)
        assert bench.record[0]["live"] == twin.live
    assert [(tile, wavefront) for tile, wavefront, _ in bench.descriptors] == twin.sent
    for tile in set(range(tiles)) - untracked:
        assert bench.counters["counted_bytes"][tile].tolist() == [twin.counted.get((tile, k), 0) for k in range(4)]


@pytest.mark.slow
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
