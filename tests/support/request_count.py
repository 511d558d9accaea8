"""What the warp events of a workgroup ask for in all: line requests and sectors by kind of event."""

import numpy as np

from tracer.coalesce import LINES_PER_EVENT, active_lanes, coalesce, makes_requests
from tracer.compile.jit import compiled


@compiled(allocates=True)
def count_requests(events, addresses, lines_by_kind, sectors_by_kind):
    """Add the line requests and sectors of all memory events to totals.

    Args:
        events: EVENT[:] of one workgroup (or any part of one).
        addresses: u8[:], its explicit lane addresses.
        lines_by_kind: i8[5], totals by Kind (LOAD .. ASYNC_COPY), in requests.
        sectors_by_kind: i8[5], the same in 32-byte sectors.
    """
    line = np.empty(LINES_PER_EVENT, np.int64)
    sectors = np.empty(LINES_PER_EVENT, np.uint8)
    full = np.empty(LINES_PER_EVENT, np.uint8)
    for e in range(events.size):
        event = events[e]
        if not makes_requests(event):
            continue
        n = coalesce(event, addresses, line, sectors, full)
        lines_by_kind[event.kind] += n
        for i in range(n):
            sectors_by_kind[event.kind] += active_lanes(sectors[i])
