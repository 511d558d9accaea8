"""Our channel against Ramulator 2.1 and DRAMsim3: the committed table is fresh, and it says what we claim."""

import pytest

from validation.against.dram_reference import TABLE, reference_rows, table, verdict

ROW_HIT_TOLERANCE = 0.01


@pytest.fixture(scope="module")
def rows():
    return reference_rows()


@pytest.mark.slow
def test_the_committed_table_is_what_the_script_writes(rows):
    assert len(rows) == 14
    assert TABLE.read_text(encoding="utf-8") == table(rows)


def test_bandwidth_is_within_two_percent_or_inside_the_envelope(rows):
    assert {verdict(row, rows) for row in rows} == {"within 2 %", "inside the envelope"}


def test_row_hits_are_within_one_point(rows):
    for row in rows:
        assert abs(row.ours.row_hit_rate - row.row_hit_rate) <= ROW_HIT_TOLERANCE, row[:3]


@pytest.mark.parametrize(
    ("simulator", "config", "stream", "offset"),
    [
        ("DRAMsim3", "setG/BG", "h_rand_read_10pct", 2),
        ("DRAMsim3", "setG/BG", "a_seq_read", 2),
        ("Ramulator2.1", "setG/BG", "h_rand_read_10pct", 1),
        ("Ramulator2.1", "setG/BG", "a_seq_read", 3),
        ("Ramulator2.1", "setG/RO", "a_seq_read", 3),
        ("Ramulator2.1", "setG/BG", "f_bank_conflict_read", 17),
    ],
)
def test_latency_is_explained_to_the_clock(rows, simulator, config, stream, offset):
    """The offsets of the table's explanation, on the median and (to half a clock) on the average."""
    (row,) = [row for row in rows if row[:3] == (simulator, config, stream)]
    assert row.p50_latency_ns - row.ours.p50_latency_ns == offset
    assert row.avg_latency_ns - row.ours.avg_read_latency_ns == pytest.approx(offset, abs=0.5)


def test_unloaded_latency_from_the_timings(rows):
    """tRP + tRCD + tCCD_L (second column) + CL + burst."""
    (ours,) = {row.ours.p50_latency_ns for row in rows if row.stream == "h_rand_read_10pct"}
    assert ours == 14 + 14 + 2 + 14 + 1
