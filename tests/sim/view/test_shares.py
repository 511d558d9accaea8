"""Shares of the peaks and what bounds a run: re-derived from counters of runs that one unit bounds."""

import pytest

from sim.presets import load_preset
from sim.run.kernel_figures import busy_shares
from sim.run.one_gpu import simulate
from sim.view.shares import bounded_by, shares, tera_flop_per_s
from tests.support.result_samples import sample_results
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence


def run_of(text, *changes):
    return simulate(CommandSequence([make_kernel(text)]), load_preset("v100", changes))


def test_a_stream_is_bound_by_dram():
    result = run_of("stream:flow=read,buffer_bytes=33554432")
    time_s = result.kernels[0].time_ps * 1e-12
    expected = result.totals["hbm.read_columns"] * 32 / time_s / result.preset.peaks().dram_bytes_per_s
    assert shares(result)["DRAM"] == pytest.approx(expected, rel=1e-6) and expected > 0.8
    assert bounded_by(result) == "DRAM" and tera_flop_per_s(result) is None


def test_reads_fill_one_direction_of_l2_and_every_verb_says_so():
    result = run_of("stream:flow=read,buffer_bytes=1048576,passes=4")
    time_ps, total = result.kernels[0].time_ps, result.totals
    read = 32 * total["l2.read_sectors"] / time_ps * 1e12 / result.preset.peaks().l2_bytes_per_s
    assert read <= shares(result)["L2"] < 1.4 * read  # headers come on top
    assert busy_shares(total, result.preset, time_ps)["l2"] == pytest.approx(shares(result)["L2"])


def test_a_chase_has_too_few_workgroups():
    assert bounded_by(run_of("chase:buffer_bytes=65536,loads=50")) == "too few workgroups (1)"


@pytest.mark.slow
def test_a_gemm_is_bound_by_the_pipes_if_the_memory_is_fast_and_by_latency_if_not():
    text = "gemm:m=1280,n=1024,k=512,tile=128x128x32"
    slow = run_of(text)
    assert bounded_by(slow).startswith("latency (")
    macs = 1280 * 1024 * 512
    assert tera_flop_per_s(slow) == pytest.approx(2 * macs / slow.kernels[0].time_ps, rel=1e-9)
    fewer = run_of(text, "cu.tensor_macs_per_clk=32")
    assert bounded_by(fewer) == "matrix pipes"
    assert shares(fewer)["matrix pipes"] == pytest.approx(
        tera_flop_per_s(fewer) * 1e12 / fewer.preset.peaks().tensor_flop_per_s, rel=0.01
    )


def test_a_flush_after_the_kernel_is_not_in_its_shares():
    run = sample_results()
    for kernel in run.kernels:
        kernel.totals["msc.write_sectors"] = 0
    before = shares(run)["DRAM"]
    for kernel in run.kernels:
        kernel.totals["l2.flush_sectors"] += 100
        kernel.totals["hbm.write_columns"] += 100
    del run.totals
    assert shares(run)["DRAM"] == before


def test_the_link_of_several_gpus():
    run = sample_results()
    run.figures = {"link_busy_ps": 10_000 * 9 // 10}
    for kernel in run.kernels:
        kernel.totals = dict.fromkeys(kernel.totals, 0)
    assert shares(run)["link"] == pytest.approx(0.9) and bounded_by(run) == "link"
    run.kernels = []
    assert shares(run) == {} and bounded_by(run) == ""


def test_a_memory_side_cache_that_writes_back_takes_the_flush():
    """The flush of L2 does not reach DRAM, so nothing is subtracted from what did."""
    sizes = ("msc.present=true", "msc.bytes=67108864", "msc.write_back=true")
    kernel = make_kernel("gemm:m=512,n=512,k=256")
    run = simulate(CommandSequence([kernel]), load_preset("t3_2024", sizes))
    assert run.headline()["dram_write_sectors"] == run.totals["hbm.write_columns"] == 0
    time_s = run.kernels[0].time_ps * 1e-12
    read = run.totals["hbm.read_columns"] * 32 / time_s / run.preset.peaks().dram_bytes_per_s
    assert shares(run)["DRAM"] == pytest.approx(read, rel=1e-6) and read > 0.05
    assert busy_shares(run.totals, run.preset, run.kernels[0].time_ps)["dram"] == pytest.approx(read, rel=1e-6)
