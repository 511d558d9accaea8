"""Faults of warp events: which values of an event are impossible. `tracer.workgroup_check` uses them."""

from enum import IntEnum

import numpy as np

from tracer.coalesce import LINES_PER_EVENT, active_lanes, makes_requests
from tracer.compile.jit import compiled
from traces.schema import (
    BARRIERS,
    BULK_ALIGN,
    BULK_BYTES,
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    EXPLICIT,
    LATER,
    LINE_BYTES,
    NO_SLOT,
    PHASE_ARRIVE,
    PHASE_BARRIERS,
    PHASE_WAIT,
    SLOTS,
    WIDTH_BYTES,
    Bulk,
    Cache,
    Kind,
    Pipe,
    Space,
)
from traces.source import LAST_ADDRESS

MAX_ROW_STRIDE_BYTES = 1 << 48
MAX_PITCH_BYTES = MAX_ROW_STRIDE_BYTES // BULK_BYTES
"""Largest distance of the rows of a bulk copy."""
MAX_CLOCKS = 1 << 40
"""Largest sum of instructions and clocks of the events of a workgroup: a quarter of an hour if one warp does all."""
LANES = (32, 64)
BARRIER, ASYNC_COPY, EXIT = int(Kind.BARRIER), int(Kind.ASYNC_COPY), int(Kind.EXIT)
COMPUTE = int(Kind.COMPUTE)
BULK, BULK_LOAD, BULK_SEND, LAST_BULK = int(Kind.BULK), int(Bulk.LOAD), int(Bulk.SEND), int(max(Bulk))
LAST_KIND, LAST_SPACE, LAST_CACHE, LAST_PIPE = int(max(Kind)), int(max(Space)), int(max(Cache)), int(max(Pipe))

assert (LINE_BYTES + WIDTH_BYTES - 1 + LINE_BYTES - 1) // LINE_BYTES * max(LANES) <= LINES_PER_EVENT


class Fault(IntEnum):
    """Reason why an event is impossible."""

    NONE = 0
    KIND = 1
    SPACE = 2
    CACHE = 3
    PIPE = 4
    WIDTH = 5
    SLOT = 6
    MASK = 7
    LISTED = 8
    ROW_STRIDE = 9
    ADDRESS = 10
    BARRIER = 11
    ARRIVE = 12
    THREADS = 13
    EARLY_EXIT = 14
    CLOCKS = 15
    PHASES = 16
    BULK_KIND = 17
    BULK_SLOT = 18
    BULK_BARRIER = 19
    BULK_ROW = 20
    BULK_ROWS = 21
    BULK_PITCH = 22
    BULK_BASE = 23
    PEERS = 24
    PEER = 25
    REMOTE_KIND = 26
    EXPECTED = 27
    PHASE_BARRIER = 28
    LATER = 29


FIELDS = {
    Fault.KIND: ("kind", f"0 to {LAST_KIND}"),
    Fault.SPACE: ("space", f"0 to {LAST_SPACE}"),
    Fault.CACHE: ("cache", f"0 to {LAST_CACHE}"),
    Fault.PIPE: ("pipe", f"0 to {LAST_PIPE}"),
    Fault.WIDTH: ("width_bytes", f"1 to {WIDTH_BYTES}"),
    Fault.SLOT: ("slot", f"0 to {SLOTS - 1} or {NO_SLOT}"),
    Fault.MASK: ("mask", "as many bits as a warp has lanes"),
    Fault.LISTED: ("base", "as many listed addresses as lanes from there on"),
    Fault.ROW_STRIDE: ("row_stride", f"-{MAX_ROW_STRIDE_BYTES:,} to {MAX_ROW_STRIDE_BYTES:,}"),
    Fault.ADDRESS: ("base", "addresses of all lanes from 0 to 2^63 - 1"),
    Fault.BARRIER: ("slot", f"of a barrier 0 to {BARRIERS - 1}"),
    Fault.PHASE_BARRIER: (
        "slot",
        f"of a transaction barrier 0 to {PHASE_BARRIERS - 1}, of one of a set of workgroups 0 to {BARRIERS - 1}",
    ),
    Fault.ARRIVE: ("space", f"of a barrier 0 to {CLUSTER_WAIT}, in a cluster; else 0 to {PHASE_WAIT}"),
    Fault.THREADS: ("work", "of a barrier up to the threads of the workgroup"),
    Fault.EARLY_EXIT: ("kind", "EXIT only as the last event of a warp"),
    Fault.CLOCKS: ("count", f"with cycles up to {MAX_CLOCKS:,} in a workgroup"),
    Fault.PHASES: ("work", "of an arrival at a transaction barrier 1 to the threads of the cluster"),
    Fault.BULK_KIND: ("space", f"of a bulk copy 0 to {LAST_BULK}"),
    Fault.BULK_SLOT: ("slot", f"of a bulk copy 0 to {SLOTS - 1}"),
    Fault.BULK_BARRIER: (
        "inner",
        f"of a bulk load 0 to {PHASE_BARRIERS - 1} or {NO_SLOT}, of one for a set of workgroups and of a send 0 to "
        f"{BARRIERS - 1}, of others {NO_SLOT}",
    ),
    Fault.BULK_ROW: ("stride", f"of a bulk copy 1 to {BULK_BYTES:,} bytes in a row"),
    Fault.BULK_ROWS: ("work", f"of a bulk copy at least one row, and up to {BULK_BYTES:,} bytes in all rows"),
    Fault.BULK_PITCH: (
        "row_stride",
        f"of a bulk copy a multiple of {BULK_ALIGN}, the bytes of a row or more, up to {MAX_PITCH_BYTES:,}",
    ),
    Fault.BULK_BASE: ("base", f"of a bulk copy a multiple of {BULK_ALIGN}, all rows below 2^63"),
    Fault.PEERS: ("cycles", "as a set of workgroups: bits of ranks in the cluster; 0 without one, and of stores"),
    Fault.PEER: ("cycles", "as the set of the one workgroup that is meant: one bit of a rank in the cluster"),
    Fault.REMOTE_KIND: ("space", "remote (3) only of loads, stores, atomics and reductions without listed addresses"),
    Fault.LATER: ("space", f"of arithmetic 0 or {LATER}"),
    Fault.EXPECTED: ("row_stride", f"of an arrival at a transaction barrier 0 to {BULK_BYTES:,} bytes"),
}
"""Fault -> field of the event, what is allowed."""


