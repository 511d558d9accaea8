"""Check kernels and workgroups before a compiled function reads them. All readers use this check.

Compiled functions run without index checks, so no value of an event may point outside its array. `run` checks each
workgroup here before it enters the trace window. `trace import`, `trace verify`, `trace export` and
`trace info --by-line` use the same functions, so an archive that passes `trace verify` can also be simulated.
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from tracer.compile.jit import compiled
from tracer.event_faults import EXIT, FIELDS, LANES, Fault, event_fault
from traces.errors import UserError
from traces.schema import EVENT, MAX_CLUSTER, MAX_WARPS
from traces.source import LAST_ADDRESS, KernelInfo, KernelSource, Workgroup

MAX_WORKGROUPS = 1 << 48
MAX_REGISTERS = 1 << 16
MAX_SHARED_BYTES = 1 << 32


class EventError(UserError):
    """An impossible event, or an impossible listed address.

    Attributes:
        event, address: its row in the workgroup; -1 = it is not that.
    """

    def __init__(self, message: str, event: int = -1, address: int = -1) -> None:
        super().__init__(message)
        self.event, self.address = event, address


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
        found = f"{field}: found {events[field][row]}, allowed {allowed}"
        raise EventError(f"{where}, warp {warp}, event {row} of the workgroup: {found}", event=row)
    listed = _too_high(addresses)
    if listed >= 0:
        found = f"row {listed}: found {addresses[listed]}, allowed 0 to 2^63 - 1"
        raise EventError(f"{where}: addresses: {found}", address=listed)
    return Extent(low, high)


def check_workgroup(info: KernelInfo, workgroup: Workgroup) -> Extent:
    """Refuse a workgroup that cannot be simulated. Returns its address range.

    Raises:
        UserError: as `check_structure` and `check_events`.
    """
    check_structure(info, workgroup)
    return check_events(info, workgroup)


def checked_workgroups(kernel: KernelSource) -> Iterator[Workgroup]:
    """The workgroups of a kernel. Each is checked before it is yielded."""
    check_kernel(kernel.info)
    for workgroup in kernel.workgroups():
        check_workgroup(kernel.info, workgroup)
        yield workgroup
