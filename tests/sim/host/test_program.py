"""Programs that workgroups share: what is found alike, and that nothing else is different for it."""

import numpy as np
import pytest

import sim.host.window
from sim.host.gpu import Gpu
from sim.host.program import Match, match, split, words_of
from sim.hw.cu_record import ARRAYS
from sim.run.one_gpu import simulate
from tests.support.programs import barrier, compute, kernel, lines, load, row, small_preset, store, workgroup
from tracer.gemm.source import Copy, GemmKernel, GemmProblem, GemmSource, Layout
from tracer.sequence import CommandSequence
from traces.schema import EVENT, Kind, Space

A, B = 1 << 20, 3 << 20


def events_of(*rows):
    return workgroup(0, [list(rows)]).events


def compared(program, events):
    shift_bytes = np.zeros(ARRAYS, np.int64)
    found = match(words_of(events), words_of(program), shift_bytes)
    return Match(found), shift_bytes.tolist()


def alike(a, b):
    return events_of(load(a, slot=1), compute(3, wait=[1]), load(b, slot=2), barrier(), store(a + 512, wait=[2]))


def test_workgroups_that_have_moved_as_a_whole_are_the_same():
    assert compared(alike(A, B), alike(A + 36, B + 36)) == (Match.SAME, [36] + [0] * 7)
    assert compared(alike(A, B), alike(A - 640, B - 640)) == (Match.SAME, [-640] + [0] * 7)


@pytest.mark.parametrize("name", ["kind", "space", "cache", "pipe", "width_bytes", "slot", "inner", "stride", "count"])
def test_any_other_difference_makes_another_program(name):
    changed = alike(A, B)
    changed[name][2] ^= 1
    assert compared(alike(A, B), changed)[0] == Match.OTHER
    changed = alike(A, B)
    changed["array"] = 5  # whatever a trace has there
    assert compared(alike(A, B), changed)[0] == Match.SAME


@pytest.mark.parametrize("name", ["cycles", "work", "pc", "row_stride", "mask", "wait"])
@pytest.mark.parametrize("place", [0, 1, 5])
def test_and_so_does_one_in_any_word_of_any_event(name, place):
    changed = alike(A, B)
    changed[name][place] ^= 1
    assert compared(alike(A, B), changed)[0] == Match.OTHER


def test_addresses_in_shared_memory_do_not_move():
    one, other = (events_of(load(base, space=Space.SHARED)) for base in (0, 64))
    assert compared(one, one)[0] == Match.SAME and compared(one, other)[0] == Match.OTHER


def test_events_that_move_differently_are_split_and_then_followed():
    program, second, third = alike(A, B), alike(A + 100, B), alike(A + 100, B + 9)
    assert compared(program, second)[0] == Match.SPLIT
    assert split(words_of(second), words_of(program))
    assert second["array"].tolist() == [0, 0, 1, 0, 0, 0]
    assert compared(second, third) == (Match.SAME, [0, 9] + [0] * 6)
    assert compared(second, program) == (Match.SAME, [-100] + [0] * 7)
    fourth = alike(A, B)
    fourth["base"][4] += 1  # the store leaves the array of the first load
    assert compared(second, fourth)[0] == Match.SPLIT
    assert split(words_of(fourth), words_of(second)) and fourth["array"].tolist() == [0, 0, 1, 0, 2, 0]


def test_there_are_no_more_arrays_than_a_workgroup_keeps():
    program, moved = (events_of(*(load(A + 128 * k + apart * k * k) for k in range(ARRAYS + 1))) for apart in (0, 4))
    fits = moved[:ARRAYS].copy()
    assert split(words_of(fits), words_of(program[:ARRAYS])) and fits["array"].tolist() == [*range(ARRAYS)]
    assert not split(words_of(moved), words_of(program)) and not moved["array"].any()


GEMMS = [
    (GemmProblem(192, 192, 96), GemmKernel(tile_m=64, tile_n=64, tile_k=32, warps_m=2, warps_n=2)),
    (GemmProblem(150, 200, 70), GemmKernel(tile_m=64, tile_n=64, tile_k=32, warps_m=2, warps_n=2, split_k=2)),
    (
        GemmProblem(256, 128, 64, a_layout=Layout.COLUMN),
        GemmKernel(tile_m=64, tile_n=64, tile_k=32, warps_m=2, warps_n=2, copy=Copy.ASYNC, start_tile=3),
    ),
]


