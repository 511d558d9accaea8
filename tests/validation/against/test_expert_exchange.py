"""Dispatch and combine of experts: bytes, published times, and the committed table against both."""

from math import comb

import pytest

from validation.against.expert_exchange import CASES, LOW, TABLE, V1, Case, cells, published, table

CASE = {(case.mode, case.operation): case for case in CASES}


def test_all_rows_within_a_node_are_compared():
    within = [key for key in published() if key[1] in ("8", "8 (intranode)")]
    assert sorted((case.mode, case.gpus, case.operation) for case in CASES) == sorted(within)


def test_bytes_are_those_that_the_published_bandwidth_counts():
    """4096 tokens, 8 of 256 experts, 32 of them on each of 8 GPUs; bf16, or fp8 with a scale of 4 bytes for 128."""
    rows = 4096 * 8 * (1 - comb(224, 8) / comb(256, 8))
    assert CASE[V1, "combine BF16"].data_bytes == pytest.approx(rows * 7168 * 2, rel=1e-4)
    assert CASE[V1, "dispatch FP8"].data_bytes == pytest.approx(rows * 7168 * (1 + 4 / 128), rel=1e-4)


@pytest.mark.parametrize(("operation", "GBps"), [("dispatch FP8", 98), ("combine BF16", 127)])
def test_low_latency_rows_have_a_latency_and_a_bandwidth(operation, GBps):
    """The bandwidth of the same row in docs/legacy.md of DeepEP."""
    case = CASE[LOW, operation]
    assert case.data_bytes / case.published_us / 1e3 == pytest.approx(GBps, rel=0.02)


def test_the_committed_table_has_these_cases():
    text = TABLE.read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if " | " in line][1:]
    ours_us = {case: float(row[5].replace(",", "")) for case, row in zip(CASES, rows, strict=True)}
    assert [row[:5] for row in rows] == [cells(case, us)[:5] for case, us in ours_us.items()]
    errors = [abs(us / case.published_us - 1) for case, us in ours_us.items()]
    assert f"Mean absolute error: {100 * sum(errors) / 10:.0f} % of 10 rows" in text
    said = f"{100 * sum(errors) / 10:.0f} % in the mean of 10 published values of DeepEP and NCCL EP"
    assert said in (TABLE.parents[2] / "docs" / "trust.md").read_text(encoding="utf-8")
    exact = table({case: case.published_us for case in CASES})
    assert exact.count("| +0 % |") == 10 and "Mean absolute error: 0 % of 10 rows" in exact


@pytest.mark.slow
def test_a_row_of_the_table_again():
    case: Case = CASE["NCCL EP LL BF16", "dispatch"]
    assert f"| {case.ours_us(None):,.0f} |" in next(
        line for line in TABLE.read_text(encoding="utf-8").splitlines() if "NCCL EP" in line and "dispatch" in line
    )
