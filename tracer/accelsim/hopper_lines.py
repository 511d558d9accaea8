"""Turn events of Hopper into instruction lines of tracer version 6: bulk copies, transaction barriers, clusters.

    bulk load, store, reduction      UTMALDG.2D[.MULTICAST], UTMASTG.2D, UTMAREDG.2D.ADD with their transfers
    arrival at a transaction barrier SYNCS.ARRIVE.TRANS64.RED.A1T0, one lane for each workgroup of its set
    ... that follows loads to it     SYNCS.ARRIVE.TRANS64, which announces their bytes and those that others bring
    wait for n phases                SYNCS.PHASECHK.TRANS64.TRYWAIT with the parity of phase n - 1
    barrier of the cluster           UCGABAR_ARV, UCGABAR_WAIT

First come lines that no event has: the first warp makes the barriers (SYNCS.EXCH.64), then all warps wait for each
other. Lines have notes (`tracer.accelsim.warp_lines`) behind the values of registers, where Accel-Sim ignores them.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import gcd

import numpy as np

from tracer.accelsim.instruction import BULK_LANES_MAX
from tracer.accelsim.phases import INIT_BIAS, PLACE_BITS, WORD
from tracer.accelsim.tensor import WARPS_PER_GROUP
from tracer.accelsim.warp_lines import ADDRESS_REGISTER, ALL_LANES, HELPER_NOTE, TENSOR_BY_MACS, Row, WarpLines, rows_of
from traces.errors import UserError
from traces.schema import (
    ARRIVE_ONLY,
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    NO_SLOT,
    PHASE_ARRIVE,
    PHASE_WAIT,
    Bulk,
    Kind,
    Space,
)
from traces.source import Workgroup

FIRST_PLACE, PLACE_BYTES = 0x400, 8
"""Places of the barriers in shared memory. CUDA keeps the first 1,024 bytes."""
VALUE_REGISTER = "R251"
TRANSFER_BYTES = 16
"""Most bytes of a transfer of a bulk copy."""
COLUMN_MACS, COLUMNS_STEP, COLUMNS_MAX = 64 * 16 // WARPS_PER_GROUP, 8, 256
"""Of HGMMA: multiply-accumulates of a warp for each column of B, and the columns that it can have."""
OPCODE = {Bulk.LOAD: "UTMALDG.2D", Bulk.STORE: "UTMASTG.2D", Bulk.REDUCE: "UTMAREDG.2D.ADD"}


def needs_hopper(events: np.ndarray) -> bool:
    """True if a version before 6 cannot express one of these EVENTs."""
    barrier = (events["kind"] == Kind.BARRIER) & (events["space"] > ARRIVE_ONLY)
    return bool((barrier | (events["kind"] == Kind.BULK)).any())


def ranks_in(peers: int, own: int) -> list[int]:
    """Ranks of a set of workgroups; 0 = the own one."""
    return [rank for rank in range(peers.bit_length()) if peers >> rank & 1] or [own]


def barriers_of(workgroups: Sequence[Workgroup]) -> list[dict[int, int]]:
    """For each workgroup of a cluster: number of a transaction barrier -> arrivals of a phase, lowest number first.

    Numbers between them that are not used have one arrival: readers count barriers from the first on.
    """
    found: list[dict[int, int]] = [{} for _ in workgroups]
    for own, workgroup in enumerate(workgroups):
        events = workgroup.events
        arrives = (events["kind"] == Kind.BARRIER) & (events["space"] == PHASE_ARRIVE)
        for slot, work, cycles in set(events[["slot", "work", "cycles"]][arrives].tolist()):
            for rank in ranks_in(cycles, own):
                found[rank][slot] = work
    return [{number: barriers.get(number, 1) for number in range(max(barriers, default=-1) + 1)} for barriers in found]


class HopperLines(WarpLines):
    """Writes the lines of one warp."""

    def __init__(self, addresses: np.ndarray, rank: int, barriers: Iterable[tuple[int, int]] | None) -> None:
        """Args:
        addresses: u8, listed lane addresses of the workgroup.
        rank: of the workgroup in its cluster.
        barriers: (number, arrivals of a phase) that this warp makes; None = another warp makes them.
        """
        super().__init__(addresses, noted=True)
        self._rank = rank
        self._copied: defaultdict[int, int] = defaultdict(int)  # bytes that the warp has loaded to each barrier
        for number, arrivals in barriers or ():
            coded = (INIT_BIAS - arrivals << 1) & WORD
            self._helper_line("00000001", "SYNCS.EXCH.64", self._place(number), f"{coded:x}")
        self._helper_line("ffffffff", "BAR.SYNC.DEFER_BLOCKING", "0", None)

    def add(self, event: Row) -> None:
        """Write the lines of one event."""
        if event.kind <= Kind.REDUCE and event.space == Space.REMOTE:
            raise UserError("space: found 3 (shared memory of another workgroup), which the writer does not have")
        if event.kind == Kind.BULK:
            self._bulk(event)
        elif event.kind == Kind.BARRIER:
            self._barrier(event)
        else:
            super().add(event)

    def _end(self, imm: int, note: str) -> str:
        return f"{imm} 0 NoVal {note}"

    def _tensor(self, macs: int) -> tuple[str, str]:
        if macs <= max(TENSOR_BY_MACS):
            return super()._tensor(macs)
        columns = min(COLUMNS_STEP * round(macs / (COLUMNS_STEP * COLUMN_MACS)), COLUMNS_MAX)
        return f"HGMMA.64x{columns}x16.F32", "0 0"  # the first column says if it ends a group

    def _address(self, rank: int, number: int) -> int:
        return (rank << PLACE_BITS) + FIRST_PLACE + PLACE_BYTES * number

    def _place(self, number: int) -> str:
        """Memory columns of an own barrier."""
        return f"8 1 {self._address(self._rank, number):#x} 0"

    def _helper_line(self, mask: str, opcode: str, memory: str, value: str | None) -> None:
        """A line that no event has."""
        sources = f"2 {ADDRESS_REGISTER} {VALUE_REGISTER}" if value is not None else "0"
        values = f"Val 1 0 1 {value}" if value is not None else "NoVal"
        self.lines.append(f"0000 {mask} 0 {opcode} {sources} {memory} 0 0 {values} {HELPER_NOTE}")

    def _plain(self, event: Row, mask: int, opcode: str, memory: str, end: str) -> None:
        """A line of an event: its sources are the address and a value."""
        note = self._note(event)
        head = f"{event.pc:04x} {mask:08x} 0 {opcode} 2 {ADDRESS_REGISTER} {VALUE_REGISTER} {memory}"
        self.lines.append(f"{head} {end} {note}")

    def _barrier(self, event: Row) -> None:
        number = event.slot
        if event.space == PHASE_WAIT:
            parity = (event.work - 1 & 1) << 31
            opcode = "SYNCS.PHASECHK.TRANS64.TRYWAIT"
            self._plain(event, ALL_LANES, opcode, self._place(number), f"0 0 Val 1 0 1 {parity:x}")
        elif event.space == PHASE_ARRIVE:
            self._arrive(event)
        elif event.space in (CLUSTER_ARRIVE, CLUSTER_WAIT):
            opcode = "UCGABAR_ARV" if event.space == CLUSTER_ARRIVE else "UCGABAR_WAIT"
            self._plain(event, ALL_LANES, opcode, "0", "0 0 NoVal")
        else:
            opcode = "BAR.ARV" if event.space == ARRIVE_ONLY else "BAR.SYNC"
            self._plain(event, ALL_LANES, opcode, "0", f"{number} {event.work} NoVal")

    def _arrive(self, event: Row) -> None:
        data_bytes = self._copied.pop(event.slot, 0) + event.row_stride if not event.cycles else event.row_stride
        if event.cycles and data_bytes:
            raise UserError(f"row_stride: found {data_bytes} bytes that an arrival at barriers of a set of workgroups "
                            "announces, an Accel-Sim trace has them at the own barrier only")  # fmt: skip
        if data_bytes:
            opcode, memory = "SYNCS.ARRIVE.TRANS64", self._place(event.slot)
            self._plain(event, 1, opcode, memory, f"0 0 Val 1 0 1 {data_bytes:x}")
            return
        targets = [self._address(rank, event.slot) for rank in ranks_in(event.cycles, self._rank)]
        memory = "8 0 " + " ".join(f"{address:#x}" for address in targets)
        self._plain(event, (1 << len(targets)) - 1, "SYNCS.ARRIVE.TRANS64.RED.A1T0", memory, "0 0 Val 1 0 1 1")

    def _bulk(self, event: Row) -> None:
        if event.space == Bulk.SEND:
            raise UserError("space of a bulk copy: found 3 (between workgroups), an Accel-Sim trace does not tell it")
        opcode, row, rows, number = OPCODE[Bulk(event.space)], event.stride, event.work, event.inner
        if rows * -(-row // TRANSFER_BYTES) > BULK_LANES_MAX:
            raise UserError(
                f"work: found {rows} rows of {row} bytes of a bulk copy, an Accel-Sim trace is read with up to "
                f"{BULK_LANES_MAX} transfers of {TRANSFER_BYTES} bytes"
            )
        ranks = ranks_in(event.cycles, self._rank)
        if self._rank in ranks and event.space == Bulk.LOAD:
            self._copied[number] += row * rows
        multicast = f"1 {event.cycles:#06x}" if event.cycles else "0"
        opcode += ".MULTICAST" if event.cycles else ""
        barrier = 0 if number == NO_SLOT else self._address(self._rank, number)
        width = gcd(row, TRANSFER_BYTES)
        across = [width] * (row // width - 1)
        deltas = across + [event.row_stride - row + width, *across] * (rows - 1)
        columns = f"{width} {barrier:#010x} {multicast} {row * rows} 0 4 {event.base:#x} {len(deltas) + 1} "
        self._plain(event, 1, opcode, columns + " ".join(map(str, deltas)), "0 0 NoVal")


def hopper_body(workgroups: Sequence[Workgroup]) -> list[list[tuple[int, list[str]]]]:
    """For each workgroup of a cluster, in order of rank: (warp, its lines)."""
    made, bodies = barriers_of(workgroups), []
    for rank, workgroup in enumerate(workgroups):
        body = []
        for position, warp in enumerate(workgroup.warp.tolist()):
            lines = HopperLines(workgroup.addresses, rank, made[rank].items() if position == 0 else None)
            for event in rows_of(workgroup.events[slice(*workgroup.first_event[position : position + 2])]):
                lines.add(event)
            body.append((warp, lines.lines))
        bodies.append(body)
    return bodies
