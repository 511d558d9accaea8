"""Kernels of arithmetic on shared CUs, one workgroup on a CU: every start is that of a naive twin."""

import pytest

from sim.host.gpu import Gpu
from sim.host.window import Launch
from sim.hw.spans import SpanKind
from tests.support.any_windows import windows
from tests.support.programs import compute, kernel, small_preset
from tests.support.shared_cus_twin import Job, run

CUS, INTERVAL_PS = 4, 1000
GEMM, CHANNELS = Job(14, 9), Job(11, 2, 3_000_000, keeps=2)
"""Times in compute instructions here; a test measures them in ps."""
CASES = {
    "a collective second": (GEMM, CHANNELS),
    "a collective first": (CHANNELS._replace(start_ps=0), GEMM._replace(start_ps=100_000)),
    "at once": (GEMM, CHANNELS._replace(start_ps=0)),
    "as many channels as CUs": (GEMM, CHANNELS._replace(keeps=4)),
    "more channels than work": (GEMM, CHANNELS._replace(workgroups=2, keeps=3)),
    "three kernels": (GEMM, Job(6, 3, 1_000_000), CHANNELS),
    "two collectives": (CHANNELS, GEMM, CHANNELS._replace(start_ps=1_000_000, workgroups=5)),
}


def program(job):
    return kernel([[[compute(400)] * job.time_ps]] * job.workgroups)


def machine(rule):
    return small_preset("cu.workgroups=1", f"dispatch.kernels={rule}", f"dispatch.workgroup_ps={INTERVAL_PS}").machine


def spans(gpu, queue):
    """(start, CU, end) of the workgroups of a queue, in the order of their starts."""
    found = gpu.spans()
    own = found[(found["kind"] == SpanKind.WORKGROUP) & (found["queue"] == queue)]
    return sorted(zip(own["start_ps"].tolist(), own["unit"].tolist(), own["end_ps"].tolist(), strict=True))


def simulated(jobs, rule):
    gpu = Gpu(machine(rule), interval_ps=10_000_000)
    launches = [Launch(program(job), queue=k, start_ps=job.start_ps, keeps=job.keeps) for k, job in enumerate(jobs)]
    gpu.run_kernels(launches, None)
    return gpu


def timed(job):
    """The job with the time of a workgroup that has a CU for itself."""
    (first, *_) = spans(simulated([job._replace(start_ps=0, keeps=0)], "in_order"), 0)
    return job._replace(time_ps=first[2] - first[0])


@pytest.mark.parametrize("rule", ["in_order", "in_turn"])
@pytest.mark.parametrize("name", CASES)
def test_every_workgroup_starts_when_and_where_the_twin_starts_it(name, rule):
    jobs = CASES[name]
    gpu = simulated(jobs, rule)
    lookahead_ps = int(gpu.node.engine[0]["lookahead_ps"])
    starts, taken = run([timed(job) for job in jobs], CUS, rule == "in_turn", lookahead_ps, INTERVAL_PS)
    for k, job in enumerate(jobs):
        assert [one[:2] for one in spans(gpu, k)] == sorted(starts[k]), k
        if len(taken[k]) == job.keeps > 0:
            assert gpu.node.dispatch[k]["kept_ps"] == max(t for t, _ in taken[k])


@pytest.mark.parametrize(("rule", "ended"), [("in_turn", 1), ("in_order", 11)])
def test_a_collective_that_comes_second_gets_a_cu_when_a_tile_ends(rule, ended):
    """In turn after the first of 14 tiles on 4 CUs; in order after the 11th: its CU has no further tile."""
    gpu = simulated((GEMM, CHANNELS._replace(keeps=1)), rule)
    ends_ps = sorted(end_ps for _, _, end_ps in spans(gpu, 0))
    assert gpu.node.dispatch[1]["kept_ps"] == ends_ps[ended - 1] + gpu.node.engine[0]["lookahead_ps"]
    assert len({c for _, c, _ in spans(gpu, 1)}) == 1


@pytest.mark.parametrize("rule", ["in_order", "in_turn"])
def test_windows_and_calls_change_nothing(rule):
    jobs = CASES["three kernels"]
    expected = [spans(simulated(jobs, rule), k) for k in range(len(jobs))]
    for way in ({"length": 0.0}, {"seed": 3}, {"calls": 0.3}):
        with windows(**way):
            gpu = simulated(jobs, rule)
            assert [spans(gpu, k) for k in range(len(jobs))] == expected, way
