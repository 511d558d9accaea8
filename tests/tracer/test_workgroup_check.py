"""The check on what may reach compiled functions: what it refuses, that it is the same for all readers, and enough."""

import dataclasses

import numpy as np
import pytest

from sim.run.one_gpu import simulate
from tests.support.hostile import HOSTILE_KERNELS, ordinary_kernel
from tests.support.programs import kernel, load, small_preset, workgroup
from tests.support.trace_samples import ListSource
from tracer.event_faults import FIELDS, Fault
from tracer.sequence import CommandSequence
from tracer.verify import verify_archive
from tracer.workgroup_check import LAST_ADDRESS, Extent, check_events
from traces.archive import open_archive, write_archive
from traces.errors import UserError
from traces.layout import EVENT_COLUMNS


@pytest.mark.parametrize("name", HOSTILE_KERNELS)
def test_verify_and_run_refuse_the_same_in_the_same_words(tmp_path, name):
    source, words = HOSTILE_KERNELS[name]()
    write_archive(tmp_path / "t.h5", ListSource([source]))
    with pytest.raises(UserError) as verified:
        verify_archive(tmp_path / "t.h5")
    with pytest.raises(UserError) as replayed, open_archive(tmp_path / "t.h5") as archive:
        simulate(archive, small_preset())
    assert str(verified.value) == str(replayed.value)
    assert words in str(verified.value) and "kernel " in str(verified.value) and "allowed" in str(verified.value)


def test_an_ordinary_kernel_passes(tmp_path):
    write_archive(tmp_path / "t.h5", ListSource([ordinary_kernel()]))
    assert verify_archive(tmp_path / "t.h5").workgroups == 2
    simulate(CommandSequence([ordinary_kernel()]), small_preset())


def test_every_fault_is_tried_and_says_what_is_allowed():
    assert set(FIELDS) == set(Fault) - {Fault.NONE}
    said = " ".join(HOSTILE_KERNELS[name]()[1] for name in HOSTILE_KERNELS)
    assert all(allowed in said for _, allowed in FIELDS.values())


@pytest.mark.parametrize("seed", range(100))
def test_any_value_anywhere_is_refused_or_runs(tmp_path, seed):
    """What verifies, runs to its end (or to a deadlock that is named); with --boundscheck no index is out of range."""
    random = np.random.default_rng(seed)
    source = ordinary_kernel()
    for _ in range(random.integers(1, 3)):
        events = source.items[random.integers(2)].events
        column = EVENT_COLUMNS[random.integers(len(EVENT_COLUMNS))]
        info = np.iinfo(events[column].dtype)
        values = [info.min, info.max, info.max // 2, 1, 16, 64, int(random.integers(0, 128))]
        events[column][random.integers(len(events))] = values[random.integers(len(values))]
    write_archive(tmp_path / "t.h5", ListSource([source]))
    try:
        verify_archive(tmp_path / "t.h5")
    except UserError as refused:
        with pytest.raises(UserError) as also:
            simulate(CommandSequence([source]), small_preset())
        assert str(also.value) == str(refused)
        return
    try:
        result = simulate(CommandSequence([source]), small_preset()).kernels[0]
    except UserError as stuck:
        assert "nothing can move" in str(stuck)
    else:
        assert result.totals["cu.workgroups"] == 2


def test_the_extent_is_what_lanes_reach():
    item = workgroup(0, [[load(1 << 20), load((1 << 20) + 256, stride=-8, inner=4, row_stride=1000)]])
    extent = check_events(kernel([item]).info, item)
    low, high = (1 << 20) + 256 - 3 * 8, (1 << 20) + 256 + 7 * 1000 + 3
    assert extent == (min(1 << 20, low), high)
    assert extent.may_move(np.array([0, -(1 << 20)])) and not extent.may_move(np.array([0, -(1 << 20) - 1]))
    room = LAST_ADDRESS - high
    assert extent.may_move(np.array([room])) and not extent.may_move(np.array([room + 1]))
    assert Extent(LAST_ADDRESS, 0).may_move(np.array([0]))


@pytest.mark.parametrize("place", [3, 40])
def test_a_workgroup_that_shares_a_program_is_checked_where_it_moves_to(place):
    """Workgroups alike but for the base; one of them would lie beyond 2^63."""
    groups = [[[load(4096 * k)]] for k in range(60)]
    groups[place] = [[load((1 << 63) + 4096)]]
    with pytest.raises(UserError, match=rf"workgroup {place}, warp 0, event 0 of the workgroup: base: found 9223372"):
        simulate(CommandSequence([kernel(groups)]), small_preset())


def test_edges_are_checked_also_where_the_events_are_shared():
    groups = [workgroup(k, [[load(4096 * k)], [load(4096 * k)]]) for k in range(4)]
    groups[3] = groups[3]._replace(first_event=np.array([0, 3, 4]))
    with pytest.raises(UserError, match="workgroup 3, warp 0: kind: found 0, allowed 8: every warp must end"):
        simulate(CommandSequence([kernel(groups)]), small_preset())
    groups[3] = groups[3]._replace(warp=np.array([0], np.uint16), first_event=np.array([0, 4]))
    with pytest.raises(UserError, match="event 3 of the workgroup: kind: found 8, allowed EXIT only as the last"):
        simulate(CommandSequence([kernel(groups)]), small_preset())


def test_a_kernel_from_python_is_checked_like_one_from_a_file():
    source = ordinary_kernel()
    changed = dataclasses.replace(source.info, warps_per_workgroup=64)
    with pytest.raises(UserError, match="warps_per_workgroup: found 64, allowed 2 to 2"):
        simulate(CommandSequence([dataclasses.replace(source, info=changed)]), small_preset())