def mixed():
    """Workgroups of two programs in turns, some with listed addresses, whose arrays move to and fro."""
    groups = []
    for k in range(120):
        rows = [load(A + 4096 * (k * 7 % 11), slot=1), compute(2 + k % 2, wait=[1]), lines(Kind.LOAD, B - 96 * k, 9)]
        if k % 4 == 1:
            rows.append(row(Kind.STORE, addresses=[A + 64 * k + 8 * lane * lane for lane in range(32)]))
        groups.append([rows, [barrier(1), store(B + 2048 * k)], [barrier(1)]][: 1 + 2 * (k % 2)])
    return kernel(groups)


@pytest.mark.parametrize(
    "source", [*(GemmSource(*gemm) for gemm in GEMMS), mixed()], ids=["even", "edges", "async", "mixed"]
)
def test_results_are_those_of_workgroups_with_events_of_their_own(source, monkeypatch):
    def result():
        found = simulate(CommandSequence([source]), small_preset("dispatch.jitter_ps=3000")).kernels[0]
        return found.start_ps, found.end_ps, found.totals

    shared = result()
    monkeypatch.setattr(sim.host.window, "PROGRAMS", 0)
    assert result() == shared


def test_slabs_come_back_when_nobody_needs_them(monkeypatch):
    """A short window, in which slabs are used again and again: each is free or holds a program at the end."""
    monkeypatch.setattr(sim.host.window, "READ_AHEAD", 1)
    copied, copy = [], sim.host.window.TraceWindow._copied
    monkeypatch.setattr(sim.host.window.TraceWindow, "_copied", lambda *of: copied.append(copy(*of)) or copied[-1])
    source, preset = mixed(), small_preset("cu.workgroups=1", "dispatch.jitter_ps=3000")
    gpu = Gpu(preset.machine)
    end_ps = gpu.run_kernel(source, 0, None)
    window = gpu._window
    window.fill()  # takes note of the last workgroups that ended
    (feed,) = window.feeds
    programs = [program.slab for program in feed.held]
    assert 30 < len(copied) < 60 and len(source.items) == 120
    assert sorted([*feed.free, *programs]) == [*range(feed.end_slab)] and feed.inside == 0
    assert feed.users == [int(slab in programs) for slab in range(feed.end_slab)]
    monkeypatch.setattr(sim.host.window, "PROGRAMS", 0)
    assert Gpu(preset.machine).run_kernel(source, 0, None) == end_ps


def test_a_gemm_keeps_a_handful_of_slabs(monkeypatch):
    problem, gemm_kernel = GemmProblem(480, 460, 64), GEMMS[0][1]

    def slabs_written():
        gpu = Gpu(small_preset().machine)
        gpu.run_kernel(GemmSource(problem, gemm_kernel), 0, None)
        return int((gpu.node.events["kind"] != 0).any(axis=1).sum())

    assert 4 <= slabs_written() <= 10
    monkeypatch.setattr(sim.host.window, "PROGRAMS", 0)
    assert slabs_written() == GemmSource(problem, gemm_kernel).info.workgroups


def test_programs_of_more_lengths_than_are_held_are_shared_while_they_run():
    """As in causal attention: all heads have the same lengths, one after the other."""
    lengths = 2 * sim.host.window.PROGRAMS
    groups = [[[load(A + 4096 * k, slot=1), *[compute(2, wait=[1])] * (1 + k % lengths)]] for k in range(6 * lengths)]
    gpu = Gpu(small_preset().machine)
    gpu.run_kernel(kernel(groups), 0, None)
    assert int((gpu.node.events["kind"] != 0).any(axis=1).sum()) == lengths


def test_programs_are_forgotten_with_their_slabs():
    """As in a trace in which hardly two workgroups have the same length."""
    groups = [[[load(A + 4096 * k, slot=1), *[compute(2, wait=[1])] * (1 + k % 150)]] for k in range(400)]
    gpu = Gpu(small_preset("cu.workgroups=1").machine)
    gpu.run_kernel(kernel(groups), 0, None)
    gpu._window.fill()
    (feed,) = gpu._window.feeds
    held = {program.slab for program in feed.held}
    assert feed.lengths.keys() == held and len(held) == sim.host.window.PROGRAMS
    assert {one.slab for alike in feed.programs.values() for one in alike} == held and all(feed.programs.values())


def test_arrays_stay_apart_when_they_move_alike():
    """Two arrays of a program, both moved by 128 bytes: the next workgroup may move them differently again."""
    program, moved = np.zeros((2, 2), EVENT)
    program["array"], program["base"], moved["base"] = [0, 1], [0, 4096], [128, 4096 + 128]
    assert split(words_of(moved), words_of(program)) and moved["array"].tolist() == [0, 1]
