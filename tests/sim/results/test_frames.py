"""Results as tables: one row per run, kernel, instance or interval; a grid of runs as dimensions of xarray."""

import sys

import numpy as np
import pytest

from sim.results import Failure, ResultsArchive, ResultsError
from tests.support.result_samples import sample_results
from traces.errors import UserError

ENTRIES, WAYS = "hbm.queue_entries", "l2.ways"


def archive(points):
    """Runs at these points with time_ns of their own; None fails."""
    runs = []
    for number, point in enumerate(points):
        run = sample_results()
        run.point, run.figures = point, {"speedup": 1.0 + number}
        run.kernels[-1].end_ps += 1000 * number
        runs.append(run)
    return ResultsArchive(runs)


@pytest.fixture
def grid():
    found = archive([{ENTRIES: entries, WAYS: ways} for entries in (16, 32) for ways in (8, 16, 24)])
    found.runs[4] = Failure(found.runs[4].point, "l2.ways does not fit")
    return found


def test_one_row_per_run(grid):
    frame = grid.runs_frame()
    assert frame.index.name == "run" and list(frame.columns[:3]) == [ENTRIES, WAYS, "failure"]
    assert list(frame[WAYS]) == [8, 16, 24] * 2
    assert frame["failure"][4] == "l2.ways does not fit" and (frame["failure"].drop(4) == "").all()
    assert list(frame["time_ns"].drop(4)) == [11.0, 12.0, 13.0, 14.0, 16.0] and np.isnan(frame["time_ns"][4])
    assert frame["speedup"][5] == 6.0


def test_one_row_per_kernel_instance_and_interval(grid):
    kernels = grid.kernels_frame()
    assert kernels.index.names == ["run", "kernel"] and len(kernels) == 5 * 2
    assert list(kernels.loc[0, "name"]) == ["first", "second"]
    instances = grid.instances_frame("hbm")
    assert instances.index.names == ["run", "kernel", "instance"] and len(instances) == 5 * 2 * 2
    by_kernel = instances.groupby(level=["run", "kernel"])["read_columns.comm_write"].sum()
    assert (by_kernel == kernels["hbm.read_columns.comm_write"]).all()
    assert (instances.loc[2, ENTRIES] == 16).all() and (instances.loc[5, WAYS] == 24).all()
    intervals = grid.intervals_frame()
    assert intervals.index.names == ["run", "time_ps"] and len(intervals) == 5 * 11
    assert intervals.loc[(3, 3000), "dram_read_bytes"] == 2 and intervals.loc[(3, 3000), WAYS] == 8


def test_a_dataset_without_xarray_says_what_is_missing(grid, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(UserError, match="a dataset needs xarray: pip install xarray"):
        grid.dataset()


def test_a_grid_becomes_dimensions(grid):
    data = grid.dataset()
    assert data["time_ns"].dims == (ENTRIES, WAYS) and data["time_ns"].shape == (2, 3)
    assert float(data["time_ns"].sel({ENTRIES: 32, WAYS: 24})) == 16.0
    assert np.isnan(float(data["time_ns"].sel({ENTRIES: 32, WAYS: 16})))
    assert data["hbm.bus_busy_ps"].attrs["units"] == "ps"
    assert int(data["l2.read_sectors"][0, 0]) == grid.runs[0].totals["l2.read_sectors"]


def test_listed_points_are_one_dimension():
    data = archive([{ENTRIES: 16, WAYS: 8}, {ENTRIES: 32, WAYS: 16}]).dataset()
    assert data["time_ns"].dims == ("run",) and list(data[WAYS].values) == [8, 16]


def test_lists_become_texts():
    name = "t3.configurations"
    whole = archive([{name: names, WAYS: ways} for names in (["T3"], ["T3", "T3-MCA"]) for ways in (8, 16)]).dataset()
    assert list(whole[name].values) == ["T3", "T3,T3-MCA"] and whole["time_ns"].dims == (name, WAYS)
    listed = archive([{"t3.chunks": [4, 8]}, {WAYS: 16}]).dataset()
    assert listed["t3.chunks"].values[0] == "4,8" and listed["time_ns"].dims == ("run",)


def test_questions_without_an_answer(grid):
    with pytest.raises(ResultsError, match="'l9': allowed are bulk, copies, cu, dma, far, hbm, l1"):
        grid.instances_frame("l9")
    for run in grid.runs:
        if not isinstance(run, Failure):
            run.series = {}
    with pytest.raises(ResultsError, match="--interval-ns"):
        grid.intervals_frame()
    assert len(ResultsArchive([grid.runs[4]]).kernels_frame()) == 0
