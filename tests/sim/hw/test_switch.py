"""The switch's adders: each sum leaves once, with all its parts, whatever the order; the table never loses a line."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.hw.switch import MOST, PLACES, add_part, has_room, is_last_part, make_switch, part_key, take_sum
from tests.support.plain_records import kernel_view
from tests.support.switch_twin import switch_twin


def sums_of(parts, gpus):
    """What our switch gives for parts in this order, and its records at the end."""
    records, table = make_switch(gpus, adds=True)
    switch, sums = kernel_view(records)[0], kernel_view(table)
    found = []
    for key, contributors in parts:
        if is_last_part(switch, sums, key):
            found.append((key, int(contributors | take_sum(switch, sums, key))))
        else:
            assert has_room(switch, sums, key)
            add_part(switch, sums, key, contributors)
    return found, records[0], table


@settings(max_examples=50, deadline=None)
@given(gpus=st.integers(2, 5), lines=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=12), data=st.data())
def test_sums_are_those_of_the_twin(gpus, lines, data):
    parts = [(int(part_key(128 * line, 15)), 1 << gpu) for line in set(lines) for gpu in range(gpus)]
    parts = data.draw(st.permutations(parts))
    found, switch, table = sums_of(parts, gpus)
    assert found == list(switch_twin(parts, gpus))
    assert switch["used"] == 0 and not table["parts"].any()


def test_lines_with_one_home_are_found_when_those_before_them_have_left():
    """All keys fall on few homes, so searches run over many places, also over the end of the table."""
    _, table = make_switch(2, adds=True)
    found = [key for key in range(1, 4_000_000, 16) if (key * 0x9E3779B97F4A7C15 % (1 << 64)) >> 48 > PLACES - 3][:8]
    assert len(found) == 8
    for order in (found, found[::-1], found[3:] + found[:3]):
        sums, switch, table = sums_of([(key, 1) for key in found] + [(key, 2) for key in order], 2)
        assert sums == [(key, 3) for key in order]
        assert switch["used_max"] == 8 and not table["parts"].any()


def test_parts_of_other_sectors_are_other_sums():
    assert part_key(256, 1) != part_key(256, 15)


@pytest.mark.parametrize(("used", "room"), [(MOST - 1, True), (MOST, False)])
def test_a_full_table_takes_no_further_line(used, room):
    records, table = make_switch(2, adds=True)
    switch, sums = kernel_view(records)[0], kernel_view(table)
    add_part(switch, sums, 128, 1)
    records["used"] = used
    assert has_room(switch, sums, 256) == room
    assert has_room(switch, sums, 128)  # a part of a line that has a place


def test_a_gpu_whose_switch_adds_nothing_has_no_table():
    assert not len(make_switch(4, adds=False)[1]) and np.array_equal(make_switch(4, adds=False)[0]["gpus"], [4])
