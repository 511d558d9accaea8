"""Replaying a trace: which kernels, what L2 keeps, when they start, and that the archive is a function of the input."""

import re

import pytest

from sim.results import write_results
from sim.run.one_gpu import simulate
from tests.support.programs import kernel, lines, load, random_kernel, small_preset, store
from tracer.sequence import CommandSequence
from traces.errors import UserError
from traces.schema import Kind
from traces.source import Prefill

A = 1 << 20
READ = kernel([[[lines(Kind.LOAD, A, 32, slot=1)]]], name="read")
WRITE = kernel([[[store(A + 128 * k) for k in range(8)]]], name="write")


def test_two_runs_give_the_same_bytes(tmp_path):
    trace = CommandSequence([random_kernel(1), Prefill(A, 4096), random_kernel(2)])
    paths = [tmp_path / name for name in ("a.h5", "b.h5")]
    for path in paths:
        write_results(path, simulate(trace, small_preset("dispatch.jitter_ps=9000"), interval_ps=100_000))
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("interval_ps", [1, 50_000, 10**9])
def test_the_time_series_changes_nothing_and_adds_up(interval_ps):
    if interval_ps == 1:
        interval_ps = 777  # many more rows than the table holds
    trace = CommandSequence([random_kernel(3), random_kernel(4)])
    plain, sampled = simulate(trace, small_preset()), simulate(trace, small_preset(), interval_ps=interval_ps)
    for one, other in zip(plain.kernels, sampled.kernels, strict=True):
        assert (one.start_ps, one.end_ps, one.totals) == (other.start_ps, other.end_ps, other.totals)
    for column, counter in (
        ("dram_compute_read_bytes", "hbm.read_columns"),
        ("dram_compute_write_bytes", "hbm.write_columns"),
    ):
        assert sampled.series[column].sum() == 32 * sum(result.totals[counter] for result in sampled.kernels)
    assert sampled.series["l2_read_sectors"].sum() == sum(r.totals["l2.read_sectors"] for r in sampled.kernels)


@pytest.mark.parametrize(("flush", "fetched"), [(True, 32), (False, 0)])
def test_l2_between_kernels_is_kept_or_flushed(flush, fetched):
    first, second = simulate(CommandSequence([READ, READ]), small_preset(), flush_l2=flush).kernels
    assert first.totals["hbm.read_columns"] == 32 and second.totals["hbm.read_columns"] == fetched
    assert second.totals["l1.read_hit_sectors"] == 0  # L1 is empty at the start of a kernel


def test_a_flush_belongs_to_its_kernel():
    first, second = simulate(CommandSequence([WRITE, READ]), small_preset()).kernels
    assert first.totals["hbm.write_columns"] == first.totals["l2.flush_sectors"] == 32
    assert second.totals["hbm.write_columns"] == 0
    kept = simulate(CommandSequence([WRITE, READ]), small_preset(), flush_l2=False)
    assert sum(result.totals["hbm.write_columns"] for result in kept.kernels) == 0
    assert first.time_ps == kept.kernels[0].time_ps  # the flush is not in its time


@pytest.mark.parametrize(("size_bytes", "misses"), [(32 * 128, 0), (31 * 128 + 1, 0), (31 * 128, 1), (1, 31), (0, 32)])
def test_a_prefill_hits(size_bytes, misses):
    (result,) = simulate(CommandSequence([Prefill(A, size_bytes), READ]), small_preset()).kernels
    assert result.totals["hbm.read_columns"] == misses
    assert result.totals["l2.read_hit_sectors"] == 32 - misses


def test_launch_and_gap():
    times = small_preset("dispatch.launch_ps=5000000", "dispatch.gap_ps=3000000")
    first, second = simulate(CommandSequence([READ, READ]), times, flush_l2=False).kernels
    assert first.start_ps == 5_000_000
    assert second.start_ps == first.end_ps + 3_000_000
    assert second.end_ps - second.start_ps < first.end_ps - first.start_ps  # it hits in L2


@pytest.mark.parametrize("chosen", [[0], [1], [0, 2], [2, 1]])
def test_chosen_kernels_run_as_if_the_others_were_not_there(chosen):
    kernels = [READ, WRITE, kernel([[[load(A)]]], name="other")]
    found = simulate(CommandSequence(kernels), small_preset(), kernels=chosen)
    assert [result.name for result in found.kernels] == [kernels[k].info.name for k in sorted(chosen)]
    alone = simulate(CommandSequence([kernels[k] for k in sorted(chosen)]), small_preset())
    assert [r.totals for r in found.kernels] == [r.totals for r in alone.kernels]


def test_a_kernel_that_is_not_there():
    with pytest.raises(UserError, match="kernels: found 7, allowed are 0 to 1"):
        simulate(CommandSequence([READ, WRITE]), small_preset(), kernels=[0, 7])


@pytest.mark.parametrize("chosen", [[], [1, 1]])
def test_a_choice_of_no_kernel_or_of_one_twice(chosen):
    message = f"kernels: found {chosen}, allowed are one number or more, each once"
    with pytest.raises(UserError, match=re.escape(message)):
        simulate(CommandSequence([READ, WRITE]), small_preset(), kernels=chosen)
