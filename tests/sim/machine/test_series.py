"""The time series: DRAM bytes count when they cross the bus, so no interval exceeds the peak, and none is lost."""

from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.hw.request import STREAMS, Stream
from sim.machine.stalls import OTHER_PC, STALL_ROWS, Stall, add_sample, make_stalls
from sim.presets import load_preset, presets
from sim.run.one_gpu import simulate
from tracer.gemm.plan import Site
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence
from traces.units import PS_PER_NS, PS_PER_S

KERNELS = {
    "read": "stream:flow=read,buffer_bytes=4194304",
    "copy": "stream:flow=copy,buffer_bytes=1048576",
}
DRAM = [f"dram_{stream.name.lower()}_bytes" for stream in Stream]


@cache
def preset_of(name):
    return load_preset(name)


@settings(max_examples=16, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(list(presets())),
    kernel=st.sampled_from(list(KERNELS)),
    interval_ns=st.integers(1, 2000),
)
@example(name="v100", kernel="read", interval_ns=50)
@example(name="v100", kernel="copy", interval_ns=7)
@example(name="h200", kernel="read", interval_ns=1)
def test_no_interval_exceeds_the_peak_of_dram(name, kernel, interval_ns):
    preset, interval_ps = preset_of(name), interval_ns * PS_PER_NS
    source = CommandSequence([make_kernel(KERNELS[kernel], lanes=preset.machine.cu.lanes_per_warp)])
    result = simulate(source, preset, interval_ps=interval_ps)
    moved = sum(result.series[column] for column in DRAM)
    peak_bytes = preset.peaks().dram_bytes_per_s * interval_ps / PS_PER_S
    rounding_bytes = STREAMS * preset.machine.hbm.channels
    assert moved.max() <= peak_bytes * 1.001 + rounding_bytes  # the clock of a channel has a period of whole ps
    assert moved.min() >= 0
    assert interval_ns > 100 or moved.max() > peak_bytes / 3  # longer intervals also have idle time in them
    assert [result.series[column].sum() for column in DRAM] == list(result.dram_bytes)


def simulated(text, interval_ps, name="v100"):
    preset = preset_of(name)
    source = CommandSequence([make_kernel(text, lanes=preset.machine.cu.lanes_per_warp)])
    return simulate(source, preset, interval_ps=interval_ps)


def test_channels_carry_the_bytes_of_the_streams():
    result = simulated("gemm:m=256,n=256,k=64", 50_000)
    assert result.channel_bytes.shape == (len(result.times_ps()), result.preset.machine.hbm.channels)
    assert (result.channel_bytes.sum(axis=1) == sum(result.series[column] for column in DRAM)).all()
    assert (result.channel_bytes.sum(axis=0) > 0).all()


def test_counts_and_levels_agree_with_the_counters_of_the_run():
    """By Little's law the mean level of the DRAM queues is the sum of the times in them. All 32 workgroups fit."""
    result = simulated("gemm:m=512,n=1024,k=512", 1000)
    total, series = result.totals, result.series
    for name in ("l2_read_sectors", "l2_read_hit_sectors"):
        assert series[name].sum() == total[name.replace("l2_", "l2.")]
    assert 0 < total["l2.read_hit_sectors"] < total["l2.read_sectors"]
    assert series["queue_columns"].sum() * 1000 == pytest.approx(total["hbm.occupancy"], rel=0.001)
    assert series["resident_workgroups"].max() == total["cu.workgroups"] == 32


def test_samples_of_warps_are_the_levels_at_the_ends_of_intervals():
    result = simulated("gemm:m=256,n=256,k=64", 50_000)
    for kind in Stall:
        own = result.stalls[result.stalls["kind"] == kind]["samples"].sum()
        assert own == result.series[f"warps_at_{kind.name.lower()}"].sum()
    barriers = result.stalls[result.stalls["kind"] == Stall.BARRIER]
    assert {Site(pc // 16) for pc in barriers["pc"]} <= {Site.STAGE_BARRIER, Site.REUSE_BARRIER}
    assert barriers["samples"].sum() > 0


def test_a_pointer_chase_waits_for_its_load():
    result = simulated("chase:buffer_bytes=65536,loads=64,stride_bytes=128", 200_000)
    by_kind = {kind: result.series[f"warps_at_{kind.name.lower()}"] for kind in Stall}
    assert by_kind[Stall.DATA].max() == 1 and by_kind[Stall.DATA].sum() > 40  # of about 60 intervals with a warp
    assert all(by_kind[kind].sum() <= 0.05 * by_kind[Stall.DATA].sum() for kind in Stall if kind != Stall.DATA)


def test_no_sample_is_lost_when_the_table_is_full():
    table, pcs = make_stalls(), range(0, 64 * STALL_ROWS, 32)
    for pc in pcs:
        add_sample(table, 0, pc, int(Stall.LSU))
    assert table["samples"].sum() == len(pcs)
    assert table[Stall.LSU]["pc"] == OTHER_PC and table[Stall.LSU]["samples"] >= len(pcs) - STALL_ROWS
