"""The probe of how far workgroups run apart: its count of K-steps, and that it sees a delayed start."""

import numpy as np
import pytest

from sim.host.gpu import Gpu
from tests.support.programs import small_preset
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from validation.against.drift import DriftProbe, _steps_before

SOURCE = GemmSource(GemmProblem(256, 128, 512), GemmKernel(64, 64, 32, 2, 2, persistent=4, pipeline_depth=1))
TILES_EACH, STEPS_PER_TILE = 2, 16


def test_every_warp_counts_the_steps_of_all_its_tiles():
    for workgroup in SOURCE.workgroups():
        steps = _steps_before(SOURCE, workgroup)
        assert steps[0] == 0 and steps[-1] == TILES_EACH * STEPS_PER_TILE
        per_warp = np.diff([*steps[workgroup.first_event[:-1]], 4 * steps[-1]])
        assert (per_warp == TILES_EACH * STEPS_PER_TILE).all()


def spread_of(*overrides):
    probe = DriftProbe(SOURCE, 20_000)
    Gpu(small_preset(*overrides).machine, line_trace=probe.observe).run_kernel(SOURCE, 0, None)
    return probe.spread()


def test_workgroups_that_start_together_stay_together():
    spread = spread_of("dispatch.workgroup_ps=0")
    assert spread.samples > 100
    assert 0 <= spread.mean <= spread.largest <= 3


@pytest.mark.slow
def test_a_late_start_shows():
    late = spread_of("dispatch.workgroup_ps=2000000")  # the last of four starts 6 us late
    assert late.largest > 4
    assert late.mean > spread_of("dispatch.workgroup_ps=0").mean
    assert late.deviation == pytest.approx(late.mean / 2, rel=0.5)
