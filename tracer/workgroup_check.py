"""Check kernels and workgroups before a compiled function reads them. All readers use this check.

Compiled functions run without index checks, so no value of an event may point outside its array. `run` checks each
workgroup here before it enters the trace window. `trace verify`, `trace export` and `trace info --by-line` use the same
functions, so an archive that passes `trace verify` can also be simulated.
"""

from collections.abc import Iterator
from enum import IntEnum
from math import prod
from typing import NamedTuple

import numpy as np

from tracer.coalesce import LINES_PER_EVENT, active_lanes, makes_requests
from tracer.compile.jit import compiled
from traces.errors import UserError
from traces.schema import (
    BARRIERS,
    BULK_ALIGN,
    BULK_BYTES,
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    EVENT,
    EXPLICIT,
    LINE_BYTES,
    MAX_CLUSTER,
    MAX_WARPS,
    NO_SLOT,
    PHASE_ARRIVE,
    PHASE_WAIT,
    SLOTS,
    WIDTH_BYTES,
    Bulk,
    Cache,
    Kind,
    Pipe,
    Space,
)
from traces.source import LAST_ADDRESS, KernelInfo, KernelSource, Workgroup

MAX_ROW_STRIDE_BYTES = 1 << 48
MAX_CLOCKS = 1 << 40
"""Largest sum of instructions and clocks of the events of a workgroup: a quarter of an hour if one warp does all."""
MAX_WORKGROUPS = 1 << 48
MAX_REGISTERS = 1 << 16
MAX_SHARED_BYTES = 1 << 32
LANES = (32, 64)
BARRIER, ASYNC_COPY, EXIT, COMPUTE = int(Kind.BARRIER), int(Kind.ASYNC_COPY), int(Kind.EXIT), int(Kind.COMPUTE)
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
    Fault.ARRIVE: ("space", f"of a barrier 0 to {CLUSTER_WAIT}, in a cluster; else 0 to {PHASE_WAIT}"),
    Fault.THREADS: ("work", "of a barrier up to the threads of the workgroup"),
    Fault.EARLY_EXIT: ("kind", "EXIT only as the last event of a warp"),
    Fault.CLOCKS: ("count", f"with cycles up to {MAX_CLOCKS:,} in a workgroup"),
    Fault.PHASES: ("work", "of an arrival at a transaction barrier 1 to the threads of the cluster"),
    Fault.BULK_KIND: ("space", f"of a bulk copy 0 to {LAST_BULK}"),
    Fault.BULK_SLOT: ("slot", f"of a bulk copy 0 to {SLOTS - 1}"),
    Fault.BULK_BARRIER: (
        "inner",
        f"of a bulk load 0 to {BARRIERS - 1} or {NO_SLOT}, of one for a set of workgroups and of a send 0 to "
        f"{BARRIERS - 1}, of others {NO_SLOT}",
    ),
    Fault.BULK_ROW: ("stride", f"of a bulk copy 1 to {BULK_BYTES:,} bytes in a row"),
    Fault.BULK_ROWS: ("work", f"of a bulk copy at least one row, and up to {BULK_BYTES:,} bytes in all rows"),
    Fault.BULK_PITCH: ("row_stride", f"of a bulk copy a multiple of {BULK_ALIGN}, the bytes of a row or more"),
    Fault.BULK_BASE: ("base", f"of a bulk copy a multiple of {BULK_ALIGN}, all rows below 2^63"),
    Fault.PEERS: ("cycles", "as a set of workgroups: bits of ranks in the cluster; 0 without one, and of stores"),
    Fault.PEER: ("cycles", "as the set of the one workgroup that is meant: one bit of a rank in the cluster"),
    Fault.REMOTE_KIND: ("space", "remote (3) only of loads, stores, atomics and reductions without listed addresses"),
    Fault.EXPECTED: ("row_stride", f"of an arrival at a transaction barrier 0 to {BULK_BYTES:,} bytes"),
}
"""Fault -> field of the event, what is allowed."""


class Extent(NamedTuple):
    """The address range that a workgroup reaches with its own bases: first byte, last byte."""

    low: int
    high: int

    def may_move(self, shift_bytes: np.ndarray) -> bool:
        """True if all addresses stay possible after each of these shifts, i8 [n]."""
        lowest, highest = int(shift_bytes.min()), int(shift_bytes.max())
        return self.low + lowest >= 0 and self.high + highest <= LAST_ADDRESS


