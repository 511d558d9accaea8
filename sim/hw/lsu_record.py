"""The record of a load/store unit: constants from the spec, the current event, the load table, counters."""

import numpy as np

from sim.hw.prefetch import host_record
from sim.hw.space import MAX_PORTS
from sim.hw.warp import MAX_WARPS

MAX_LOADS = 512
MAX_LINES = 128  # of one warp event: 64 lanes, two lines each

LOAD = np.dtype(
    [
        ("done_ps", "i8"),  # latest arrival so far
        ("answers", "i2"),  # still missing
        ("slot", "i2"),
        ("warp", "i1"),
        ("open", "i1"),  # 1 while the unit is still issuing its lines
        ("barrier", "i2"),  # of a bulk copy: transaction barrier that waits for it, -1 = none
    ],
    align=True,
)

COUNTERS = {
    "line_requests": "lines of warp events taken in, loads and stores",
    "busy_ps": "time that these lines took",
    "blocked_ps": "time with a current event and no room for its next line",
    "atomic_sectors": "sectors of atomics, reductions and near-memory updates, which pass L1",
}
"""Counter fields of LSU and their meaning."""

LSU = host_record(
    [
        # constants
        ("line_ps", "i8"),  # of a whole line
        ("tag_ps", "i8"),  # of any line at least
        ("loads", "i8"),  # load-table entries
        ("noc_port", "i8"),  # fifo towards the NoC ...
        ("peer_port", "i8"),  # ... and towards other CUs of the cluster, -1 = none
        ("cu", "i4"),
        ("counts_lanes", "i4"),  # 1: atomics tell L2 how many lanes they have at one address
        # state
        ("port", "i8"),  # fifo of the current event
        ("free_ps", "i8"),  # when the last event has sent its lines
        (
            "port_room_ps",
            "i8",
        ),  # blocked by its port: when it can continue, NEVER = not known yet; 0 = not blocked by it
        ("lines", "i8"),  # of the current event
        ("next_line", "i8"),  # == lines: no current event
        ("op", "i8"),
        ("stream", "i8"),
        ("cache", "i8"),
        ("load", "i8"),  # load-table entry of the current event, -1 for stores
        ("tag", "i8"),
        ("link", "i8"),  # 1 + port over which its stores leave, 0 = they stay here
        ("contributors", "i8"),  # GPUs whose sums its stores carry
        ("share", "i8"),  # share of the tile's sum that they hold (split-K)
        ("send", "i8"),  # SEND record by which they leave, -1 = none
        ("stores", "i8"),  # for a set of GPUs: number of its SEND records ...
        ("first_store", "i8"),  # ... and the first of them
        ("store", "i8"),  # of them, done or current
        ("wavefront", "i8"),  # of the workgroup, that issued the current event
        ("remote_op", "i8"),  # of lines to other CUs: Op, ...
        ("cluster", "i8"),  # ... the cluster ...
        ("signal", "i8"),  # ... 1 + transaction barrier at which they arrive, 0 = none ...
        ("arrivals", "i8"),  # ... of a phase, ...
        ("expected_bytes", "i8"),  # ... and bytes that it expects from other workgroups
        ("queue_head", "i8"),
        ("queue_tail", "i8"),
        ("loads_used", "i8"),
        # counters
        ("line_requests", "i8"),  # lines taken in, loads and stores
        ("busy_ps", "i8"),  # time that these lines took
        ("blocked_ps", "i8"),  # time with a current event and no room for its next line
        ("blocked_since_ps", "i8"),
        ("atomic_sectors", "i8"),
        # tables
        ("line", "i8", MAX_LINES),
        ("cache_set", "i4", MAX_LINES),  # of L1, of a load that it may keep; BYPASS = none
        ("sectors", "i1", MAX_LINES),
        ("full", "i1", MAX_LINES),
        ("same", "i1", MAX_LINES),  # of an atomic: lanes at one address
        ("peer", "i2", MAX_LINES),  # of a line to another CU: its workgroup (`sim.hw.signals.member`)
        ("peer_rank", "i1", MAX_LINES),  # and the rank of that
        ("links", "i1", MAX_PORTS),  # 1 + port of each GPU of the set
        ("queue", "i4", MAX_WARPS),  # warps whose memory event waits
        ("free", "i2", MAX_LOADS),  # load-table entries that are free: from place `loads_used` on
        ("load_table", LOAD, MAX_LOADS),
    ]
)


def make_lsus(spec, period_ps, ports, counts_lanes, peer_ports):
    """One LSU per CU.

    Args:
        spec: sim.spec.ComputeUnit.
        ports: fifo number of each CU's NoC port.
        counts_lanes: True if L2 has a limit for atomics on one address.
        peer_ports: fifo number of each CU's port towards other CUs, empty without clusters.
    """
    lsus = np.zeros(len(ports), LSU)
    lsus["line_ps"] = max(1, round(period_ps / spec.lsu_lines_per_clk))
    lsus["tag_ps"] = max(1, round(period_ps / max(spec.lsu_tags_per_clk, spec.lsu_lines_per_clk)))
    lsus["loads"] = min(spec.loads_outstanding, MAX_LOADS)
    lsus["port"] = lsus["noc_port"] = ports
    lsus["peer_port"] = peer_ports if len(peer_ports) else -1
    lsus["cu"], lsus["counts_lanes"] = np.arange(len(ports)), counts_lanes
    lsus["free"] = np.arange(MAX_LOADS)
    lsus["load"] = lsus["blocked_since_ps"] = -1
    return lsus
