"""Tag store: LRU replacement against an ordered list, held ways, lines to evict first."""

import numpy as np
import pytest

from sim.hw.tags import (
    ADDRESS_BITS,
    HELD,
    canonical,
    claim_way,
    find_way,
    goes_first,
    hold,
    line_of,
    make_sets,
    release,
    sectors_in,
    touch,
    two_are_free,
    victim_way,
)
from tests.support.plain_records import kernel_view


@pytest.mark.parametrize("ways", [1, 2, 16, 17, 20, 31, 32])
def test_replacement_against_an_ordered_list(ways):
    random = np.random.default_rng(ways)
    cache_set = kernel_view(make_sets(1))[0]
    order, held, way_of = [], set(), {}  # least recently used first
    for _ in range(1500):
        line = 128 * int(random.integers(0, 2 * ways))
        way = find_way(cache_set, ways, line)
        assert way == way_of.get(line, -1)
        if way >= 0:
            touch(cache_set, ways, way)
            order.append(order.pop(order.index(line)))
            if random.random() < 0.2:
                hold(cache_set, way)
                held.add(line)
        else:
            victim = victim_way(cache_set, ways)
            free = [one for one in order if one not in held]
            assert two_are_free(cache_set, ways) == (ways - len(held) >= 2)
            if len(order) == ways and not free:
                assert victim == -1
            else:
                if len(order) == ways:
                    assert victim == way_of.pop(free[0])
                    order.remove(free[0])
                assert victim not in way_of.values()
                claim_way(cache_set, ways, victim, line)
                way_of[line] = int(victim)
                order.append(line)
        if held and random.random() < 0.2:
            line = held.pop()
            release(cache_set, way_of[line])


def test_a_claimed_way_is_empty():
    sets = make_sets(1)
    cache_set = kernel_view(sets)[0]
    claim_way(cache_set, 4, 3, 640)
    for name in ("valid", "dirty", "partial", "pending"):
        sets["way"][name][0, 3] = 15
    claim_way(cache_set, 4, 3, 1280)
    assert line_of(cache_set, 3) == 1280
    assert sets["way"][0, 3].tolist() == (0, 0, 0, 0)
    assert find_way(cache_set, 4, 640) == -1 and find_way(cache_set, 3, 1280) == -1  # beyond the ways in use
    assert find_way(kernel_view(make_sets(1))[0], 16, 0) == -1


TOP = 1 << ADDRESS_BITS


@pytest.mark.parametrize("line", [0, 128, 1 << 38, 1 << 39, TOP >> 1, TOP - 128, 5 << 37])
def test_any_address_is_a_line(line):
    cache_set = kernel_view(make_sets(1))[0]
    claim_way(cache_set, 4, 2, line)
    assert line_of(cache_set, 2) == line and find_way(cache_set, 4, line) == 2
    assert canonical(line) == line and canonical(line + (TOP << 3)) == line


def test_lines_with_the_same_lower_half():
    """Of 32 lines 512 GiB apart each is found, and none that is not there."""
    cache_set = kernel_view(make_sets(1))[0]
    lines = [640 + (k << 39) for k in range(-16, 16)]
    for way, line in enumerate(lines):
        claim_way(cache_set, 32, way, line)
    assert [find_way(cache_set, 32, line) for line in lines] == list(range(32))
    assert find_way(cache_set, 32, 640 + (16 << 39)) == -1
    assert find_way(cache_set, 31, lines[31]) == -1


@pytest.mark.parametrize("ways", [4, 16, 17, 31, 32])
def test_the_order_outlives_the_touch_numbers(ways):
    sets = make_sets(1)
    cache_set = kernel_view(sets)[0]
    for way in range(ways):
        claim_way(cache_set, ways, way, 128 * way)
    hold(cache_set, 1)
    sets["block"]["age"][0, 0, 3] = HELD - 2
    for way in (2, 3, 0):  # the second of these is one too many
        touch(cache_set, ways, way)
        assert not any(goes_first(cache_set, other) for other in range(ways))
    assert (sets["block"]["age"] & ~HELD).max() < 100
    left = [*range(4, ways), 2, 3, 0]
    for way in left:
        assert victim_way(cache_set, ways) == way
        hold(cache_set, way)
    assert victim_way(cache_set, ways) == -1
    release(cache_set, 1)
    assert victim_way(cache_set, ways) == 1


@pytest.mark.parametrize("mask", range(16))
def test_sectors_in(mask):
    assert sectors_in(mask) == bin(mask).count("1")
