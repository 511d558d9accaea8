"""The benchmark of threads on small sizes: each curve has a row per number of threads, and results must be equal."""

from validation.bench.engine_profile import BETWEEN
from validation.bench.threads import bound, default_counts, report


def test_the_report_has_a_row_for_each_number_of_threads():
    text = report("t-nlg/fc2/tp8", [1, 2], turns=1, small=True)
    assert text.count("| 1 |") == text.count("| 2 |") == 3 and "with 2 threads" in text
    assert default_counts()[0] == 1


def test_jobs_of_one_thread_bound_the_speed():
    phase_us = {"CUs, load/store units and L1": 40.0, "NoC, requests": 20.0, "HBM channels": 30.0, BETWEEN: 10.0}
    assert bound(phase_us, 1) == 1
    assert bound(phase_us, 2) == 100 / (20 + 25 + 10)
    assert bound(phase_us, 4) == 100 / (10 + 20 + 10)
