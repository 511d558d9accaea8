"""The benchmark of machines on small kernels: a row for each preset and kernel, ratios to the first preset."""

import pytest

from validation.bench.machines import report, rows

KERNEL = "gemm:m=128,n=128,k=64"


@pytest.mark.slow
def test_each_preset_has_a_row():
    found = rows(("v100", "mi210"), (KERNEL,), turns=1)
    assert [row["preset"] for row in found] == ["v100", "mi210"]
    assert all(row["line_requests"] > 0 and row["requests_per_cpu_s"] > 0 for row in found)


def test_speed_is_the_share_of_the_first_preset():
    row = {"kernel": KERNEL, "line_requests": 10, "requests_per_cpu_s": 1e6, "peak_rss_bytes": 3e8}
    text = report([row | {"preset": "v100", "yardsticks": 8.0}, row | {"preset": "h200", "yardsticks": 16.0}])
    assert "| v100 | gemm:m=128,n=128,k=64 | 10 | 1,000,000 | 8.0 | 1.00 | 300 MB |" in text
    assert "| 16.0 | 0.50 |" in text
