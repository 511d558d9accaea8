"""The record of the engine: the clock, the time series, and messages of the units to the host."""

import numpy as np

from sim.hw.request import NEVER

ENGINE = np.dtype(
    [
        ("window_ps", "i8"),  # length of a time window: within it no unit affects another
        ("now_ps", "i8"),  # end of the last window
        ("resume_ps", "i8"),  # begin of the window in which the host was asked for workgroups, -1 = none
        ("windows", "i8"),  # time windows so far
        ("moves", "i8"),  # packets of the NoC and moves between GPUs, up to the end of the last window
        ("idle_windows", "i8"),  # last consecutive windows in which nothing moved; kept if the engine stops at a time
        ("cu_steps", "i8"),  # unit steps so far
        ("bank_steps", "i8"),
        ("channel_steps", "i8"),
        ("interval_ps", "i8"),  # of the time series, 0 = none
        ("next_sample_ps", "i8"),
        ("samples", "i8"),  # rows filled since the host took them
        ("freed", "i8"),  # trace-window slabs freed since the host took them
        ("spans", "i8"),  # written to the timeline, or lost when it was full
        ("horizon_ps", "i8"),  # no window ends after it: later packets of other GPUs are not known yet
        ("fabric_ps", "i8"),  # when a port, a DMA engine or an arrival can act next
        ("descriptors", "i8"),  # ready DMA descriptors taken by engines so far
    ]
)

SERIES = (
    "dram_compute_read_bytes",
    "dram_compute_write_bytes",
    "dram_comm_read_bytes",
    "dram_comm_write_bytes",
    "l2_read_sectors",
    "l2_read_hit_sectors",
    "link_bytes",
    "tracker_triggers",
    "queue_columns",
    "resident_workgroups",
    "tracker_live_tiles",
)
"""Columns of the time series: counts of an interval. The last three are levels at its end."""
LEVELS = 3


def make_engine(window_ps):
    """The record of one GPU (an array of one). window_ps: length of a time window."""
    engine = np.zeros(1, ENGINE)
    engine["window_ps"] = window_ps
    engine["resume_ps"] = -1
    engine["horizon_ps"] = engine["fabric_ps"] = NEVER
    return engine
