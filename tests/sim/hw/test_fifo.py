"""Fifos: in order, bounded, each in its own slots of the pool."""

from collections import deque

import numpy as np
import pytest

import sim.hw.fifo as fifo_module
from sim.hw.fifo import (
    fifo_fill,
    fifo_full,
    fifo_has_room,
    fifo_head,
    fifo_head_ps,
    fifo_insert_copy,
    fifo_pop,
    fifo_push_copy,
    fifo_room_ps,
    fifo_take,
    make_fifos,
)
from sim.hw.request import NEVER, REQUEST
from tests.support.plain_records import kernel_view


def test_random_traffic_through_several_fifos():
    random = np.random.default_rng(3)
    depths = [1, 2, 3, 8, 33]
    records, pool = make_fifos(depths)
    fifos, slots = kernel_view(records), kernel_view(pool)
    twins, most, number = [deque() for _ in depths], [0] * len(depths), 0
    for _ in range(4000):
        k = int(random.integers(len(depths)))
        fifo, twin = fifos[k], twins[k]
        assert fifo_full(fifo) == (len(twin) == depths[k]) and fifo_fill(fifo) == len(twin)
        assert fifo_head_ps(fifo, slots) == (twin[0] + 5 if twin else NEVER)
        if random.random() < 0.5 and len(twin) < depths[k]:
            number += 1
            one = np.zeros(1, REQUEST)
            one["tag"] = number
            fifo_push_copy(fifo, slots, kernel_view(one)[0], number + 5)
            twin.append(number)
            most[k] = max(most[k], len(twin))
        elif twin:
            assert fifo_head(fifo, slots).tag == twin.popleft()
            fifo_pop(fifo)
    assert records["fill_max"].tolist() == most


def test_the_example_of_the_docstring():
    records, pool = make_fifos([4])
    fifo, slots = kernel_view(records)[0], kernel_view(pool)
    pool.requests["tag"] = -1
    rows = [line.split("|")[1:-1] for line in fifo_module.__doc__.split("\n") if line.startswith(("| put", "| take"))]
    assert len(rows) == 5
    for what, *fields, held in rows:
        verb, numbers = what.split(maxsplit=1)
        for number in map(int, numbers.split(",")):
            if verb == "take":
                assert fifo_head(fifo, slots).tag == number
                fifo_pop(fifo)
            else:
                one = np.zeros(1, REQUEST)
                one["tag"] = number
                fifo_push_copy(fifo, slots, kernel_view(one)[0], 0)
        assert [int(records[0][name]) for name in ("head", "tail", "origin", "mask")] == [int(one) for one in fields]
        assert pool.requests["tag"][:4].tolist() == [int(one.replace("-", "-1")) for one in held.split()]


def test_a_fifo_holds_something():
    with pytest.raises(ValueError, match="at least one"):
        make_fifos([4, 0])


@pytest.mark.parametrize("depth", [1, 2, 5, 16, 33])
def test_known_room_is_the_room_that_credits_give(depth):
    random = np.random.default_rng(depth)
    records, pool = make_fifos([depth], 4)
    fifo, slots = kernel_view(records)[0], kernel_view(pool)
    one, now_ps = kernel_view(np.zeros(1, REQUEST))[0], 0
    found, free_ps = set(), [0] * depth  # from when on each place, in the order of use, may be filled
    for _ in range(3000):
        now_ps += int(random.integers(0, 3))
        if fifo_fill(fifo) and random.random() < 0.5:
            fifo_take(fifo, slots, now_ps)
            free_ps.append(now_ps + 4)
        number = int(records[0]["tail"]) + int(random.integers(0, depth))
        room_ps = free_ps[number] if number < len(free_ps) else NEVER
        assert fifo_room_ps(fifo, slots, number) == room_ps
        assert fifo_has_room(fifo, slots, number, now_ps) == (room_ps <= now_ps)
        found.add(room_ps <= now_ps)
        if fifo_has_room(fifo, slots, int(records[0]["tail"]), now_ps):
            fifo_push_copy(fifo, slots, one, now_ps)
    assert found == {False, True}


def test_an_inserted_request_stands_behind_all_that_are_visible_by_then():
    random = np.random.default_rng(5)
    records, pool = make_fifos([40])
    fifo, slots = kernel_view(records)[0], kernel_view(pool)
    twin, done_ps = [], 0
    for number in range(2000):
        if len(twin) == 40 or (twin and random.random() < 0.49):
            done_ps, tag = twin.pop(0)
            assert (fifo_head_ps(fifo, slots), fifo_head(fifo, slots).tag) == (done_ps, tag)
            fifo_pop(fifo)
        else:
            one = np.zeros(1, REQUEST)
            one["tag"], ready_ps = number, done_ps + int(random.integers(0, 30))
            fifo_insert_copy(fifo, slots, kernel_view(one)[0], ready_ps)
            twin = sorted([*twin, (ready_ps, number)])
    assert records[0]["fill_max"] > 8
