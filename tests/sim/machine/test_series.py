"""The time series: DRAM bytes count when they cross the bus, so no interval exceeds the peak, and none is lost."""

from functools import cache

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.hw.request import STREAMS, Stream
from sim.presets import load_preset, presets
from sim.run.one_gpu import simulate
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
