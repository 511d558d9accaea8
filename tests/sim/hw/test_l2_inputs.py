"""Which of its inputs an L2 bank serves first, against the plain rule: the oldest request, and of equals the first."""

import numpy as np
import pytest

from sim.hw.fifo import make_fifos
from sim.hw.l2_far import next_input
from sim.hw.l2_record import INPUTS, make_l2_banks
from sim.hw.request import NEVER, STREAMS
from tests.support.plain_records import kernel_view
from tests.support.programs import small_preset

OTHERS = ("fills", "hits", "late")
PRESENT = {
    "CUs": ("requests",),
    "links": ("requests", "arrivals", "dma_reads"),
    "partitions": ("requests", "far", "peer"),
    "all": INPUTS,
}


@pytest.mark.parametrize("present", PRESENT.values(), ids=PRESENT)
def test_the_oldest_request_goes_first(present):
    machine = small_preset(size=("cu.count=1", "l2.banks=1", "hbm.channels=1")).machine
    wiring = {name: [number] for number, name in enumerate((*present, *OTHERS))}
    banks, _, _ = make_l2_banks(machine, wiring | {"dram": [np.full(STREAMS, len(wiring))]})
    fifos, pool = make_fifos([4] * (len(wiring) + 1))
    views = kernel_view(banks)[0], kernel_view(fifos), kernel_view(pool)
    random = np.random.default_rng(len(present))
    for _ in range(200):
        heads_ps = random.integers(0, 4, len(present))
        filled = random.random(len(present)) < 0.7
        tried = int(random.integers(0, 1 << len(present)))
        fifos["tail"][: len(present)] = filled
        pool.requests["ready_ps"][fifos["first"][: len(present)]] = heads_ps
        left = [(int(heads_ps[k]), k) for k in range(len(present)) if filled[k] and not tried >> k & 1]
        number, head_ps, place = next_input(*views, tried)
        if left:
            assert (head_ps, number) == min(left) and place == 1 << number
        else:
            assert head_ps == NEVER


def test_near_cus_come_before_far_ones_and_copies_before_links():
    assert INPUTS == ("requests", "far", "peer", "arrivals", "dma_reads")
