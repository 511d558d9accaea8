"""Count the 32-byte sectors that the events of a trace touch, one count per warp event."""

import numpy as np

from tracer.coalesce import LINES_PER_EVENT, coalesce, makes_requests
from tracer.compile.jit import compiled


@compiled
def add_sectors(events, addresses, lines, sectors, full, totals):
    for index in range(len(events)):
        event = events[index]
        if makes_requests(event):
            for k in range(coalesce(event, addresses, lines, sectors, full)):
                bits = sectors[k]
                totals[event.kind] += (bits & 1) + ((bits >> 1) & 1) + ((bits >> 2) & 1) + ((bits >> 3) & 1)


def sectors_by_kind(kernel_source):
    """Sectors of loads, stores, atomics, reductions and copies (by number of the kind)."""
    totals = np.zeros(5, np.int64)
    lines = np.zeros(LINES_PER_EVENT, np.int64)
    sectors, full = np.zeros(LINES_PER_EVENT, np.uint8), np.zeros(LINES_PER_EVENT, np.uint8)
    for workgroup in kernel_source.workgroups():
        add_sectors(workgroup.events, workgroup.addresses, lines, sectors, full, totals)
    return totals
