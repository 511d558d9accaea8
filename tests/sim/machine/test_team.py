"""Threads that share units and meet: every unit once per step, no step before the last one has ended everywhere."""

import signal
import threading
import time
import weakref

import numba
import numpy as np
import pytest

from sim.host import team as host
from sim.host.crew import Crew
from sim.host.team import Team, chosen, cores, threads, use_threads
from sim.machine.team import ABANDONED, CUS, make_team, meet, next_part, part, take_again
from tests.support.plain_records import kernel_view
from tracer.compile.jit import compiled
from traces.errors import UserError

UNITS = 37


@compiled
def _steps(team, me, cells, steps, spoil):
    """In each step every cell becomes a function of its neighbours in the last step, once. Returns the steps done."""
    threads = team[0]
    turn = 0
    for step in range(steps):
        old, new = step & 1, 1 - (step & 1)
        for k in range(threads):
            owner = (me + k) % threads
            first, last = next_part(cells.shape[1], team, CUS, owner)
            while first < last:
                for unit in range(first, last):
                    cells[2, unit] += 1
                    cells[new, unit] = 3 * cells[old, unit - 1 if unit > 0 else 0] + cells[old, unit] + unit
                first, last = next_part(cells.shape[1], team, CUS, owner)
        if me == spoil and step == steps // 2:
            return -2
        for half in range(2):
            found = meet(team, turn)
            if found < 0:
                return -1
            if found == 1:
                part(team, turn)
            turn += 1
            if half == 0:
                take_again(team, CUS, me)
    return turn // 2


def steps_of(count, steps, spoil=-1):
    team, cells = make_team(count), np.zeros((3, UNITS), np.int64)
    cells[0] = np.arange(UNITS)
    ended = [0] * count

    def work(me):
        ended[me] = int(_steps(kernel_view(team), me, kernel_view(cells), steps, spoil))
        if ended[me] == -2:
            raise ZeroDivisionError("spoilt")

    def failed():
        team[ABANDONED] = 1

    return Team(count), work, failed, cells, ended


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_threads_that_meet_compute_what_one_thread_computes(count):
    team, work, failed, expected, _ = steps_of(1, 500)
    team.run(work, failed)
    team, work, failed, found, ended = steps_of(count, 500)
    team.run(work, failed)
    assert ended == [500] * count and (found == expected).all() and (found[2] == 500).all()


@pytest.mark.parametrize("spoil", [0, 1])
def test_an_error_of_one_thread_ends_all_and_is_raised(spoil):
    team, work, failed, _, ended = steps_of(3, 100, spoil)
    with pytest.raises(ZeroDivisionError, match="spoilt"):
        team.run(work, failed)
    assert sorted(ended) == [-2, -1, -1]


def test_an_interrupt_of_the_user_waits_for_the_workers():
    left = []

    def work(me):
        if me == 0:
            raise KeyboardInterrupt
        time.sleep(0.05)
        left.append(me)

    with pytest.raises(KeyboardInterrupt):
        Team(3).run(work)
    assert sorted(left) == [1, 2]


def test_an_interrupt_while_workers_are_awaited_is_raised_when_they_have_ended():
    left, main = [], threading.get_ident()

    def work(me):
        if me == 1:
            time.sleep(0.05)  # the calling thread waits now
            signal.pthread_kill(main, signal.SIGINT)
            time.sleep(0.05)
            left.append(me)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            Team(2).run(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert left == [1]


def test_an_interrupt_of_the_user_ends_the_compilation_of_other_threads():
    """The error with which they then end is not the one that is raised."""
    begun, left = threading.Event(), []

    def engine(words, me, until_ps):
        if me == 0:
            begun.wait()
            raise KeyboardInterrupt("of the user")
        for number in range(100):
            numba.njit(lambda: number)()  # noqa: B023 - a function of its own each time
            begun.set()
            left.append(number)

    with pytest.raises(KeyboardInterrupt, match="of the user"):
        Crew(2).run(engine, 0)
    assert len(left) < 50
    numba.njit(lambda: 1)()


def test_workers_serve_many_times_and_end_with_their_team():
    before = set(threading.enumerate())  # those of other tests' teams may end at any time
    team = Team(4)
    assert not set(threading.enumerate()) - before  # none is started for a team that never runs
    seen: list[int] = []
    for _ in range(20):
        assert team.run(lambda me: seen.append(me) or me) == 0
    workers = set(threading.enumerate()) - before
    assert sorted(seen) == sorted([0, 1, 2, 3] * 20) and len(workers) == 3
    gone = weakref.ref(team)
    del team
    deadline_s = time.monotonic() + 10
    while any(worker.is_alive() for worker in workers) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert gone() is None and not any(worker.is_alive() for worker in workers)


@pytest.mark.parametrize(
    ("quota", "found"),
    [("max 100000", 64), ("150000 100000", 1), ("400000 100000", 4), ("50000 100000", 1), ("9900000 100000", 64)],
)
def test_a_container_has_the_cores_that_its_quota_pays_for(quota, found, tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text(quota + "\n", encoding="ascii")
    monkeypatch.setattr(host, "QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert cores() == found


def test_number_of_threads(monkeypatch):
    monkeypatch.delenv("T3SIM_THREADS")
    assert threads() == cores() and chosen() is None
    monkeypatch.setattr(host, "cores", lambda: 1000)
    assert threads() == 256
    with use_threads(None):
        assert chosen() is None
    monkeypatch.setenv("T3SIM_THREADS", "3")
    assert threads() == chosen() == 3
    with use_threads(2):
        assert threads() == 2
        with use_threads(None):
            assert threads() == 2
    assert threads() == 3
    monkeypatch.setenv("T3SIM_THREADS", "1" * 5000)
    with pytest.raises(UserError, match=r"T3SIM_THREADS: found '1{20}'\.\.\., allowed is a whole number from 1 to 256"):
        threads()
    monkeypatch.setenv("T3SIM_THREADS", "none")
    with pytest.raises(UserError, match="T3SIM_THREADS: found 'none', allowed is a whole number from 1 to 256"):
        threads()
    for count in (0, 257, "2", 2.0, True):
        with pytest.raises(UserError, match=f"threads: found {count!r}, allowed is 1 to 256"), use_threads(count):
            pass
