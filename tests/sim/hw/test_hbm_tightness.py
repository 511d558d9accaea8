"""Directed traffic: every pair of commands issues at exactly its bound, and streams reach exactly their rate."""

import numpy as np
import pytest

from sim.hw.hbm.log import Command
from sim.hw.request import Op, Stream
from sim.run.dram import run_stream
from sim.run.dram_stream import Stream as RequestStream
from sim.spec import QueueOrganisation, UpdateScope
from tests.support.hbm_checker import check
from tests.support.hbm_rig import Access, bench_spec, run_bench

ACT, PRE, PREA, RD, WR, UPD, REF = Command
READ, WRITE, UPDATE = int(Op.READ), int(Op.WRITE), int(Op.UPDATE)
SAME_ROW, BANK, GROUP, ROW = 256, 2048, 8192, 32768
"""Distances under map RO: in the row, to the next bank of the group, to the next group, to the next row of the bank."""
UNIFIED = {"queue": QueueOrganisation.UNIFIED}


def commands(accesses, timing_set="G", **fields):
    """[(clock, Command, bank)] of the accesses, in order through one fifo; the checker must agree."""
    hbm = bench_spec(timing_set, "RO", **{**UNIFIED, **fields})
    accesses = [access._replace(stream=Stream.COMPUTE_READ) for access in accesses]
    bench = run_bench(hbm, accesses)
    assert check(hbm, bench.log, accesses, bench.accepted_ps, bench.end_ps) == []
    period_ps = round(1e6 / hbm.clock_MHz)
    return hbm.timing, [(int(c["time_ps"]) // period_ps, Command(c["command"]), int(c["bank"])) for c in bench.log]


def clock(log, command, number=0, bank=None):
    """Clock of the n-th such command."""
    return [c for c, name, where in log if name == command and bank in (None, where)][number]


# --- same bank


@pytest.mark.parametrize("timing_set", ["G", "D", "R", "P", "HBM2e", "HBM3", "HBM3e"])
@pytest.mark.parametrize("op", [READ, WRITE, UPDATE])
def test_row_cycle(timing_set, op):
    """PRE, ACT and column of a conflict follow each other at tRAS or column recovery, tRP and tRCD."""
    row = ROW if timing_set in "GD" else ROW // 2
    t, log = commands([Access(op, 0, 1), Access(op, row, 1)], timing_set, REFI=0)
    column = {READ: RD, WRITE: WR, UPDATE: UPD}[op]
    to_column = t.RCD_rd if op == READ else t.RCD_wr
    recovery = t.RTP if op == READ else t.WL + t.burst + t.WR
    assert clock(log, ACT) == 0
    assert clock(log, column) == to_column
    assert clock(log, PRE) == max(t.RAS, to_column + recovery)
    assert clock(log, ACT, 1) == max(clock(log, PRE) + t.RP, t.RC)
    assert clock(log, column, 1) == clock(log, ACT, 1) + to_column


def test_row_cycle_time_alone():
    """tRC longer than tRAS + tRP binds the second ACT."""
    t, log = commands([Access(READ, 0, 1), Access(READ, ROW, 1)], RC=60)
    assert clock(log, ACT, 1) == t.RC == 60


# --- columns of two banks


@pytest.mark.parametrize(("distance", "name"), [(0, "CCD_L"), (BANK, "CCD_L"), (GROUP, "CCD_S")])
@pytest.mark.parametrize("op", [READ, WRITE])
@pytest.mark.parametrize("timing_set", ["G", "R"])
def test_column_to_column(distance, name, op, timing_set):
    """A second column, its row long open, follows at tCCD_L in the group and tCCD_S elsewhere."""
    distance = distance if timing_set == "G" else distance // 2
    late = 200_000
    accesses = [Access(op, 0, 1), Access(op, distance, 2)]
    accesses += [Access(op, 128, 1, ready_ps=late), Access(op, distance + 128, 2, ready_ps=late)]
    t, log = commands(accesses, timing_set, REFI=0)
    column = RD if op == READ else WR
    assert clock(log, column, 2) == 200
    assert clock(log, column, 3) == 200 + getattr(t, name)


@pytest.mark.parametrize(("distance", "name"), [(BANK, "WTR_L"), (GROUP, "WTR_S")])
def test_write_to_read(distance, name):
    late = 200_000
    accesses = [Access(READ, 0, 1), Access(READ, distance, 1)]
    accesses += [Access(WRITE, 128, 1, ready_ps=late), Access(READ, distance + 128, 1, ready_ps=late)]
    t, log = commands(accesses, WTR_S=3, WTR_L=6)
    assert clock(log, WR) == 200
    assert clock(log, RD, 2) == 200 + t.WL + t.burst + getattr(t, name)


@pytest.mark.parametrize("store", [WRITE, UPDATE])
def test_read_to_write(store):
    late = 200_000
    accesses = [Access(READ, 0, 1), Access(READ, GROUP, 1)]
    accesses += [Access(READ, 128, 1, ready_ps=late), Access(store, GROUP + 128, 1, ready_ps=late)]
    t, log = commands(accesses)
    assert clock(log, RD, 2) == 200
    assert clock(log, WR if store == WRITE else UPD) == 200 + t.RTW == 200 + t.CL + t.burst + 2 - t.WL


@pytest.mark.parametrize(
    ("scope", "distance", "wait"),
    [
        (UpdateScope.SAME_GROUP, BANK, "CCDWL"),
        (UpdateScope.SAME_GROUP, GROUP, "CCD_S"),
        (UpdateScope.CHANNEL, GROUP, "CCDWL"),
        (UpdateScope.BANK, BANK, "CCD_L"),
        (UpdateScope.BANK, SAME_ROW, "CCDWL"),
        (UpdateScope.OFF, BANK, "CCD_L"),
        (UpdateScope.OFF, GROUP, "CCD_S"),
    ],
)
def test_update_to_update(scope, distance, wait):
    late = 200_000
    accesses = [Access(READ, 0, 1), Access(READ, distance, 1)]
    accesses += [Access(UPDATE, 128, 1, ready_ps=late), Access(UPDATE, distance + 128, 1, ready_ps=late)]
    t, log = commands(accesses, update_scope=scope)
    assert clock(log, UPD) == 200
    assert clock(log, UPD, 1) == 200 + getattr(t, wait)


def test_a_write_does_not_wait_for_an_update():
    late = 200_000
    accesses = [Access(READ, 0, 1), Access(READ, BANK, 1)]
    accesses += [Access(UPDATE, 128, 1, ready_ps=late), Access(WRITE, BANK + 128, 1, ready_ps=late)]
    t, log = commands(accesses)
    assert clock(log, WR) == clock(log, UPD) + t.CCD_L


# --- activates


@pytest.mark.parametrize(("distance", "name"), [(BANK, "RRD_L"), (GROUP, "RRD_S")])
def test_activate_to_activate(distance, name):
    t, log = commands([Access(READ, 0, 1), Access(READ, distance, 1)], RRD_S=4, RRD_L=6)
    assert clock(log, ACT, 1) == getattr(t, name)


def test_four_activate_window():
    t, log = commands([Access(READ, GROUP * (n % 4) + BANK * (n // 4), 1) for n in range(6)], FAW=30)
    assert [clock(log, ACT, n) for n in range(6)] == [0, 4, 8, 12, 30, 34]
    assert t.RRD_S == 4


def test_row_and_column_command_in_one_clock():
    _, log = commands([Access(READ, 0, 1), Access(READ, GROUP, 1, ready_ps=14_000)])
    assert clock(log, RD) == 14
    assert clock(log, ACT, 1) == 14


# --- refresh


def test_refresh_of_an_idle_channel_comes_when_it_is_due():
    t, log = commands([Access(READ, 0, 1)], REFI=1000, RFC=300)
    assert clock(log, PREA) == 1000
    assert clock(log, REF) == 1000 + t.RP
    assert clock(log, REF, 1) == 2000


def test_an_activate_waits_for_the_refresh():
    t, log = commands([Access(READ, 0, 1), Access(READ, 0, 1, ready_ps=1_015_000)], REFI=1000, RFC=300)
    assert clock(log, REF) == 1000 + t.RP
    assert clock(log, ACT, 1) == 1000 + t.RP + t.RFC


def test_a_busy_channel_postpones_and_then_refreshes_at_once():
    accesses = [Access(READ, 128 * (n % 16), 15) for n in range(400)]
    t, log = commands(accesses, REFI=500, RFC=100, refresh_postpone=2)
    assert clock(log, PREA) - 3 * 500 <= t.RTP
    assert clock(log, REF) == clock(log, PREA) + t.RP


# --- bounds (group 9)


def stream_of(op, addresses):
    return RequestStream(
        np.full(len(addresses), op, np.uint8), np.array(addresses, np.int64), np.zeros(len(addresses), np.int64)
    )


@pytest.mark.parametrize("op", [READ, WRITE])
def test_a_stream_runs_at_the_peak(op):
    result = run_stream(stream_of(op, [64 * n for n in range(20_000)]), "G", "BG")
    assert result.bandwidth_GBps == pytest.approx(32.0, rel=0.005)


def test_a_stream_loses_the_refresh_share():
    result = run_stream(
        stream_of(READ, [64 * n for n in range(100_000)]), "G", "BG", REFI=3900, RFC=260, refresh_postpone=0
    )
    assert result.bandwidth_GBps <= 32 * (1 - 260 / 3900)
    assert result.bandwidth_GBps == pytest.approx(32 * (1 - (260 + 14 + 14 + 14) / 3900), rel=0.01)


@pytest.mark.parametrize(("timing_set", "row"), [("G", 32768), ("D", 32768), ("R", 16384), ("P", 16384)])
def test_one_bank_with_a_new_row_each_time_takes_a_row_cycle(timing_set, row):
    count = 2000
    result = run_stream(stream_of(READ, [row * n for n in range(count)]), timing_set, "RO", REFI=0)
    cycle = {"G": 47, "D": 48, "R": 48, "P": 47}[timing_set]
    assert result.cycles / count == pytest.approx(cycle, rel=0.002)


@pytest.mark.parametrize(("window", "per_access"), [(16, 4), (40, 10)])
def test_random_reads_run_at_four_per_window_or_one_per_rrd(window, per_access):
    count = 4000
    addresses = [ROW * n + 2048 * ((n % 4) * 4 + (n // 4) % 4) for n in range(count)]
    result = run_stream(stream_of(READ, addresses), "G", "RO", FAW=window)
    assert result.cycles / count == pytest.approx(per_access, rel=0.01)
