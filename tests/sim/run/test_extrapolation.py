"""Kernels simulated in part: within their accuracy, marked, and whole where their waves predict nothing."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from sim import results
from sim.host.gpu import Gpu
from sim.results import write_results
from sim.run import extrapolation
from sim.run.extrapolation import (
    END_WAVES,
    OF_WAVES,
    OF_WORKGROUPS,
    TIME_ERROR,
    TRAFFIC_ERROR,
    WAVES,
    WORKGROUPS,
    Cut,
    Part,
    Snapshot,
    extended,
    figures_of,
)
from sim.run.one_gpu import simulate
from sim.run.result import KernelResult
from sim.run.short_kernel import wave_of
from sim.run.steady_waves import rest
from tests.support.programs import random_kernel, small_preset
from tracer.gemm.source import GemmProblem, GemmSource
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence
from tracer.workloads import DEFAULT_KERNEL

KERNEL = replace(DEFAULT_KERNEL, tile_m=64, tile_n=64, warps_m=2, warps_n=2)
MACHINE = small_preset("l2.bytes=262144")
TRAFFIC = ("hbm.read_columns", "hbm.write_columns")


def gemm(m, n, k=32, kernel=KERNEL):
    return CommandSequence([GemmSource(GemmProblem(m, n, k), kernel)])


@pytest.fixture(scope="module")
def long():
    """(in part, whole) of a GEMM of many waves."""
    source = gemm(8192, 2048)
    return simulate(source, MACHINE, accuracy=0.01), simulate(source, MACHINE)


@pytest.mark.slow
def test_time_and_traffic_keep_the_stated_errors(long):
    part, whole = long
    assert part.kernels[0].time_ps == pytest.approx(whole.kernels[0].time_ps, rel=part.figures[TIME_ERROR])
    both = [sum(run.totals[counter] for counter in TRAFFIC) for run in long]
    assert both[0] == pytest.approx(both[1], rel=part.figures[TRAFFIC_ERROR])
    for counter in ("cu.tensor_macs", "lsu.line_requests", "l2.read_sectors", "cu.workgroups"):
        assert part.totals[counter] == pytest.approx(whole.totals[counter], rel=0.01)


def test_it_is_marked(long):
    part, whole = long
    assert whole.extrapolation == {}
    assert part.extrapolation == part.figures
    wave = wave_of(GemmSource(GemmProblem(8192, 2048, 32), KERNEL).info, MACHINE.machine)
    assert part.figures[OF_WORKGROUPS] == 4096 and part.figures[OF_WAVES] == round(4096 / wave, 1)
    assert part.figures[WORKGROUPS] <= 0.8 * 4096 and part.figures[WAVES] == round(part.figures[WORKGROUPS] / wave, 1)
    assert (4096 - part.figures[WORKGROUPS]) % wave == 0  # the last wave is as incomplete as that of the whole
    assert 0 < part.figures[TIME_ERROR] <= 0.01 and 0 < part.figures[TRAFFIC_ERROR] <= 0.02


def test_the_end_is_uncertain_even_if_the_waves_are_alike(monkeypatch):
    monkeypatch.setattr(extrapolation, "rest", lambda *given: rest(*given)._replace(uncertainty=0.0))
    part = simulate(gemm(8192, 2048), MACHINE, accuracy=0.01)
    assert part.figures[TIME_ERROR] == pytest.approx(END_WAVES / part.figures[OF_WAVES], rel=0.1, abs=5e-5)
    assert part.figures[TIME_ERROR] > 0 == part.figures[TRAFFIC_ERROR]


def test_marks_stay_in_the_archive_and_bytes_are_equal(long, tmp_path):
    for name, run in (("a.h5", long[0]), ("b.h5", simulate(gemm(8192, 2048), MACHINE, accuracy=0.01))):
        write_results(tmp_path / name, run)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert results.open(tmp_path / "a.h5").run().extrapolation == long[0].extrapolation


def test_the_series_covers_what_was_simulated(long):
    found = simulate(gemm(8192, 2048), MACHINE, accuracy=0.01, interval_ps=1_000_000)
    assert found.time_ps == long[0].time_ps and found.totals == long[0].totals
    stored = found.series["dram_compute_write_bytes"].sum() / (8192 * 2048 * 2)
    assert stored == pytest.approx(found.figures[WORKGROUPS] / 4096, rel=0.001)


@pytest.mark.parametrize("source", [gemm(1024, 1024), CommandSequence([random_kernel(1)])])
def test_what_has_no_waves_to_omit_is_run_whole(source):
    found, whole = simulate(source, MACHINE, accuracy=0.01), simulate(source, MACHINE)
    assert found.extrapolation == {}
    for one, other in zip(found.kernels, whole.kernels, strict=True):
        assert (one.start_ps, one.end_ps, one.totals) == (other.start_ps, other.end_ps, other.totals)
        assert all((one.units[unit] == other.units[unit]).all() for unit in other.units)


def test_looking_at_counters_settles_nothing(monkeypatch):
    """To settle a channel issues the refreshes that it would make later: a run that is looked at would differ."""
    settled, counted = [], Gpu.counted
    monkeypatch.setattr(Gpu, "counted", lambda gpu: settled.append(gpu) or counted(gpu))
    assert simulate(gemm(8192, 2048), MACHINE, accuracy=0.01).extrapolation
    assert len(settled) == 2  # before and after


@pytest.mark.slow
def test_uncertain_waves_are_run_whole(long):
    """The same GEMM as `long`, asked for more than it can state."""
    found = simulate(gemm(8192, 2048), MACHINE, accuracy=0.001)
    assert found.extrapolation == {} and found.totals == long[1].totals


@pytest.mark.parametrize(("settings", "cut"), [((), True), (("msc.write_back=true",), False)])
def test_data_that_pass_a_memory_side_cache_once_need_not_fill_it(settings, cut):
    side = ("msc.present=true", "msc.bytes=67108864", *settings)
    preset, source = small_preset("l2.bytes=262144", *side), CommandSequence([make_kernel("gelu:rows=8192,cols=2048")])
    part = simulate(source, preset, accuracy=0.01)
    assert bool(part.extrapolation) == cut
    if cut:
        whole = simulate(source, preset).kernels[0].time_ps
        assert part.kernels[0].time_ps == pytest.approx(whole, rel=part.figures[TIME_ERROR])


def test_a_memory_side_cache_that_is_read_again_must_be_full():
    """One panel of B misses L2 in every wave and hits the memory-side cache."""
    preset = small_preset("l2.bytes=65536", "msc.present=true", "msc.bytes=67108864")
    assert simulate(gemm(8192, 2048), preset, accuracy=0.01).extrapolation == {}


@pytest.mark.parametrize(("l2_bytes", "cut"), [(262_144, True), (16_777_216, False)])
def test_an_l2_that_is_not_full_foretells_nothing(l2_bytes, cut):
    """Until stores evict stores, nothing is written to DRAM: 8 MB of C."""
    found = simulate(gemm(2048, 2048), small_preset(f"l2.bytes={l2_bytes}"), accuracy=inf)
    assert bool(found.extrapolation) == cut


@pytest.mark.slow
def test_operators_one_after_the_other():
    """Two kernels in part: traffic is that of the whole ones, the second starts after the whole first one."""
    kernels = [make_kernel(f"residual:rows={rows},cols=1024") for rows in (12288, 9000)]
    part = simulate(CommandSequence(kernels), MACHINE, accuracy=0.02)
    assert part.figures[OF_WORKGROUPS] == sum(kernel.info.workgroups for kernel in kernels)
    assert part.figures[WORKGROUPS] < 0.8 * part.figures[OF_WORKGROUPS]
    for found, rows in zip(part.kernels, (12288, 9000), strict=True):
        sectors = rows * 1024 * 2 // 32
        assert found.totals["hbm.write_columns"] == pytest.approx(sectors, rel=0.04)
        assert found.totals["hbm.read_columns"] == pytest.approx(2 * sectors, rel=0.04)
    first, second = part.kernels
    gap_ps = MACHINE.machine.dispatch.gap_ps
    assert first.end_ps + gap_ps <= second.start_ps <= first.end_ps + gap_ps + 0.1 * first.time_ps


def counters(*rows):
    return np.array(list(rows), [("requests_served", "i8"), ("misses_used_max", "i8")])


def cut(left, added_ps, error_ps=5.0):
    first, last = (Snapshot(n, {"l2": counters(*[row] * 3)}) for n, row in ((0, (0, 1)), (10, (1, 5))))
    return Cut(left, added_ps, first, last, error_ps, 0.02)


def test_counters_grow_by_whole_numbers_and_maxima_stay():
    whole = cut(5, 0).extended(counters(*[(2, 5)] * 3), "l2")
    assert whole["requests_served"].sum() == 3 * 2 + 2 and sorted(whole["requests_served"]) == [2, 3, 3]
    assert whole["misses_used_max"].tolist() == [5, 5, 5]


def test_later_kernels_start_later_by_what_was_omitted():
    results = [
        KernelResult("a", 100, 200, {}, {}),
        KernelResult("b", 250, 300, {}, {}),
        KernelResult("c", 310, 320, {}, {}),
    ]
    cuts = [cut(50, 1000), None, cut(10, 7)]
    parts = [Part(result, 10, 100, each) for result, each in zip(results, cuts, strict=True)]
    found = [extended(parts[: n + 1]) for n in range(3)]
    assert [(each.start_ps, each.end_ps) for each in found] == [(100, 1200), (1250, 1300), (1310, 1327)]
    time_ps = 1100 + 50 + 17
    assert figures_of(parts) == {
        WORKGROUPS: 240, OF_WORKGROUPS: 300, WAVES: 24.0, OF_WAVES: 30.0,
        TIME_ERROR: round(10 / time_ps, 4), TRAFFIC_ERROR: 0.02,
    }  # fmt: skip
    assert figures_of(parts[1:2]) == {}
