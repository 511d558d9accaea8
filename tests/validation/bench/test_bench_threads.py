"""The benchmark of threads on small sizes: each curve has a row per number of threads, and results must be equal."""

from validation.bench.threads import default_counts, report


def test_the_report_has_a_row_for_each_number_of_threads():
    text = report("t-nlg/fc2/tp8", [1, 2], turns=1, small=True)
    assert text.count("| 1 |") == text.count("| 2 |") == 3
    assert default_counts()[0] == 1
