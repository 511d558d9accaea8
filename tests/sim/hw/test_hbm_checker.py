"""The constraint checker itself: a log that is right has no violations, every kind of damage is found."""

import pytest

from sim.hw.hbm.log import Command
from sim.hw.request import Op, Stream
from sim.spec import QueueOrganisation
from tests.support.hbm_checker import check, rules
from tests.support.hbm_rig import Access, bench_spec, random_accesses, run_bench

HBM = bench_spec("G", "BG", REFI=700, RFC=100)
ACCESSES = random_accesses(1, 150, spread_clk=2.0)
BENCH = run_bench(HBM, ACCESSES)


def violations(log, hbm=HBM, bench=BENCH, accesses=ACCESSES):
    return check(hbm, log, accesses, bench.accepted_ps, bench.end_ps)


def first(log, command, after=0):
    return next(place for place in range(after, log.size) if log[place]["command"] == command)


def test_the_log_of_the_channel_is_clean():
    assert violations(BENCH.log) == []


@pytest.mark.slow
@pytest.mark.parametrize("queue", QueueOrganisation)
def test_a_command_at_its_bound_one_clock_earlier(queue):
    """Wherever a pair stands at exactly its bound, the second command a clock earlier is found."""
    hbm = bench_spec("G", "BG", REFI=700, RFC=100, queue=queue)
    bench = run_bench(hbm, ACCESSES)
    tight = {}
    for place, entry in enumerate(bench.log):
        for earlier in bench.log[max(0, place - 60) : place]:
            clocks = (entry["time_ps"] - earlier["time_ps"]) // 1000
            for level, begin, then, least in rules(hbm):
                if (begin, then, least) == (earlier["command"], entry["command"], clocks) and together(
                    hbm, level, earlier["bank"], entry["bank"]
                ):
                    tight[level, begin, then] = place
    assert len(tight) >= 14, tight
    for rule, place in tight.items():
        log = bench.log.copy()
        log["time_ps"][place] -= 1000
        assert violations(log, hbm, bench), rule


def together(hbm, level, bank, other):
    groups = {"bank": 1, "group": hbm.banks_per_group}
    return level == "channel" or bank // groups[level] == other // groups[level]


@pytest.mark.parametrize("command", [Command.ACT, Command.PRE, Command.PREA, Command.RD, Command.WR, Command.UPD])
def test_a_dropped_command(command):
    log = BENCH.log
    place = first(log, command, after=20)
    assert violations([*log[:place], *log[place + 1 :]])


def test_dropped_refreshes():
    assert any(text.startswith("5") for text in violations(BENCH.log[BENCH.log["command"] != Command.REF]))


@pytest.mark.parametrize("command", [Command.ACT, Command.RD, Command.WR, Command.UPD, Command.REF])
def test_a_command_twice(command):
    log = BENCH.log
    place = first(log, command, after=20)
    assert violations([*log[: place + 1], *log[place:]])


def test_two_commands_swapped():
    log = BENCH.log
    act = first(log, Command.ACT)
    column = next(p for p in range(act, log.size) if log[p]["bank"] == log[act]["bank"] and log[p]["column"] >= 0)
    swapped = log.copy()
    for field in log.dtype.names:
        if field != "time_ps":
            swapped[field][act], swapped[field][column] = log[field][column], log[field][act]
    assert any(text.startswith("4") for text in violations(swapped))


@pytest.mark.parametrize("field", ["row", "bank", "column", "tag"])
def test_a_wrong_place(field):
    log = BENCH.log.copy()
    log[first(log, Command.RD, after=30)][field] += 1
    assert violations(log)


def test_a_command_off_the_clock():
    log = BENCH.log.copy()
    log["time_ps"][5] += 1
    assert any("off the clock" in text for text in violations(log))


def test_five_activates_in_a_short_window():
    hbm = bench_spec("D", "RO")
    accesses = [Access(Op.READ, bank * 2048) for bank in range(12)]
    bench = run_bench(hbm, accesses)
    log = bench.log.copy()
    acts = [place for place in range(log.size) if log[place]["command"] == Command.ACT]
    assert check(hbm, log, accesses, bench.accepted_ps, bench.end_ps) == []
    log["time_ps"][acts[4] : acts[4] + 1] -= 1000
    assert any(text.startswith("2") for text in check(hbm, log, accesses, bench.accepted_ps, bench.end_ps))


def test_bursts_that_overlap():
    """A write right behind a read: its data would meet the read's on the bus."""
    hbm = bench_spec("G", "RO")
    accesses = [Access(Op.READ, 0), Access(Op.WRITE, 2048 * 4)]
    bench = run_bench(hbm, accesses)
    log = bench.log.copy()
    store = first(log, Command.WR)
    log["time_ps"][store] = log["time_ps"][first(log, Command.RD)] + 12_000
    assert any(text.startswith("3") for text in check(hbm, log, accesses, bench.accepted_ps, bench.end_ps))


def test_a_read_that_overtakes_an_older_write():
    hbm = bench_spec("G", "RO")
    fifo = Stream.COMPUTE_READ
    accesses = [Access(Op.WRITE, 0, 1, fifo), Access(Op.READ, 0, 1, fifo)]
    bench = run_bench(hbm, accesses)
    log = bench.log.copy()
    assert check(hbm, log, accesses, bench.accepted_ps, bench.end_ps) == []
    columns = [place for place in range(log.size) if log[place]["column"] >= 0]
    log[columns] = log[columns[::-1]]
    times = sorted(log["time_ps"])
    log["time_ps"] = times
    assert any("overtook" in text for text in check(hbm, log, accesses, bench.accepted_ps, bench.end_ps))
