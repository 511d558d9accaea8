"""Scoreboard slots and the warp calendar: an event issues as soon as all that it waits for is there."""

import numpy as np
import pytest

from sim.hw.request import NEVER
from sim.hw.warp import (
    MAX_WARPS,
    ON_SLOTS,
    READY,
    WARP_BITS,
    WARPS,
    clear_warps,
    next_warp,
    slot_done,
    slot_take,
    slots_clear_ps,
    warp_ready,
    warp_sleep,
)
from tests.support.cu_bench import CLOCK_PS, run_cu
from tests.support.plain_records import kernel_view
from tests.support.programs import lines, load, store, wait
from traces.schema import NO_SLOT, Kind

A, B, C, P = 0x10000, 0x20000, 0x30000, 0x80000
L1_PS, MEMORY_PS = 30 * CLOCK_PS, 100_000
ANSWER_PS = L1_PS + MEMORY_PS


def table():
    array = np.zeros(1, WARPS)
    clear_warps(array)
    return kernel_view(array)[0]


def mask(*slots):
    return np.uint64(sum(1 << s for s in slots))


def test_the_calendar_gives_warps_by_time_then_by_number():
    random = np.random.default_rng(1)
    warps, times = table(), {}
    for _ in range(1500):
        w = int(random.choice([random.integers(MAX_WARPS), next_warp(warps) & (MAX_WARPS - 1)]))  # often the next one
        if random.random() < 0.6:
            times[w] = int(random.integers(0, 40))
            warp_ready(warps, w, times[w])
        else:
            times.pop(w, None)
            warp_sleep(warps, w, ON_SLOTS, 0)
        if times:
            expected = min((time, w) for w, time in times.items())
            key = int(next_warp(warps))
            assert (key >> WARP_BITS, key & (MAX_WARPS - 1)) == expected
        else:
            assert next_warp(warps) == (1 << 63) - 1


def test_slots_against_a_naive_scoreboard():
    random = np.random.default_rng(2)
    warps, flying, latest_ps, now_ps = table(), [], {}, 0
    warp, used = warps.warp[3], [0, 1, 5, 31, 62, 63]
    for _ in range(2000):
        now_ps += int(random.integers(0, 5))
        if random.random() < 0.5:
            slot = int(random.choice([*used, NO_SLOT]))
            slot_take(warp, slot)
            flying.append(slot)
        elif flying:
            slot = flying.pop(int(random.integers(len(flying))))
            done_ps = now_ps + int(random.integers(0, 20))
            assert slot_done(warps, 3, slot, done_ps) == -1  # the warp is not asleep
            latest_ps[slot] = max(latest_ps.get(slot, 0), done_ps)
        asked = random.choice([*used, 7], 3, replace=False)
        found = slots_clear_ps(warp, mask(*asked), now_ps)
        if any(slot in flying for slot in asked):
            assert found == NEVER
        else:
            assert max(found, now_ps) == max([latest_ps.get(slot, 0) for slot in asked] + [now_ps])


def test_the_last_event_of_a_slot_wakes_the_sleeper():
    warps = table()
    warp = warps.warp[0]
    for slot in (4, 4, 9):
        slot_take(warp, slot)
    warp.wait = mask(4, 9)
    warp_sleep(warps, 0, ON_SLOTS, 100)
    assert slot_done(warps, 0, 4, 200) == -1
    assert slot_done(warps, 0, 9, 500) == -1
    assert warp.state == ON_SLOTS
    assert slot_done(warps, 0, 4, 300) == 100  # slept since then
    assert warp.state == READY and next_warp(warps) >> WARP_BITS == 500  # the latest of all


def test_slots_are_waited_for_one_by_one():
    """Two loads in flight: who waits for the first goes when it is there."""
    program = [load(A, slot=1), lines(Kind.LOAD, B, 9, slot=2), store(P, wait=[1]), store(C, wait=[2])]
    bench = run_cu([[program]], memory_ps=MEMORY_PS)
    assert bench.issued_ps(P) == [ANSWER_PS]
    assert bench.issued_ps(C) == [CLOCK_PS + 8 * CLOCK_PS + ANSWER_PS]


def test_events_that_share_a_slot_are_waited_for_together():
    program = [load(A, slot=1), lines(Kind.LOAD, B, 9, slot=1), wait(1), store(P)]
    bench = run_cu([[program]], memory_ps=MEMORY_PS)
    assert bench.issued_ps(P) == [CLOCK_PS + 8 * CLOCK_PS + ANSWER_PS + CLOCK_PS]


def test_a_warp_that_waits_for_nothing_does_not_stop():
    bench = run_cu([[[load(A, slot=1), store(P), store(C, wait=[7])]]])
    assert bench.issued_ps(P) == [CLOCK_PS] and bench.issued_ps(C) == [2 * CLOCK_PS]


@pytest.mark.parametrize("slot", [0, 63])
def test_exit_waits_for_all_slots(slot):
    assert run_cu([[[load(A, slot=slot)]]], memory_ps=MEMORY_PS).exit_ps == ANSWER_PS
    assert run_cu([[[load(A)]]], memory_ps=MEMORY_PS).exit_ps == CLOCK_PS  # nobody waits for NO_SLOT
