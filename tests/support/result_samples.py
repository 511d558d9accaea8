"""Results with every unit and invented counters, for tests of whoever stores or shows them."""

import numpy as np

from sim import counters
from sim.machine.build import UNITS
from sim.presets import load_preset
from sim.results import KernelResult, RunResult

RECORDS = {unit.name: unit.record for unit in UNITS}
"""Unit -> dtype of its record."""


def kernel_result(name, start_ps, seed):
    """A kernel of 5000 ps on two instances of every unit."""
    rng = np.random.default_rng(seed)
    units = {}
    for unit, dtype in RECORDS.items():
        records = np.zeros(2, dtype)
        for counter in counters.COUNTERS[unit]:
            records[counter] = rng.integers(0, 100, records[counter].shape)
        units[unit] = counters.take(unit, records)
    return KernelResult(name, start_ps, start_ps + 5000, units, counters.totals(units))


def sample_results():
    """Two kernels and two time series of 11 rows on a changed V100."""
    return RunResult(
        preset=load_preset("v100", ["hbm.queue_entries=32"]),
        input={"trace": "ab" * 32},
        options={"kernels": "1-2", "flush": True},
        kernels=[kernel_result("first", 0, 1), kernel_result("second", 6000, 2)],
        interval_ps=1000,
        series={"dram_read_bytes": np.arange(11), "resident_workgroups": np.arange(11)[::-1].copy()},
    )
