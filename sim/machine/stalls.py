"""What the warps wait for at the end of each interval of a time series, by the program counter of their next event.

A sample is a warp with a program at the end of an interval. So the samples of a kind, divided by the number of
intervals, are the mean number of warps that wait for it. No unit counts for it, and it changes no result.
"""

from enum import IntEnum

import numpy as np

from sim.hw.cu import slots_needed
from sim.hw.warp import IDLE, ON_BARRIER, ON_LSU, ON_TRACKER, READY, slots_clear_ps
from tracer.compile.jit import compiled
from traces.schema import MAX_WARPS


class Stall(IntEnum):
    """What a warp waits for."""

    DATA = 0  # of loads, copies and shared memory
    BARRIER = 1
    LSU = 2  # a place in the load/store unit
    TRACKER = 3  # an entry for the tile of its store
    PIPE = 4  # its turn to issue, a pipe, or the end of its own arithmetic


STALL = np.dtype(
    [
        ("kernel", "i8"),  # number of the kernel of the run; of kernels at once: of the first one + the queue
        ("pc", "i8"),  # program counter of the event that waits, OTHER_PC = one of those that found no row
        ("kind", "i8"),  # Stall
        ("samples", "i8"),
    ]
)
KINDS = len(Stall)
STALL_ROWS = 1 << 14
"""Rows of the table for keys. Before them stands a row for each kind, which takes what finds no row."""
PROBES = 64
OTHER_PC = -1


@compiled
def sample_warps(node, time_ps, warps_by_kind):
    """Count every warp with a program: by kind, and in the table by kernel, program counter and kind.

    Args:
        time_ps: end of the interval.
        warps_by_kind: i8 [KINDS], to which the warps are added.

    Reads: node.cus, node.engine, node.events. Writes: node.stalls, node.warps (only slots that are clear).
    """
    first = node.engine[0].kernels
    for c in range(len(node.cus)):
        if node.cus[c].residents == 0:
            continue
        table = node.warps[c]
        for w in range(MAX_WARPS):
            warp = table.warp[w]
            if warp.state != IDLE:
                kind = _waits_for(warp, node.events, time_ps)
                passed = 1 if kind == Stall.BARRIER else 0  # the event of the barrier was executed
                event = node.events[warp.slab, warp.event - passed]
                warps_by_kind[kind] += 1
                add_sample(node.stalls, first + node.cus[c].resident[warp.workgroup].queue, np.int64(event.pc), kind)


@compiled(inline=True)
def _waits_for(warp, events, time_ps):
    """The Stall of a warp with a program."""
    if warp.state == ON_BARRIER:
        return Stall.BARRIER
    if warp.state == ON_LSU:
        return Stall.LSU
    if warp.state == ON_TRACKER:
        return Stall.TRACKER
    if warp.state == READY:
        event = events[warp.slab, warp.event]
        if slots_clear_ps(warp, slots_needed(event), time_ps) <= time_ps:
            return Stall.PIPE
    return Stall.DATA


@compiled(inline=True)
def add_sample(stalls, kernel, pc, kind):
    """Add a sample to the row of a key, or to the row of the kind if the table is too full."""
    first = (pc // 4 * 5 + kernel * 4099 + kind * 1021) & (STALL_ROWS - 1)
    for k in range(PROBES):
        row = stalls[KINDS + ((first + k) & (STALL_ROWS - 1))]
        if row.samples == 0:
            row.kernel, row.pc, row.kind = kernel, pc, kind
        if row.kernel == kernel and row.pc == pc and row.kind == kind:
            row.samples += 1
            return
    row = stalls[kind]
    row.kernel, row.pc, row.kind = kernel, OTHER_PC, kind
    row.samples += 1


def make_stalls():
    """An empty table, STALL [rows]."""
    return np.zeros(KINDS + STALL_ROWS, STALL)
