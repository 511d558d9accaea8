"""The record of a bulk copy unit: its copies, constants, state, counters."""

import numpy as np

from sim.hw.lsu_record import MAX_LOADS
from sim.hw.prefetch import host_record

COPY = np.dtype(
    [
        ("start_ps", "i8"),  # no line before
        ("next", "i8"),  # address of the next byte
        ("row_left", "i8"),  # bytes of the current row not yet sent
        ("rows_left", "i8"),  # rows, the current one included
        ("row_bytes", "i8"),
        ("skip_bytes", "i8"),  # from the end of a row to the begin of the next
        ("tag", "i8"),  # its workgroup
        ("load", "i2"),  # load-table entry
        ("op", "i1"),
        ("cache", "i1"),
        ("wavefront", "i4"),
        ("ranks", "i4"),  # set of workgroups whose transaction barriers get the data; 0 = only its own
        ("peer", "i2"),  # of a copy to another workgroup: its place (`sim.hw.signals.member`), -1 = none
        ("barrier", "i1"),
        ("place", "i1"),  # of its workgroup in the CU
        ("cluster", "i8"),
        # of a copy into a tile with a destination (`sim.hw.space`)
        ("routed", "i1"),  # 1: nobody acknowledges its lines
        ("contributors", "i8"),
        ("share", "i8"),
        ("link", "i8"),  # as in the load/store unit
        ("send", "i8"),
    ],
    align=True,
)

COUNTERS = {
    "copies": "bulk copies taken in",
    "line_requests": "lines of bulk copies sent",
    "read_sectors": "sectors read by bulk loads",
    "write_sectors": "sectors stored or added by bulk copies",
    "sent_sectors": "sectors sent to the shared memory of other workgroups of the cluster",
    "blocked_ps": "time with a copy and no room for its next line",
}
"""Counter fields of BULK and their meaning."""

BULK = host_record(
    [
        # constants
        ("line_ps", "i8"),
        ("latency_ps", "i8"),
        ("noc_port", "i8"),  # fifo towards the NoC ...
        ("peer_port", "i8"),  # ... and towards other CUs of the cluster, -1 = none
        ("cu", "i8"),
        ("leaves", "i8"),  # 1: for copies to other GPUs, which have a port of their own
        # state
        ("port", "i8"),  # fifo of the current copy
        ("share", "i8"),  # share of a tile, or what the current line brings to transaction barriers; 0 = nothing
        ("contributors", "i8"),  # of the current copy, as the next one
        ("link", "i8"),
        ("leaving", "i8"),  # copies of the CU to other GPUs
        ("head", "i8"),  # copies sent so far
        ("tail", "i8"),  # copies taken in so far
        ("free_ps", "i8"),  # when the next line may leave
        ("port_room_ps", "i8"),  # as in the load/store unit
        ("blocked_since_ps", "i8"),  # -1 = not blocked
        ("tag", "i8"),  # of the current copy, as the next four
        ("op", "i8"),
        ("stream", "i8"),
        ("cache", "i8"),
        ("wavefront", "i8"),
        # counters
        ("copies", "i8"),
        ("line_requests", "i8"),
        ("read_sectors", "i8"),
        ("write_sectors", "i8"),
        ("sent_sectors", "i8"),
        ("blocked_ps", "i8"),
        # tables
        ("copy", COPY, MAX_LOADS),  # ring
    ]
)


def make_bulks(spec, period_ps, ports, peer_ports, leave_ports):
    """BULK [2, CUs]: for all copies of each CU except those to other GPUs, and for these.

    Args:
        spec: sim.spec.ComputeUnit.
        ports: fifo number of each CU's NoC port.
        peer_ports: and of its port towards other CUs, empty without clusters.
        leave_ports: and of its port for copies to other GPUs, empty without such.
    """
    bulks = np.zeros((2, len(ports)), BULK)
    if spec.bulk_lines_per_clk:
        bulks["line_ps"] = max(1, round(period_ps / spec.bulk_lines_per_clk))
    bulks["latency_ps"] = spec.bulk_latency_clk * period_ps
    bulks["noc_port"] = ports
    bulks["noc_port"][1] = leave_ports if len(leave_ports) else -1
    bulks["port"], bulks["leaves"][1] = bulks["noc_port"], 1
    bulks["peer_port"] = peer_ports if len(peer_ports) else -1
    bulks["cu"], bulks["blocked_since_ps"] = np.arange(len(ports)), -1
    return bulks
