"""Extrapolated GEMMs: within what they promise, marked, and whole where the criterion refuses."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from sim import results
from sim.host.gpu import Gpu
from sim.occupancy import occupancy
from sim.results import write_results
from sim.run.extrapolation import FROM, OF, TIME_BOUND, TRAFFIC_BOUND, Cut, Promise, Snapshot, extended, simulate_gemm
from sim.run.one_gpu import simulate
from tests.support.programs import random_kernel, small_preset
from tracer.gemm.source import GemmProblem, GemmSource, TileOrder
from tracer.sequence import CommandSequence
from tracer.workloads import DEFAULT_KERNEL
from traces.errors import UserError

KERNEL = replace(DEFAULT_KERNEL, tile_m=64, tile_n=64, warps_m=2, warps_n=2)
MACHINE = small_preset("l2.bytes=262144")
ANY = Promise(inf, inf)


def gemm(m, n, k=32, kernel=KERNEL):
    return CommandSequence([GemmSource(GemmProblem(m, n, k), kernel)])


@pytest.fixture(scope="module")
def long():
    """(extrapolated, whole) of a GEMM of many waves."""
    source = gemm(8192, 2048)
    return simulate_gemm(source, MACHINE), simulate(source, MACHINE)


@pytest.mark.slow
def test_time_and_traffic_keep_the_promise(long):
    cut, whole = long
    assert cut.time_ps == pytest.approx(whole.time_ps, rel=0.01)
    for counter in ("hbm.read_columns", "hbm.write_columns"):
        assert cut.totals[counter] == pytest.approx(whole.totals[counter], rel=0.05)
    for counter in ("cu.tensor_macs", "lsu.line_requests", "l2.read_sectors", "cu.workgroups"):
        assert cut.totals[counter] == pytest.approx(whole.totals[counter], rel=0.01)


def test_it_is_marked(long):
    cut, whole = long
    assert whole.extrapolation == {} and "extrapolate" not in whole.options
    assert cut.extrapolation == cut.figures and cut.options["extrapolate"]
    assert cut.figures[OF] == 4096 and cut.figures[FROM] <= 0.75 * 4096
    cu, info = MACHINE.machine.cu, GemmSource(GemmProblem(8192, 2048, 32), KERNEL).info
    wave = cu.count * occupancy(cu, KERNEL.threads, info.registers, info.shared_bytes).workgroups
    assert (4096 - cut.figures[FROM]) % wave == 0  # the last wave is as incomplete as that of the whole
    assert 0 < cut.figures[TIME_BOUND] <= 0.0075 and 0 < cut.figures[TRAFFIC_BOUND] <= 0.05


def test_marks_stay_in_the_archive_and_bytes_are_equal(long, tmp_path):
    for name, run in (("a.h5", long[0]), ("b.h5", simulate_gemm(gemm(8192, 2048), MACHINE))):
        write_results(tmp_path / name, run)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert results.open(tmp_path / "a.h5").run().extrapolation == long[0].extrapolation


def test_the_series_covers_what_was_simulated(long):
    found = simulate_gemm(gemm(8192, 2048), MACHINE, interval_ps=1_000_000)
    assert found.time_ps == long[0].time_ps and found.totals == long[0].totals
    stored = found.series["dram_compute_write_bytes"].sum() / (8192 * 2048 * 2)
    assert stored == pytest.approx(found.figures[FROM] / 4096, rel=0.001)


def test_few_waves_are_run_whole():
    source = gemm(1024, 1024)
    found, whole = simulate_gemm(source, MACHINE), simulate(source, MACHINE)
    assert found.extrapolation == {}
    for one, other in zip(found.kernels, whole.kernels, strict=True):
        assert (one.start_ps, one.end_ps, one.totals) == (other.start_ps, other.end_ps, other.totals)
        assert all((one.units[unit] == other.units[unit]).all() for unit in other.units)


def test_looking_at_counters_settles_nothing(monkeypatch):
    """To settle a channel issues the refreshes that it would make later: a run that is looked at would differ."""
    settled, counted = [], Gpu.counted
    monkeypatch.setattr(Gpu, "counted", lambda gpu: settled.append(gpu) or counted(gpu))
    assert simulate_gemm(gemm(8192, 2048), MACHINE).extrapolation
    assert len(settled) == 1  # at the end


@pytest.mark.slow
def test_uncertain_waves_are_run_whole():
    """The same GEMM as `long`, asked for more than it can promise."""
    assert simulate_gemm(gemm(8192, 2048), MACHINE, promise=Promise(time=0.001)).extrapolation == {}
    assert simulate_gemm(gemm(8192, 2048), MACHINE, promise=Promise(traffic=0.001)).extrapolation == {}


@pytest.mark.parametrize(("l2_bytes", "cut"), [(262_144, True), (16_777_216, False)])
def test_an_l2_that_is_not_full_foretells_nothing(l2_bytes, cut):
    """Until stores evict stores, nothing is written to DRAM: 8 MB of C."""
    found = simulate_gemm(gemm(2048, 2048), small_preset(f"l2.bytes={l2_bytes}"), promise=ANY)
    assert bool(found.extrapolation) == cut


@pytest.mark.parametrize(("m", "n", "cut"), [(128, 65536, False), (65536, 128, True)])
def test_a_quarter_of_the_waves_covers_a_row_of_tiles(m, n, cut):
    """The second row of 1024 tiles ends before four rows have passed; of rows of two tiles there are plenty."""
    assert bool(simulate_gemm(gemm(m, n), MACHINE, promise=ANY).extrapolation) == cut


@pytest.mark.parametrize(
    ("trace", "text"),
    [
        (CommandSequence([random_kernel(1)]), "found a trace"),
        (CommandSequence([GemmSource(GemmProblem(64, 64, 32))] * 2), "found a trace"),
        (gemm(256, 256, kernel=replace(KERNEL, persistent=4)), "persistent workgroups"),
        (gemm(256, 256, 128, kernel=replace(KERNEL, split_k=2)), "split-K"),
        (gemm(256, 256, kernel=replace(KERNEL, order=TileOrder.GROUPED)), "order grouped"),
    ],
)
def test_only_plain_gemms(trace, text):
    with pytest.raises(UserError, match=text):
        simulate_gemm(trace, MACHINE)


def test_counters_grow_by_whole_numbers_and_maxima_stay():
    fields = [("requests_served", "i8"), ("misses_used_max", "i8")]
    first, last, end = (np.array(rows, fields) for rows in ([(0, 1)] * 3, [(1, 5)] * 3, [(2, 5)] * 3))
    cut = Cut(20, 5, 0, Snapshot(0, {"l2": first}), Snapshot(10, {"l2": last}), 0.0, 0.0)
    whole = extended(end, "l2", cut)
    assert whole["requests_served"].sum() == 3 * 2 + 2 and sorted(whole["requests_served"]) == [2, 3, 3]
    assert whole["misses_used_max"].tolist() == [5, 5, 5]