@compiled(inline=True)
def _address_fault(event, lanes, addresses):
    """(Fault, first byte, last byte) of a memory event with active lanes. Listed addresses give no extent."""
    base = np.int64(event.base)
    if event.inner == EXPLICIT:
        listed = base >= 0 and base <= len(addresses) - lanes
        return (Fault.NONE if listed else Fault.LISTED), LAST_ADDRESS, 0
    rows = (lanes - 1) // np.int64(event.inner)
    across = (min(lanes, np.int64(event.inner)) - 1) * np.int64(event.stride)
    down = np.int64(0)
    if rows > 0:
        if event.row_stride > MAX_ROW_STRIDE_BYTES or event.row_stride < -MAX_ROW_STRIDE_BYTES:
            return Fault.ROW_STRIDE, LAST_ADDRESS, 0
        down = rows * event.row_stride
    low = base + min(across, 0) + min(down, 0)
    above = max(across, 0) + max(down, 0) + np.int64(event.width_bytes)
    if base < 0 or low < 0 or base > LAST_ADDRESS - above:
        return Fault.ADDRESS, LAST_ADDRESS, 0
    return Fault.NONE, low, base + above - 1


@compiled(inline=True)
def _peers_fault(event, cluster, one):
    """Fault of the set of workgroups of an event; one: it must have one member."""
    peers = np.int64(event.cycles)
    unknown = peers >> cluster != 0 or (cluster == 1 and peers != 0)
    if one and (peers == 0 or peers & (peers - 1) != 0 or unknown):
        return Fault.PEER
    return Fault.PEERS if unknown else Fault.NONE


@compiled(inline=True)
def _memory_fault(event, lanes_per_warp, cluster):
    if event.space > LAST_SPACE:
        return Fault.SPACE
    if event.space == Space.REMOTE:
        if event.kind == ASYNC_COPY or event.inner == EXPLICIT:
            return Fault.REMOTE_KIND
        if _peers_fault(event, cluster, True) != Fault.NONE:
            return Fault.PEER
    if event.cache > LAST_CACHE:
        return Fault.CACHE
    if lanes_per_warp < 64 and event.mask >> np.uint64(lanes_per_warp) != np.uint64(0):
        return Fault.MASK
    if makes_requests(event) and (event.width_bytes == 0 or event.width_bytes > WIDTH_BYTES):
        return Fault.WIDTH
    return Fault.NONE


