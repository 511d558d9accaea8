"""The table of one GPU for all against every GPU: what it runs, what it compares, and that a difference shows."""

from dataclasses import replace

import pytest

from sim.run.many_gpus import fused_cluster
from tests.support.t3_cases import T3Case
from tracer.workloads import aligned_problem
from traces.command.document import table_line
from validation.against.symmetry import (
    SEEDED,
    TABLE,
    Measurement,
    agreement_rows,
    cells,
    mean_cells,
    mean_rows,
    measure,
    problem_of,
)

D = 256 * 512 * 2
EVERY = Measurement((90_000_000, 110_000_000), (64, 96), ((7, 6, 7, 7), (7, 6, 7, 7)), True)
ONES = (
    Measurement((100_000_000,), (80,), ((7, 6, 7, 7),), True),
    Measurement((104_000_000,), (80,), ((7, 6, 7, 7),), True),
)


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_traffic_is_that_of_equal_chunks_however_it_is_simulated(gpus):
    problem = aligned_problem(256, 512, 32)  # eight tiles
    every, one = measure(problem, gpus), measure(problem, gpus, stands_for_all=gpus - 1)
    chunk = D // gpus
    moved = ((gpus - 1) * chunk, (gpus - 2) * chunk, (gpus - 1) * chunk, (gpus - 1) * chunk)
    assert every.traffic == (moved,) * gpus and one.traffic == (moved,)
    assert len(every.ends_ps) == gpus and len(one.ends_ps) == 1
    assert every.exactly_once and one.exactly_once


def test_overrides_reach_the_machine():
    problem = aligned_problem(256, 512, 32)
    late, soon = (
        measure(problem, 2, stands_for_all=0, overrides=(f"dispatch.launch_ps={delay}",)) for delay in (7_000_000, 0)
    )
    assert late.ends_ps[0] > soon.ends_ps[0] + 6_000_000


def test_a_row():
    found = cells("shape", 2, EVERY, ONES)
    assert found == [
        *("shape", "2", "90.0", "100.0", "110.0", "100.0", "102.0", "100.0", "104.0"),
        *("+10.00", "-1.96", "yes", "+0.00"),
    ]


@pytest.mark.slow
def test_a_committed_row_is_what_the_simulator_says():
    (row,) = agreement_rows([("4096x4096x512", 2)])
    assert table_line(row) in TABLE.read_text(encoding="utf-8").splitlines()


def test_a_row_of_means():
    """Every GPU: 100 and 106 us, mean 103 +/- 3. One for all: 100 and 104, 102 +/- 2; so +0.98 +/- 3.55 %."""
    later = replace(EVERY, ends_ps=(92_000_000, 120_000_000))
    assert mean_cells("shape", 2, (EVERY, later), ONES) == [
        *("shape", "2", "2", "103.0", "3.0", "115.0", "2", "102.0", "2.0", "100.0", "104.0", "+0.98", "3.55"),
    ]


def test_means_take_each_gpu_with_each_seed():
    (row,) = mean_rows([("256x512x32", 2, 3)])
    assert row[2] == "3" and row[6] == "6"
    assert float(row[9]) <= float(row[7]) <= float(row[10])


@pytest.mark.parametrize(
    "every",
    [
        replace(EVERY, traffic=((7, 6, 7, 7), (7, 6, 7, 8))),
        replace(EVERY, traffic=((7, 6, 8, 7), (7, 6, 8, 7))),
        replace(EVERY, exactly_once=False),
    ],
)
def test_a_difference_of_traffic_shows(every):
    assert cells("shape", 2, every, ONES)[-2] == "NO"


def test_any_gpu_can_stand_for_all():
    """Where all see the same memory it does not matter which."""
    case = T3Case(512, 512, 128, 4, settings=("hbm.channels=1", "l2.banks=1", "link.GB_per_s=10.0"))
    ends = set()
    for gpu in range(4):
        cluster, launches = fused_cluster(case.machine, case.source, case.chunks, case.arbiter, stands_for_all=gpu)
        cluster.run(launches)
        assert [plan.gpu for plan in cluster.plans] == [gpu]
        ends.add(int(cluster.gpus[0].node.cus["last_exit_ps"].max()))
    assert len(ends) == 1


def test_committed_means_agree_within_one_percent():
    lines = TABLE.read_text(encoding="utf-8").partition("## Means")[2].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")][2:]
    assert [(row[0], int(row[1]), int(row[2])) for row in rows] == [*SEEDED]
    for *_, mean, error in rows:
        assert abs(float(mean)) <= 1.0 and 0 < float(error) < 0.9


def test_names_of_shapes():
    assert problem_of("512x1024x64") == aligned_problem(512, 1024, 64)
    assert problem_of("t-nlg/fc2/tp8").n == 4256
