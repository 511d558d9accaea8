"""What each source line of a kernel does to memory: events of a trace joined with a line table by program counter."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

from tracer.coalesce import LINES_PER_EVENT, active_lanes, coalesce, makes_requests
from tracer.elf.line_table import NO_LINE, LineTable
from tracer.jit import kernel
from traces.schema import Kind, Space
from traces.source import Workgroup


@dataclass(frozen=True)
class LineTraffic:
    """Totals of one source line; accesses are warp-level, sectors are of 32 bytes and leave the compute unit."""

    file: str  # "" with line 0: events whose program counter the table does not know
    line: int
    instructions: int  # warp instructions of every kind
    loads: int  # global and local, asynchronous copies included
    stores: int
    atomics: int  # with and without a returned value
    shared: int  # shared-memory accesses
    load_sectors: int
    store_sectors: int
    atomic_sectors: int


COUNTS = tuple(field.name for field in fields(LineTraffic))[2:]
KINDS = {
    "load": (Kind.LOAD, Kind.ASYNC_COPY),
    "store": (Kind.STORE,),
    "atomic": (Kind.ATOMIC, Kind.REDUCE),
}


def attribute(workgroups: Iterable[Workgroup], table: LineTable) -> list[LineTraffic]:
    """Traffic per source line, most sectors first, then in order of the source.

    Args:
        workgroups: of one kernel; read one at a time.
        table: of the same kernel, from the binary that was traced.
    """
    totals: dict[tuple[int, int], np.ndarray] = {}
    for workgroup in workgroups:
        numbers, lines = table.lines_of(workgroup.events["pc"])
        keys, owner = np.unique(np.stack([numbers, lines]), axis=1, return_inverse=True)
        counts = _counts(workgroup)
        for i, (number, line) in enumerate(keys.T.tolist()):
            total = totals.setdefault((number, line), np.zeros(len(COUNTS), np.int64))
            total += counts[:, owner.reshape(-1) == i].sum(axis=1)
    listed = [
        LineTraffic(table.files[number] if line != NO_LINE else "", line, *map(int, counts))
        for (number, line), counts in totals.items()
    ]
    return sorted(listed, key=lambda t: (-t.load_sectors - t.store_sectors - t.atomic_sectors, t.file, t.line))


def _counts(workgroup: Workgroup) -> np.ndarray:
    """COUNTS of every event, i8 [counts, events]."""
    events = workgroup.events
    sectors = np.zeros(events.size, np.int64)
    event_sectors(events, workgroup.addresses, sectors)
    off_chip = events["space"] != Space.SHARED
    counts = {"instructions": events["count"]}
    counts["shared"] = np.isin(events["kind"], np.concatenate(list(KINDS.values()))) & ~off_chip
    for name, kinds in KINDS.items():
        chosen = np.isin(events["kind"], kinds) & off_chip
        counts[f"{name}s"] = chosen
        counts[f"{name}_sectors"] = np.where(chosen, sectors, 0)
    return np.stack([counts[name] for name in COUNTS]).astype(np.int64)


@kernel
def event_sectors(events, addresses, sectors):
    """Sectors that each event asks of the memory system.

    Args:
        events: EVENT[:] of one workgroup.
        addresses: u8[:], its explicit lane addresses.
        sectors: i8[:], receives one number per event, 0 for events without requests.
    """
    lines = np.empty(LINES_PER_EVENT, np.int64)
    touched = np.empty(LINES_PER_EVENT, np.uint8)
    full = np.empty(LINES_PER_EVENT, np.uint8)
    for e in range(events.size):
        event = events[e]
        sectors[e] = 0
        if makes_requests(event):
            for i in range(coalesce(event, addresses, lines, touched, full)):
                sectors[e] += active_lanes(touched[i])
