"""Memory traffic per source line of a kernel. It joins the events of a trace with a line table by program counter."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from tracer.coalesce import LINES_PER_EVENT, active_lanes, coalesce, makes_requests
from tracer.compile.jit import compiled
from tracer.elf.line_table import NO_LINE, LineTable
from traces.schema import Kind, Space
from traces.source import Workgroup


@dataclass(frozen=True)
class LineTraffic:
    """Totals of one source line. Accesses count per warp. Sectors have 32 bytes and leave the compute unit."""

    file: str  # "" with line 0: events whose program counter is not in the table
    line: int
    instructions: int  # warp instructions of every kind
    loads: int  # global and local, with asynchronous copies
    stores: int
    atomics: int  # with and without a returned value
    shared: int  # shared-memory accesses
    load_sectors: int
    store_sectors: int
    atomic_sectors: int


COUNTS = tuple(field.name for field in fields(LineTraffic))[2:]
INSTRUCTIONS = COUNTS.index("instructions")
SHARED = COUNTS.index("shared")
ACCESSES = COUNTS.index("loads")  # then stores and atomics
SECTORS = COUNTS.index("load_sectors")  # in the same order
CLASS_OF_KIND = np.full(256, -1)  # one entry for every possible value of the column
CLASS_OF_KIND[[Kind.LOAD, Kind.ASYNC_COPY]] = 0
CLASS_OF_KIND[[Kind.STORE]] = 1
CLASS_OF_KIND[[Kind.ATOMIC, Kind.REDUCE]] = 2
SHARED_SPACE = int(Space.SHARED)


def attribute(workgroups: Iterable[Workgroup], table: LineTable) -> list[LineTraffic]:
    """Traffic per source line: most sectors first, then in order of the source.

    Args:
        workgroups: workgroups of one kernel, read one at a time.
        table: line table of the same kernel, from the traced binary.
    """
    totals = np.zeros((len(table.pcs) + 1, len(COUNTS)), np.int64)  # the last row: program counters not in the table
    for workgroup in workgroups:
        rows = table.ranges_of(workgroup.events["pc"])
        add_traffic(workgroup.events, workgroup.addresses, rows, CLASS_OF_KIND, totals)
    by_line: dict[tuple[str, int], np.ndarray] = {}
    for (_, file, line), counts in zip([*table.rows(), (0, "", NO_LINE)], totals, strict=True):
        if counts.any():
            place = by_line.setdefault((file, line), np.zeros(len(COUNTS), np.int64))
            place += counts
    listed = [LineTraffic(file, line, *counts.tolist()) for (file, line), counts in by_line.items()]
    return sorted(listed, key=lambda t: (-t.load_sectors - t.store_sectors - t.atomic_sectors, t.file, t.line))


@compiled(allocates=True)
def add_traffic(events, addresses, rows, class_of_kind, totals):
    """Add the traffic of each event to its row of the totals.

    Args:
        events: EVENT[:] of one workgroup.
        addresses: u8[:], explicit lane addresses of the workgroup.
        rows: i8[:], row of each event.
        class_of_kind: i8[:], CLASS_OF_KIND.
        totals: i8[rows, COUNTS].
    """
    lines = np.empty(LINES_PER_EVENT, np.int64)
    touched = np.empty(LINES_PER_EVENT, np.uint8)
    full = np.empty(LINES_PER_EVENT, np.uint8)
    for e in range(events.size):
        event = events[e]
        total = totals[rows[e]]
        total[INSTRUCTIONS] += event.count
        kind = class_of_kind[event.kind]
        if kind < 0:
            continue
        if event.space == SHARED_SPACE:
            total[SHARED] += 1
            continue
        total[ACCESSES + kind] += 1
        if makes_requests(event):
            for i in range(coalesce(event, addresses, lines, touched, full)):
                total[SECTORS + kind] += active_lanes(touched[i])
