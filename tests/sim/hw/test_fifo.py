"""Fifos: in order, bounded, each in its own slots of the pool."""

from collections import deque

import numpy as np
import pytest

from sim.hw.fifo import fifo_fill, fifo_full, fifo_head, fifo_head_ps, fifo_pop, fifo_push_copy, make_fifos
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


def test_a_fifo_holds_something():
    with pytest.raises(ValueError, match="at least one"):
        make_fifos([4, 0])