@compiled(inline=True)
def _barrier_fault(event, threads, cluster):
    if event.space > CLUSTER_WAIT:
        return Fault.ARRIVE
    if event.space == CLUSTER_ARRIVE or event.space == CLUSTER_WAIT:
        return Fault.NONE if cluster > 1 else Fault.ARRIVE
    if event.space == PHASE_WAIT or event.space == PHASE_ARRIVE:
        own = event.space == PHASE_WAIT or event.cycles == 0
        if event.slot >= (PHASE_BARRIERS if own else BARRIERS):
            return Fault.PHASE_BARRIER
    elif event.slot >= BARRIERS:
        return Fault.BARRIER
    if event.space == PHASE_WAIT:
        return Fault.NONE
    if event.space == PHASE_ARRIVE:
        if event.work == 0 or event.work > threads * cluster:
            return Fault.PHASES
        if event.row_stride < 0 or event.row_stride > BULK_BYTES:
            return Fault.EXPECTED
        return _peers_fault(event, cluster, False)
    return Fault.THREADS if event.work > threads else Fault.NONE


@compiled(inline=True)
def _bulk_peers_fault(event, cluster):
    """Fault of the transaction barrier of a bulk copy and of the workgroups that get the data."""
    peers, load, send = np.int64(event.cycles), event.space == BULK_LOAD, event.space == BULK_SEND
    signals = send or (load and peers != 0)
    if signals and event.inner >= BARRIERS:
        return Fault.BULK_BARRIER
    if event.inner != NO_SLOT and (event.inner >= PHASE_BARRIERS or not (load or send)):
        return Fault.BULK_BARRIER
    if peers != 0 and not signals:
        return Fault.PEERS
    return _peers_fault(event, cluster, send)


@compiled
def _bulk_fault(event, cluster):
    """(Fault, first byte, last byte) of a bulk copy."""
    row, rows, pitch, base = np.int64(event.stride), np.int64(event.work), event.row_stride, np.int64(event.base)
    fault = Fault.NONE
    if event.space > LAST_BULK:
        fault = Fault.BULK_KIND
    elif event.slot >= SLOTS:
        fault = Fault.BULK_SLOT
    elif _bulk_peers_fault(event, cluster) != Fault.NONE:
        fault = _bulk_peers_fault(event, cluster)
    elif event.cache > LAST_CACHE:
        fault = Fault.CACHE
    elif row < 1 or row > BULK_BYTES:
        fault = Fault.BULK_ROW
    elif rows < 1 or rows * row > BULK_BYTES:
        fault = Fault.BULK_ROWS
    elif rows > 1 and (pitch < row or pitch > MAX_PITCH_BYTES or pitch % BULK_ALIGN != 0):
        fault = Fault.BULK_PITCH
    elif base < 0 or base % BULK_ALIGN != 0 or base > LAST_ADDRESS - (rows - 1) * pitch - row:
        fault = Fault.BULK_BASE
    if fault != Fault.NONE:
        return fault, LAST_ADDRESS, 0
    return fault, base, base + (rows - 1) * pitch + row - 1


@compiled
def event_fault(events, addresses, warps, threads, lanes_per_warp, cluster):
    """The first impossible event.

    Args:
        events: EVENT of a workgroup that passed `structure_fault`.
        addresses: u8, its explicit lane addresses.
        warps: number of warps in `events`. threads: threads of a full workgroup. cluster: workgroups of a cluster.

    Returns:
        (Fault, its row, first byte, last byte). Without a fault the bytes are the extent of all addresses not listed.
    """
    low, high = LAST_ADDRESS, 0
    exits, clocks = 0, 0
    for e in range(len(events)):
        event = events[e]
        kind = np.int64(event.kind)
        if kind > LAST_KIND:
            return Fault.KIND, e, low, high
        clocks += np.int64(event.count) + np.int64(event.cycles)
        fault = Fault.NONE
        if kind == BARRIER:
            fault = _barrier_fault(event, threads, cluster)
        elif kind == BULK:
            fault, first, last = _bulk_fault(event, cluster)
            if fault == Fault.NONE and event.space != BULK_SEND:
                low, high = min(low, first), max(high, last)
        elif event.slot != NO_SLOT and event.slot >= SLOTS:
            fault = Fault.SLOT
        elif event.pipe > LAST_PIPE:
            fault = Fault.PIPE
        elif kind == COMPUTE and event.space > LATER:
            fault = Fault.LATER
        elif kind <= ASYNC_COPY:
            fault = _memory_fault(event, lanes_per_warp, cluster)
            lanes = active_lanes(event.mask)
            if fault == Fault.NONE and lanes > 0 and (event.space != Space.SHARED or event.inner == EXPLICIT):
                fault, first, last = _address_fault(event, lanes, addresses)
                if event.space != Space.REMOTE:
                    low, high = min(low, first), max(high, last)
        elif kind == EXIT:
            exits += 1
            if exits > warps:
                fault = Fault.EARLY_EXIT
        if fault == Fault.NONE and clocks > MAX_CLOCKS:
            fault = Fault.CLOCKS
        if fault != Fault.NONE:
            return fault, e, low, high
    return Fault.NONE, -1, low, high
