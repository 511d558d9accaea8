"""The table of real traces is what the script finds, where T3SIM_DATA is set: counts and what timing cannot change."""

import pytest

from validation.against.real_traces import TABLE, Row, cell, folders, real_rows, table

EXACT = (*Row._fields[: Row._fields.index("archive_bytes")], "l1_read", "l1_write")
"""Columns that depend neither on timing nor on the machine that ran the script."""

pytestmark = pytest.mark.skipif(not folders(), reason="T3SIM_DATA is not set: no real traces to read")


@pytest.fixture(scope="module")
def rows():
    return real_rows()


def cells_of(text):
    """Trace -> column -> cell of all tables in Markdown."""
    found, columns = {}, []
    for line in text.splitlines():
        cells = [part.strip() for part in line.strip("|").split("|")]
        if line.startswith("| trace |"):
            columns = cells
        elif line.startswith("| "):
            found.setdefault(cells[0], {}).update(zip(columns, cells, strict=True))
    return found


@pytest.mark.slow
def test_the_committed_table_is_what_the_script_finds(rows):
    committed = cells_of(TABLE.read_text(encoding="utf-8"))
    assert set(committed) >= {row.trace for row in rows}
    for row in rows:
        assert set(committed[row.trace]) == set(Row._fields)
        assert [committed[row.trace][name] for name in EXACT] == [cell(getattr(row, name)) for name in EXACT]
    assert cells_of(table(rows)).keys() == {row.trace for row in rows}


def test_every_real_trace_comes_back_without_a_warning(rows):
    assert [(row.trace, row.round_trip, row.warnings) for row in rows] == [(row.trace, "identical", 0) for row in rows]


def test_host_copies_make_hits_in_l2(rows):
    """The traces with MemcpyHtoD lines find all that they read in L2; the others start with an empty one."""
    copied = {row.trace: row for row in rows if row.prefills}
    assert {"sm61-v4-matrixmul", "sm61-v4-vectoradd"} <= copied.keys()
    for row in copied.values():
        assert (row.l2_read_hit, row.dram_read) == (row.l2_read, 0)
    assert all(row.dram_read > 0 for row in rows if not row.prefills)


def test_traffic_is_conserved(rows):
    """What L1 is asked for and does not have L2 is asked for; whatever is written once reaches DRAM at most once."""
    for row in rows:
        assert row.l2_read <= row.l1_read
        assert row.dram_read <= row.l2_read
        assert 0 < row.dram_write <= row.l1_write
