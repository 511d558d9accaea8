"""The record of the engine: the clock, the time series, and messages of the units to the host."""

import numpy as np

from sim.hw.request import NEVER
from tracer.compile.jit import compiled

# News of a CU after a window, as bits. Nobody needs to look at the records of a CU without news.
WORKGROUP_ASKS = 1  # a workgroup asks the Tracker for an entry
PORT_WAITS = 2  # its load/store unit, or its bulk copy unit, waits for a credit of unknown time

ENGINE = np.dtype(
    [
        # constants
        ("lookahead_ps", "i8"),  # shortest latency between two units that act in turn
        ("grid_ps", "i8"),  # windows begin and end at multiples of it: a clock of the crossbar
        ("window_ps", "i8"),  # length of a time window, at most the lookahead; it changes no result
        ("data_ps", "i8"),  # from a read's column command to its data
        ("first_note_fifo", "i8"),  # reports to the Tracker: of channel 0; behind the last channel, of the arrivals
        # state
        ("now_ps", "i8"),  # end of the last window
        ("resume_ps", "i8"),  # begin of the window in which the host was asked for workgroups, -1 = none
        ("windows", "i8"),  # time windows so far
        ("interval_ps", "i8"),  # of the time series, 0 = none
        ("next_sample_ps", "i8"),
        ("samples", "i8"),  # rows filled since the host took them
        ("freed", "i8"),  # trace-window slabs freed since the host took them
        ("kernels", "i8"),  # launched before those in progress ...
        ("present", "i8"),  # ... and number of those
        ("spans", "i8"),  # written to the timeline, or lost when it was full
        ("horizon_ps", "i8"),  # no window ends after it: later packets of other GPUs are not known yet
        ("descriptors", "i8"),  # ready DMA descriptors taken by engines so far
        ("clustered", "i8"),  # 1: a kernel in progress has clusters of workgroups
        ("peers_ps", "i8"),  # when the next packet between CUs leaves, NEVER = none
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
    "warps_at_data",
    "warps_at_barrier",
    "warps_at_lsu",
    "warps_at_tracker",
    "warps_at_pipe",
)
"""Columns of the time series: counts of an interval, then LEVELS levels at its end. warps_at_*: sim.machine.stalls."""
LEVELS = 8


def make_engine(**constants):
    """The record of one GPU (an array of one). constants: the first fields of ENGINE."""
    engine = np.zeros(1, ENGINE)
    for name, value in constants.items():
        engine[name] = value
    engine["resume_ps"] = -1
    engine["horizon_ps"] = engine["peers_ps"] = NEVER
    return engine


@compiled(inline=True)
def grid_end_ps(engine, time_ps):
    """The first time at or after time_ps at which a window may end. Reads: engine."""
    return (time_ps + engine.grid_ps - 1) // engine.grid_ps * engine.grid_ps
