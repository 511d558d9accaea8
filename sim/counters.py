"""The registry of counters: the fields of the unit records that are counters, and their meaning.

Counters are raw integers that only grow (or keep a maximum: `_max`, `_max_ps`). Their names end with the unit of
measure. Ratios are pure functions of totals, computed late. The counters of a kernel are the difference between the
records after and before it.
"""

from collections.abc import Iterable

import numpy as np

from sim.hw.request import SECTOR_BYTES, Stream
from sim.machine.build import UNITS

COUNTERS = {unit.name: unit.counters for unit in UNITS}
"""Unit -> counter field of its record -> meaning. Each unit's file defines its counters."""

_UNITS = (
    ("_ps", "ps"),
    ("_ns", "ns"),
    ("_bytes", "byte"),
    ("_sectors", "32-byte sector"),
    ("_columns", "32-byte column"),
    ("_occupancy", "entries x ps"),
)
_RATIOS = {
    "l1_hit_rate": ("l1.read_hit_sectors", "l1.read_sectors"),
    "l2_hit_rate": ("l2.read_hit_sectors", "l2.read_sectors"),
    "l2_merge_rate": ("l2.read_merged_sectors", "l2.read_sectors"),
    "dram_row_hit_rate": ("hbm.row_hits", "hbm.atoms"),
    "sectors_per_line_request": ("l1.read_sectors + l1.write_sectors + lsu.atomic_sectors", "lsu.line_requests"),
}


def unit_of_measure(counter):
    """Unit of a counter's values, from the end of its name; "1" for plain counts."""
    return next((unit for suffix, unit in _UNITS if f"_{counter.removesuffix('_max')}".endswith(suffix)), "1")


def is_maximum(counter):
    """Does the counter keep a maximum (True) or a sum (False)?"""
    return counter.endswith(("_max", "_max_ps"))


def take(unit, records):
    """A copy of the counter fields of unit records: structured array with the same instances."""
    fields = [name for name in COUNTERS[unit] if name in records.dtype.names]
    counters = np.empty(records.shape, [(name, records.dtype[name]) for name in fields])
    for name in fields:
        counters[name] = records[name]
    return counters


def difference(after, before):
    """Counters of the time between two `take`s: sums are subtracted, maxima are those of `after`."""
    passed = after.copy()
    for name in after.dtype.names:
        if not is_maximum(name):
            passed[name] -= before[name]
    return passed


def totals(units):
    """Counters over all instances.

    Args:
        units: unit -> structured array of counters, as from `take` or `difference`.

    Returns:
        dict "unit.counter" -> int; a counter per stream also gives "unit.counter.stream" for each stream.
    """
    found = {}
    for unit, counters in units.items():
        for name in counters.dtype.names:
            combine = np.max if is_maximum(name) else np.sum
            values = combine(counters[name].reshape(len(counters), -1), axis=0)
            found[f"{unit}.{name}"] = int(combine(values))
            if len(values) == len(Stream):
                for stream in Stream:
                    found[f"{unit}.{name}.{stream.name.lower()}"] = int(values[stream])
    return found


def add_totals(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Totals of several kernels together."""
    whole: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            counter = name.split(".")[1]
            whole[name] = max(whole.get(name, 0), value) if is_maximum(counter) else whole.get(name, 0) + value
    return whole


def ratios(total):
    """Dimensionless ratios of totals; None if nothing was counted."""
    found = {}
    for name, (part, whole) in _RATIOS.items():
        counted = sum(total[term] for term in part.split(" + "))
        found[name] = counted / total[whole] if total[whole] else None
    return found


def l2_bytes(total):
    """Bytes through the busier direction of the ports of the L2 banks: requests with their data, or answers."""
    return max(total["noc.request_bytes"], total["noc.answer_bytes"])


def flushed_columns(total):
    """DRAM columns of the flushes of L2 after kernels: not in the time of the kernels.

    A memory-side cache that writes back takes the flush. What it evicts meanwhile counts as evicted before.
    """
    return 0 if total.get("msc.write_sectors") else total["l2.flush_sectors"]


def moved_sectors(total, names):
    """Sum of counters of 32-byte sectors or columns, without the flushes of L2 after kernels."""
    return sum(total[name] for name in names) - (flushed_columns(total) if "hbm.write_columns" in names else 0)


def msc_requests(total):
    """Requests that a memory-side cache took, without those of the flushes of L2 after kernels.

    These are as many of the requests that write as the flushes have of their sectors.
    """
    writes = total.get("msc.bytes.compute_write", 0)
    late = min(1.0, total["l2.flush_sectors"] * SECTOR_BYTES / writes) if writes else 0.0
    return total.get("msc.requests", 0) - late * total.get("msc.requests.compute_write", 0)


DRAM_COLUMNS = ("hbm.read_columns", "hbm.write_columns", "hbm.update_columns")


def headline(total):
    """The counts that every run reports, in 32-byte sectors. `dram_write_sectors` excludes flushes after kernels."""
    written = total["hbm.write_columns"] + total["hbm.update_columns"]
    return {
        "warp_instructions": total["cu.warp_instructions"],
        "line_requests": total["lsu.line_requests"],
        "l1_read_sectors": total["l1.read_sectors"],
        "l1_read_hit_sectors": total["l1.read_hit_sectors"],
        "l1_write_sectors": total["l1.write_sectors"],
        "l2_read_sectors": total["l2.read_sectors"],
        "l2_read_hit_sectors": total["l2.read_hit_sectors"],
        "l2_read_merged_sectors": total["l2.read_merged_sectors"],
        "l2_write_sectors": total["l2.write_sectors"],
        "dram_read_sectors": total["hbm.read_columns"],
        "dram_write_sectors": moved_sectors(total, ("hbm.write_columns", "hbm.update_columns")),
        "dram_write_sectors_after_flush": written,
    }
