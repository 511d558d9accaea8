"""Which of its inputs an L2 bank serves first, against the plain rule: the oldest request, and of equals the first."""

import numpy as np
import pytest

from sim.hw.fifo import make_fifos
from sim.hw.l2_far import has_copy_room, next_input
from sim.hw.l2_record import INPUTS, make_l2_banks
from sim.hw.request import NEVER, STREAMS
from sim.hw.tags import HELD, make_sets
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


@pytest.mark.parametrize(
    ("out", "used", "waiting", "held", "line_in_flight", "room"),
    [
        (0, 0, 0, 0, False, True),
        (3, 0, 0, 0, False, True),  # of 8 reads
        (4, 0, 0, 0, False, False),  # half of them are for its own lines
        (4, 0, 0, 0, True, False),
        (0, 2, 0, 0, False, True),  # of 4 lines in flight
        (0, 3, 0, 0, False, False),  # the last place is for a line of its own
        (0, 3, 0, 0, True, True),  # a line in flight has its place
        (0, 0, 0, 2, False, True),  # of 4 ways
        (0, 0, 0, 3, False, False),  # the last way is for a line of its own
        (0, 0, 8, 0, False, False),  # the home has no room
    ],
)
def test_a_bank_keeps_what_a_read_of_its_own_lines_needs(out, used, waiting, held, line_in_flight, room):
    machine = small_preset(size=("cu.count=1", "l2.banks=1", "hbm.channels=1")).machine
    wiring = {name: [number] for number, name in enumerate(("requests", *OTHERS))}
    banks, _, _ = make_l2_banks(machine, wiring | {"dram": [np.full(STREAMS, 4)]})
    fifos, pool = make_fifos([8] * 6, 1)
    banks["other_peer"], banks["ways"], banks["misses"] = 5, 4, 4
    banks["copies_out"], banks["copies_used"] = out, used
    fifos["tail"][5] = waiting
    sets = make_sets(1)
    sets["block"]["age"][0, 0, :held] = HELD
    sets["way"]["pending"][0, 0] = 15 * line_in_flight
    way = 0 if line_in_flight else -1
    views = kernel_view(sets)[0], way, kernel_view(fifos), kernel_view(pool)
    assert has_copy_room(kernel_view(banks)[0], *views, 0) == room
