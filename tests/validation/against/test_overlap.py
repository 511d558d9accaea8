"""GEMM and collective fused on A100: what the file holds, the calibrated times, and the table against both."""

import re

import pytest

from validation.against import overlap
from validation.against.overlap import GATHER, SCATTER, TABLE, Ours, Row, calibrated, calibrates, errors, measured

ROWS = measured()


def fake(row):
    return Ours(row.gemm_us - 10.0, row.fused_us - (40.0 if row.pattern == SCATTER else 90.0))


def test_all_measured_rows_are_simulated_and_one_of_each_kind_calibrates():
    assert len(ROWS) == 58
    assert [row.pattern for row in ROWS if calibrates(row)] == [SCATTER, GATHER]


def test_the_rate_of_the_links_is_the_measured_slope():
    """(402,653,184 - 201,326,592) x 7/8 bytes in 1703.9 - 906.2 us of 300 GB/s."""
    assert overlap.link_efficiency() == pytest.approx(176_160_768 / 797.7e3 / 300, abs=0.001)


def test_all_rows_that_do_not_calibrate_are_predicted():
    times = calibrated({row: fake(row) for row in ROWS})
    assert all(tuple(ours) == pytest.approx((row.gemm_us, row.fused_us)) for row, ours in times.items())
    wrong = errors({row: Ours(ours.gemm_us, 1.1 * ours.fused_us) for row, ours in times.items()})
    assert len(wrong) == len(ROWS) - 2 and list(wrong.values()) == pytest.approx([0.1] * len(wrong))


def test_apart_and_ideal_are_of_gemm_and_collective():
    row = Row(SCATTER, "", 1, 1, 1, 1410, 60.0, 40.0, 80.0)
    assert overlap.speedup(row, 60.0, 80.0) == (1.25, pytest.approx(100 / 60))


@pytest.mark.parametrize("pattern", [SCATTER, GATHER])
def test_chunks_are_equal_and_those_of_a_gather_are_whole_rows(pattern):
    row = next(row for row in ROWS if row.pattern == pattern and row.m == 2048)
    source, chunks = overlap.source_of(row, overlap.machine(row.clock_MHz))
    assert len({b - a for a, b in zip(chunks.edges, chunks.edges[1:], strict=False)}) == 1
    if pattern == GATHER:
        rows = source.output_tiles()["row"]
        assert all(len(set(rows[list(chunks.span(0, local))])) * 8 == source.tiles_m for local in range(8))


def test_the_committed_table_has_every_measured_row():
    text = TABLE.read_text(encoding="utf-8")
    shown = re.findall(r"^\| (\S+) (\S+) \| (\d+) \|", text, re.M)
    assert shown == [(row.pattern, row.layer.removeprefix("GPT-3 "), str(row.m)) for row in ROWS]
    assert f"link.efficiency {overlap.link_efficiency()}" in text
