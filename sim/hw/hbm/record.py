"""The record of one HBM channel: constants from the spec, state, counters.

Sizes are the largest that a preset may use, so all machines share one compiled channel. Free slots are taken from low
numbers up, so only the part in use is accessed.
"""

import numpy as np

from sim.hw.hbm.lists import LISTS
from sim.hw.hbm.queue import ATOM, BUCKETS, MAX_ATOMS
from sim.hw.hbm.timing import FAW_ACTIVATES
from sim.hw.lanes import LANES
from sim.hw.mca import MCA_LIMITS
from sim.hw.prefetch import HOST_LINE_BYTES
from sim.hw.request import REQUEST, STREAMS

MAX_BANKS = 64
MAX_GROUPS = 64
RECENT_BURSTS = 256
"""Bursts whose end a channel keeps for a time series."""

BANK = np.dtype(
    [
        # state
        ("open_row", "i8"),  # -1 = closed
        ("activate_ps", "i8"),  # earliest next ACT ...
        ("precharge_ps", "i8"),  # ... PRE
        ("read_ps", "i8"),  # ... RD, after the last ACT
        ("write_ps", "i8"),  # ... WR or UPD, after the last ACT
        ("head", "i2", LISTS),  # oldest atom of each list (sim.hw.hbm.lists), -1 for none
        ("tail", "i2", LISTS),
        ("place", "i1", LISTS),  # index in channel.listed_bank
        # constant
        ("group", "i1"),
        ("alu", "i1"),  # entry of channel.group whose `update_ps` its updates wait for (sim.hw.hbm.nmc)
        ("pad", "i1", 2),
    ],
    align=True,
)
"""One cache line of the host."""

GROUP = np.dtype(
    [
        ("activate_ps", "i8"),  # earliest next ACT in the group (tRRD_L)
        ("read_ps", "i8"),  # RD (tCCD_L, tWTR_L)
        ("write_ps", "i8"),  # WR or UPD (tCCD_L)
        ("update_ps", "i8"),  # UPD (CCDWL)
    ]
)

TIMINGS = (
    *("tBURST_ps", "tCL_ps", "tWL_ps", "tRCD_rd_ps", "tRCD_wr_ps", "tRP_ps", "tRAS_ps", "tRC_ps", "tCCD_S_ps"),
    *("tCCD_L_ps", "tRRD_S_ps", "tRRD_L_ps", "tFAW_ps", "tRTP_ps", "tWR_ps", "tWTR_S_ps", "tWTR_L_ps", "tRTW_ps"),
    *("tCCDWL_ps", "tREFI_ps", "tRFC_ps"),
)
"""Constants of CHANNEL: `spec.Timing` in picoseconds, under its name."""

COUNTERS = {
    "read_columns": "32-byte columns read, per stream",
    "write_columns": "32-byte columns written, per stream",
    "update_columns": "32-byte columns updated near memory, per stream",
    "accepted": "requests that entered the queue, per stream",
    "wait_ps": "sum over requests of the time in the stream fifo (ps), per stream",
    "occupancy": "integral of queue entries (32 bytes) over time (entries x ps), per stream",
    "age_max_ps": "longest time of a transaction in the queue (ps), per stream",
    "acts": "activate commands",
    "precharges": "banks precharged (PRE, or as part of PREA)",
    "refreshes": "all-bank refresh commands",
    "row_hits": "64-byte transactions for which no row was activated",
    "atoms": "64-byte transactions accepted",
    "bus_busy_ps": "time in which data moved on the bus (ps)",
    "reads_answered": "read requests answered",
    "read_latency_ps": "sum over answered reads of queue entry to data returned, extra latency included (ps)",
    "drains": "number of drains of the write queue (split queues)",
    "commands": "commands written to the log, or lost when it was full",
}
"""Counter fields of CHANNEL and their meaning; raw integers, ratios are computed late."""

