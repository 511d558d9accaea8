"""Differences between archives: everything that moved is named, and nothing else."""

import numpy as np
import pytest

from sim.host.recorded import Recorded
from sim.presets import load_preset
from sim.results import Failure, ResultsArchive
from sim.results.diff import moves
from tests.support.result_samples import sample_results


def archive(*runs):
    return ResultsArchive(list(runs))


def names(one, other):
    return {(move.run, move.kernel, move.name) for move in moves(one, other)}


def test_equal_archives():
    assert moves(archive(sample_results()), archive(sample_results())) == []


def test_a_counter_with_its_stream_sum_and_instances():
    one, other = sample_results(), sample_results()
    kernel = other.kernels[1]
    kernel.units["hbm"]["read_columns"][0, 2] += 5
    kernel.totals["hbm.read_columns"] += 5
    kernel.totals["hbm.read_columns.comm_read"] += 5
    found = {move.name: move for move in moves(archive(one), archive(other))}
    assert found.keys() == {"hbm.read_columns", "hbm.read_columns.comm_read"}
    move = found["hbm.read_columns"]
    assert (move.run, move.kernel, move.instances) == (0, 1, 1)
    assert move.after - move.before == 5 and move.change == pytest.approx(5 / move.before)


def test_work_that_moved_between_instances():
    one, other = sample_results(), sample_results()
    other.kernels[0].units["l2"]["read_sectors"] += [3, -3]
    (move,) = moves(archive(one), archive(other))
    assert (move.name, move.before, move.instances) == ("l2.read_sectors", move.after, 2)


def test_machine_options_times_series_and_figures():
    one, other = sample_results(), sample_results()
    other.preset = load_preset("v100", {"hbm.queue_entries": 48})
    other.options = {**one.options, "flush": False}
    other.series = {**one.series, "dram_read_bytes": one.series["dram_read_bytes"].copy()}
    other.series["dram_read_bytes"][3] += 7
    other.kernels[1].end_ps += 1000
    other.figures = {"speedup": 1.2}
    assert names(archive(one), archive(other)) == {
        (0, -1, "machine hbm.queue_entries"),
        (0, -1, "option flush"),
        (0, -1, "figure speedup"),
        (0, -1, "time_ps"),
        (0, 1, "end_ps"),
        (0, -1, "series dram_read_bytes, sum"),
    }


def test_what_other_gpus_did_is_compared_too():
    def several(last_bytes):
        run = sample_results()
        run.mean_dram_bytes, run.kernel_ps = np.array([1, 2, 3, last_bytes]), last_bytes
        run.others = [Recorded({"link_bytes": np.array([1, last_bytes])})]
        return archive(run)

    assert moves(several(4), several(4)) == []
    assert names(several(4), several(5)) == {
        (0, -1, "mean_dram_bytes.comm_write"),
        (0, -1, "kernel_ps"),
        (0, -1, "GPU 1 series link_bytes, sum"),
    }


def test_causes_come_first_and_once():
    one, other = (archive(*(sample_results() for _ in range(3))) for _ in range(2))
    for number, run in enumerate(other.runs):
        run.input = {**run.input, "trace": "cd" * 32, "kernel": {"tile_m": 64}}
        run.kernels[0].end_ps += 7
        run.code, run.point = "new", {"gpus": number}
    for run in one.runs:
        run.input = {**run.input, "kernel": {"tile_m": 128}}
    found = moves(one, other)
    assert [(move.run, move.name) for move in found if move.run < 0] == [
        (-1, "input kernel.tile_m"),
        (-1, "input trace"),
        (-1, "version code"),
    ]
    assert [move.cause for move in found] == sorted((move.cause for move in found), reverse=True)
    assert found[0].before == 128 and found[0].after == 64
    assert [move.run for move in found if move.name == "point gpus"] == [0, 1, 2]


def test_runs_kernels_and_failures_that_are_not_in_both():
    one, other = sample_results(), sample_results()
    del other.kernels[1:]
    other.interval_ps, other.series = 0, {}
    found = names(archive(one, Failure({"a": 1}, "x"), one), archive(other, Failure({"a": 2}, "y")))
    assert {(-1, -1, "runs"), (0, -1, "kernels"), (0, -1, "interval_ps"), (1, -1, "failure")} <= found
    assert {(1, -1, "point a"), (0, -1, "series dram_read_bytes, intervals")} <= found
