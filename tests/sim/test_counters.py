"""The registry names real fields, differences and totals are plain arithmetic, ratios say when nothing was counted."""

import numpy as np
import pytest

from sim import counters
from sim.hw.hbm.record import CHANNEL
from sim.hw.request import STREAMS, Stream
from tests.support.result_samples import RECORDS


@pytest.mark.parametrize("unit", counters.COUNTERS)
def test_registry_names_fields_of_the_records(unit):
    missing = counters.COUNTERS[unit].keys() - set(RECORDS[unit].names)
    assert not missing
    assert all(meaning for meaning in counters.COUNTERS[unit].values())


def numbered(unit, instances, start):
    """Records whose counters are start, start + 1, ..."""
    records = np.zeros(instances, RECORDS[unit])
    for number, name in enumerate(counters.COUNTERS[unit]):
        records[name] = start + number
    return records


def test_take_copies_counters_only():
    records = numbered("l2", 3, 10)
    taken = counters.take("l2", records)
    records["read_sectors"] = 99
    assert taken.dtype.names == tuple(counters.COUNTERS["l2"])
    assert list(taken["read_sectors"]) == [10, 10, 10]


def test_difference_subtracts_sums_and_keeps_maxima():
    before, after = (counters.take("l2", numbered("l2", 2, start)) for start in (0, 1000))
    passed = counters.difference(after, before)
    assert set(passed["read_sectors"]) == {1000}
    assert set(passed["misses_used_max"]) == set(after["misses_used_max"])


def test_totals_sum_instances_and_streams():
    records = np.zeros(2, CHANNEL)
    records["read_columns"] = np.arange(2 * STREAMS).reshape(2, STREAMS)
    records["age_max_ps"][1, Stream.COMM_READ] = 7
    total = counters.totals({"hbm": counters.take("hbm", records)})
    assert total["hbm.read_columns"] == 28
    assert total["hbm.read_columns.comm_read"] == 2 + 6
    assert total["hbm.age_max_ps"] == total["hbm.age_max_ps.comm_read"] == 7
    both = counters.add_totals([total, total])
    assert both["hbm.read_columns"] == 56 and both["hbm.age_max_ps"] == 7


def test_headline_splits_the_flush_from_the_writes():
    total = counters.totals({unit: counters.take(unit, np.zeros(1, dtype)) for unit, dtype in RECORDS.items()})
    total |= {"hbm.write_columns": 10, "hbm.update_columns": 3, "l2.flush_sectors": 4}
    found = counters.headline(total)
    assert (found["dram_write_sectors"], found["dram_write_sectors_after_flush"]) == (9, 13)


def test_ratio_of_nothing_is_none():
    total = counters.totals({unit: counters.take(unit, np.zeros(1, dtype)) for unit, dtype in RECORDS.items()})
    assert set(counters.ratios(total).values()) == {None}
    total |= {"l1.read_sectors": 8, "l1.read_hit_sectors": 2}
    assert counters.ratios(total)["l1_hit_rate"] == 0.25


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("slot_stall_ps", "ps"),
        ("age_max_ps", "ps"),
        ("read_sectors", "32-byte sector"),
        ("request_bytes", "byte"),
        ("bytes", "byte"),
        ("read_columns", "32-byte column"),
        ("events", "1"),
        ("misses_used_max", "1"),
    ],
)
def test_unit_of_measure_comes_from_the_name(name, unit):
    assert counters.unit_of_measure(name) == unit