CHANNEL = np.dtype(
    [
        # state: queue and banks; they come first because their parts are whole or half cache lines of the host
        ("bank", BANK, MAX_BANKS),
        ("group", GROUP, MAX_GROUPS),
        ("atom", ATOM, MAX_ATOMS),
        ("request", REQUEST, MAX_ATOMS),
        # constants: geometry
        *((name, "i8") for name in ("interleave_bytes", "channels", "banks")),
        *((name, "i8") for name in ("group_bits", "bank_bits", "row_bits", "bank_map", "bank_hash")),
        ("column_entries", "i8"),
        # constants: clock and timing
        ("period_ps", "i8"),
        ("clk_per_ps", "i8"),  # its reciprocal (`sim.hw.bits`)
        *((name, "i8") for name in TIMINGS),
        ("extra_latency_ps", "i8"),
        # constants: policies
        *((name, "i8") for name in ("split", "page", "arbiter", "update_scope")),
        ("turn", "i8"),  # spec.Turn
        ("turn_requests", "i8"),
        ("row_shift", "i8"),  # local address >> row_shift = the row, with the rows that its neighbours share (ROW)
        ("queue_entries", "i8"),  # of the unified queue, or of each of the two split queues
        ("write_high", "i8"),  # drain when more entries wait ...
        ("write_low", "i8"),  # ... until fewer do
        ("refresh_postpone", "i8"),
        ("age_limit_ps", "i8"),
        ("mca", MCA_LIMITS),
        ("count_served", "i8"),  # 1: an update is sent to the Tracker when it is served, 0: when it is queued
        ("lanes", LANES),  # fifos from which requests come
        ("out_fifo", "i8"),
        ("data_fifo", "i8"),  # from which DMA engines take their data, -1 = none
        ("dma_fifo", "i8"),  # of data for DMA engines: data_fifo, or out_fifo if a memory-side cache takes all data
        ("note_fifo", "i8"),  # copies of the requests that the Tracker counts, -1 = none
        ("keeps_bursts", "i8"),  # 1: the run takes a time series (sim.hw.hbm.bursts)
        ("edge_ps", "i8"),  # state: the latest clock edge that was looked for
        # state: earliest next command anywhere in the channel
        ("read_ps", "i8"),
        ("write_ps", "i8"),
        ("update_ps", "i8"),
        ("activate_ps", "i8"),
        ("row_ps", "i8"),  # any row command: one per clock
        ("activates_ps", "i8", FAW_ACTIVATES),  # the last four ACT
        ("activate_next", "i8"),  # which of them is the oldest
        ("refresh_due_ps", "i8"),
        ("bus_end_ps", "i8"),  # end of the last data on the bus
        # state: scheduler
        ("column_wake_ps", "i8"),  # earliest time at which a column command can be found
        ("row_wake_ps", "i8"),  # earliest time at which a row command can be found
        ("mode", "i8"),  # direction served (split queues)
        ("served", "i8"),  # mask of directions whose columns may issue
        ("phase_left", "i8"),  # entries that this mode may still serve before the other mode can take over
        ("read_held", "i8"),  # 1: a read waits outside for a queued write
        ("refused", "i8"),  # 1: a head waits for an access in the queue, or the arbiter takes none
        ("smallest", "i8", 2),  # per direction: entries of the smallest head that waits for room, NEVER if none does
        ("aged", "i8"),  # slot of the atom over the age limit, -1 for none
        ("age_check_ps", "i8"),  # when to look for such an atom
        ("last_stream", "i8"),  # of the last request accepted
        ("turn_taken", "i8"),  # requests accepted from it in this turn (BURST)
        ("last_row", "i8"),  # row of the last request accepted (ROW)
        ("head_row", "i8", STREAMS),  # row of each head that can be taken (ROW)
        ("head_ps", "i8", STREAMS),  # since when a stream's head waits, NEVER if it cannot be taken
        # state: queue
        ("queued", "i8", 2),  # entries per direction
        ("queued_stream", "i8", STREAMS),  # entries per stream
        ("accounted_ps", "i8"),  # occupancy is counted up to this time
        ("open_banks", "i8"),
        ("listed", "i8", LISTS),  # banks in which a list is not empty
        ("free_atoms", "i8"),
        ("free_requests", "i8"),
        ("listed_bank", "i1", (LISTS, MAX_BANKS)),
        ("pending", "i2", (2, BUCKETS)),  # queued atoms per direction and hash of their address
        ("free_atom", "i2", MAX_ATOMS),
        ("free_request", "i2", MAX_ATOMS),
        ("request_atoms", "i2", MAX_ATOMS),  # of each request slot: atoms still queued
        ("accepted_ps", "i8", MAX_ATOMS),  # of each request slot
        # counters
        *((name, "i8", STREAMS) for name in ("read_columns", "write_columns", "update_columns", "accepted")),
        *((name, "i8", STREAMS) for name in ("wait_ps", "occupancy", "age_max_ps")),
        *((name, "i8") for name in ("acts", "precharges", "refreshes", "row_hits", "atoms", "bus_busy_ps")),
        *((name, "i8") for name in ("reads_answered", "read_latency_ps", "drains", "commands")),
        # state: the first answer of a user's policy that is no waiting stream, and its time; NEVER = none
        ("wrong_stream", "i8"),
        ("wrong_ps", "i8"),
        ("pad", "i8", 6),  # an odd number of whole cache lines of the host in all
        # state: the last bursts on the bus, a ring; empty without a time series
        ("bursts", "i8"),  # so far
        ("burst_end_ps", "i8", RECENT_BURSTS),
        ("burst_stream", "u1", RECENT_BURSTS),
        ("burst_pad", "u1", 48),  # with it, the fields of bursts fill whole cache lines of the host
    ],
    align=True,
)

assert CHANNEL.itemsize % HOST_LINE_BYTES == 0
