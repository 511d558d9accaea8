"""Tag store: LRU replacement against an ordered list, held ways, lines to evict first."""

import numpy as np
import pytest

from sim.hw.tags import EMPTY, claim_way, find_way, hold, make_sets, release, sectors_in, touch, victim_way
from tests.plain_records import kernel_view


@pytest.mark.parametrize("ways", [1, 2, 16, 32])
def test_replacement_against_an_ordered_list(ways):
    random = np.random.default_rng(ways)
    cache_set = kernel_view(make_sets(1))[0]
    order, held, way_of = [], set(), {}  # least recently used first
    for _ in range(1500):
        line = 128 * int(random.integers(0, 2 * ways))
        way = find_way(cache_set, ways, line)
        assert way == way_of.get(line, -1)
        if way >= 0:
            touch(cache_set, way)
            order.append(order.pop(order.index(line)))
            if random.random() < 0.2:
                hold(cache_set, way)
                held.add(line)
        else:
            victim = victim_way(cache_set, ways)
            free = [one for one in order if one not in held]
            if len(order) == ways and not free:
                assert victim == -1
            else:
                if len(order) == ways:
                    assert victim == way_of.pop(free[0])
                    order.remove(free[0])
                assert victim not in way_of.values()
                claim_way(cache_set, victim, line)
                way_of[line] = int(victim)
                order.append(line)
        if held and random.random() < 0.2:
            line = held.pop()
            release(cache_set, way_of[line])


def test_a_claimed_way_is_empty():
    sets = make_sets(1)
    cache_set = kernel_view(sets)[0]
    claim_way(cache_set, 3, 640)
    for name in ("valid", "dirty", "partial", "pending"):
        sets["way"][name][0, 3] = 15
    claim_way(cache_set, 3, 1280)
    assert sets["tag"][0, 3] == 1280
    assert sets["way"][0, 3].tolist() == (0, 0, 0, 0)
    assert find_way(cache_set, 4, 640) == -1 and find_way(cache_set, 3, 1280) == -1  # beyond the ways in use
    assert (make_sets(2)["tag"] == EMPTY).all()


@pytest.mark.parametrize("mask", range(16))
def test_sectors_in(mask):
    assert sectors_in(mask) == bin(mask).count("1")