@compiled
def structure_fault(warp, first_event, events, warps):
    """The first warp with an impossible number or impossible edges; -1 if all are possible.

    Args:
        warp: u2 [n], first_event: i8 [n + 1], events: EVENT.
        warps: of a full workgroup.

    Returns:
        (position in `warp`, reason): 1 = its number, 2 = a repeated number, 3 = its edges, 4 = no EXIT at its end.
    """
    seen = np.uint64(0)
    for w in range(len(warp)):
        if warp[w] >= warps:
            return w, 1
        bit = np.uint64(1) << np.uint64(warp[w])
        if seen & bit != np.uint64(0):
            return w, 2
        seen |= bit
        begin, end = first_event[w], first_event[w + 1]
        if begin < 0 or end < begin or end > len(events) or (w == 0 and begin != 0):
            return w, 3
        if end == begin or events[end - 1].kind != EXIT:
            return w, 4
    return (len(warp), 3) if first_event[len(warp)] != len(events) else (-1, 0)


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
    if event.slot >= BARRIERS:
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
    if event.inner != NO_SLOT and (event.inner >= BARRIERS or not (load or send)):
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
    elif rows > 1 and (pitch < row or pitch > MAX_ROW_STRIDE_BYTES // BULK_BYTES or pitch % BULK_ALIGN != 0):
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


@compiled
def _too_high(addresses):
    """Index of the first listed address of 2^63 or more; -1 if there is none."""
    every = np.uint64(0)
    for k in range(len(addresses)):
        every |= addresses[k]
    if np.int64(every) >= 0:
        return -1
    for k in range(len(addresses)):
        if np.int64(addresses[k]) < 0:
            return k
    return -1


def check_kernel(info: KernelInfo) -> None:
    """Refuse a kernel with impossible attributes.

    Raises:
        UserError: names the kernel, the field, what was found and what is allowed.
    """
    if len(info.grid) != 3 or len(info.block) != 3:
        raise UserError(f"kernel {info.name}: grid, block: found {info.grid}, {info.block}, allowed are three numbers")
    threads = prod(max(0, n) for n in info.block)
    warps = -(-threads // max(1, info.lanes_per_warp))
    ranges = (
        ("lanes_per_warp", info.lanes_per_warp, *LANES),
        *(("grid", n, 1, MAX_WORKGROUPS) for n in (*info.grid, prod(info.grid))),
        *(("block", n, 1, MAX_WARPS * max(LANES)) for n in (*info.block, threads)),
        ("warps_per_workgroup", info.warps_per_workgroup, warps, warps),
        ("warps_per_workgroup", info.warps_per_workgroup, 1, MAX_WARPS),
        ("workgroups", info.workgroups, 0, prod(info.grid)),
        ("registers", info.registers, 0, MAX_REGISTERS),
        ("shared_bytes", info.shared_bytes, 0, MAX_SHARED_BYTES),
        ("stream", info.stream, 0, LAST_ADDRESS),
        ("cluster", info.cluster, 1, MAX_CLUSTER),
    )
    for field, found, low, high in ranges:
        if not low <= found <= high or (field == "lanes_per_warp" and found not in LANES):
            raise UserError(f"kernel {info.name}: {field}: found {found}, allowed {low} to {high}")
    if info.workgroups % info.cluster:
        raise UserError(f"kernel {info.name}: cluster: found {info.cluster}, which does not divide its "
                        f"{info.workgroups} workgroups, allowed is what does")  # fmt: skip


def check_structure(info: KernelInfo, workgroup: Workgroup) -> None:
    """Refuse a workgroup with an impossible place in the grid, impossible warps or edges. Events are not checked.

    Raises:
        UserError: names kernel, workgroup, warp, what was found and what is allowed.
    """
    where = f"kernel {info.name}, workgroup {workgroup.index}"
    if not 0 <= workgroup.index < prod(info.grid):
        raise UserError(f"{where}: workgroup_index: found {workgroup.index}, allowed 0 to {prod(info.grid) - 1}")
    if workgroup.events.dtype != EVENT or len(workgroup.first_event) != len(workgroup.warp) + 1:
        raise UserError(f"{where}: found {workgroup.events.dtype} events of {len(workgroup.warp)} warps with "
                        f"{len(workgroup.first_event)} edges, allowed are EVENT records and one edge more")  # fmt: skip
    if info.cluster > 1 and not len(workgroup.warp):
        raise UserError(f"{where}: found no warps, allowed is at least one in a workgroup of a cluster")
    place, reason = structure_fault(*workgroup[1:4], info.warps_per_workgroup)
    if place < 0:
        return
    if reason == 3:
        raise UserError(f"{where}: warp_first_event: found {workgroup.first_event.tolist()[:8]}, "
                        f"allowed are edges that rise from 0 to {len(workgroup.events)}")  # fmt: skip
    number = int(workgroup.warp[place])
    if reason == 4:
        begin, end = workgroup.first_event[place : place + 2].tolist()
        found = f"kind: found {workgroup.events['kind'][end - 1]}" if begin < end else "found no event"
        raise UserError(f"{where}, warp {number}: {found}, allowed {EXIT}: every warp must end with an EXIT event")
    again = " for the second time" if reason == 2 else ""
    raise UserError(f"{where}: warp_index: found warp {number}{again}, but the kernel has {info.warps_per_workgroup}, "
                    f"allowed 0 to {info.warps_per_workgroup - 1}, each once")  # fmt: skip


def check_events(info: KernelInfo, workgroup: Workgroup) -> Extent:
    """Refuse a workgroup with an impossible event. Its structure must be checked before. Returns its address range.

    Raises:
        UserError: names kernel, workgroup, row, field, what was found and what is allowed.
    """
    events, addresses, warps = workgroup.events, workgroup.addresses, len(workgroup.warp)
    threads = info.warps_per_workgroup * info.lanes_per_warp
    fault, row, low, high = event_fault(events, addresses, warps, threads, info.lanes_per_warp, info.cluster)
    where = f"kernel {info.name}, workgroup {workgroup.index}"
    if fault != Fault.NONE:
        field, allowed = FIELDS[Fault(fault)]
        warp = int(workgroup.warp[np.searchsorted(workgroup.first_event, row, side="right") - 1])
        raise UserError(f"{where}, warp {warp}, event {row} of the workgroup: {field}: "
                        f"found {events[field][row]}, allowed {allowed}")  # fmt: skip
    listed = _too_high(addresses)
    if listed >= 0:
        raise UserError(f"{where}: addresses: row {listed}: found {addresses[listed]}, allowed 0 to 2^63 - 1")
    return Extent(low, high)


def checked_workgroups(kernel: KernelSource) -> Iterator[Workgroup]:
    """The workgroups of a kernel. Each is checked before it is yielded."""
    check_kernel(kernel.info)
    for workgroup in kernel.workgroups():
        check_structure(kernel.info, workgroup)
        check_events(kernel.info, workgroup)
        yield workgroup
