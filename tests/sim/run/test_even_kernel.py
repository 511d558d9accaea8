"""Extrapolated operators against whole ones: traffic to the byte, time within 7 % on a machine of few CUs.

(On a100_80g: +1.7 % for residual:rows=16384,cols=8192 and -0.2 % for softmax:rows=32768,cols=8192.)
"""

import pytest

from sim.presets import load_preset
from sim.run.even_kernel import first_length, is_even, simulate_even
from sim.run.one_gpu import simulate
from tracer.kernels import make_kernels
from tracer.sequence import CommandSequence

SMALL = ("l2.bytes=1572864", "cu.count=8")
"""A machine whose L2 is full soon, so that the whole kernel is short too."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "residual:rows=12288,cols=1024",
        "rmsnorm:rows=16384,cols=1024",
        "softmax:rows=1536,cols=16384",
        "adam:parameters=3000000",
        "moe_permute:tokens=4096,experts=8,top_k=2,hidden=1024",
    ],
)
def test_an_extrapolated_operator_is_the_whole_one(text):
    preset, source = load_preset("v100", SMALL), CommandSequence(make_kernels(text))
    assert is_even(source)
    whole, part = simulate(source, preset), simulate_even(source, preset)
    assert part.extrapolation["extrapolated_from_workgroups"] < whole.kernels[0].totals["cu.workgroups"]
    assert part.time_ps == pytest.approx(whole.time_ps, rel=0.07)
    for counter in ("cu.workgroups", "lsu.line_requests", "hbm.write_columns"):
        assert part.totals[counter] == whole.totals[counter]
    assert part.totals["hbm.read_columns"] == pytest.approx(whole.totals["hbm.read_columns"], rel=0.02)


@pytest.mark.slow
def test_a_short_operator_is_simulated_whole():
    preset, source = load_preset("v100", SMALL), CommandSequence(make_kernels("residual:rows=64,cols=1024"))
    whole, part = simulate(source, preset), simulate_even(source, preset)
    assert not part.extrapolation and part.time_ps == whole.time_ps and part.totals == whole.totals


def test_the_first_run_fills_l2_and_the_machine():
    preset = load_preset("v100", SMALL)
    (kernel,) = make_kernels("residual:rows=12288,cols=1024")
    assert first_length(kernel, preset) >= 1572864 * kernel.info.workgroups // (128 * kernel.line_requests)
    assert first_length(kernel, preset) >= 2 * 8


def test_a_gemm_is_not_even():
    assert not is_even(CommandSequence(make_kernels("gemm:m=64,n=64,k=32")))
