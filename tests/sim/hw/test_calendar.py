"""Calendar of a time window: each source is given once in its slot, beginning with the first one and coming round."""

import numpy as np
import pytest

from sim.hw.calendar import CALENDAR, WORD_BITS, WORD_SOURCES, calendar_add, set_period, slot_sources
from tests.support.plain_records import kernel_view


@pytest.mark.parametrize("sources", [1, 31, 32, 33, 100, 160])
def test_a_slot_gives_its_sources_in_turn(sources):
    random = np.random.default_rng(sources)
    records = np.zeros(1, CALENDAR)
    set_period(records, 700)
    calendar, words = kernel_view(records)[0], -(-sources // WORD_SOURCES)
    for first in {0, sources // 2, sources - 1, *random.integers(0, sources, 5).tolist()}:
        slots = random.integers(0, 62, sources)
        for source, slot in enumerate(slots.tolist()):
            calendar_add(calendar, source, 700 * slot + int(random.integers(700)))
        assert calendar.busy == sum(1 << slot for slot in set(slots.tolist()))
        for slot in range(62):
            given = []
            for step in range(words + 1):
                word, bits = slot_sources(calendar, slot, first, step, words)
                given += [(word << WORD_BITS) + bit for bit in range(WORD_SOURCES) if bits >> bit & 1]
            assert given == sorted(np.flatnonzero(slots == slot), key=lambda source: (source - first) % sources)
        assert not records["sources"].any()
        calendar.busy = 0
