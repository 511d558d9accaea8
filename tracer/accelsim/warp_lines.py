"""Turn the events of one warp into instruction lines of tracer version 5.

Accel-Sim finds dependences by registers, so each slot has a block of four registers. The event with slot s writes
R(4 + 4 s), or a spare block while other results of the same slot are pending. Events that wait for s read these
registers. LDGDEPBAR closes a copy group and DEPBAR waits for it. If an event waits for a copy without a WAIT event, the
writer adds both lines. A COMPUTE event becomes `count` instructions.

Registers cannot express more waits than source columns, several loads in one slot, two successive COMPUTE events of one
pipe, or uncached accesses. The writer puts these in a note after the immediate, `T3 slot wait cache`. Accel-Sim ignores
the note; `tracer.accelsim` reads it. Slot HELPER marks an added line, REPEAT a further instruction of one event.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tracer.accelsim.instruction import ACCELSIM_SOURCES, HELPER, REPEAT
from traces.errors import UserError
from traces.schema import ARRIVE_ONLY, EVENT, EXPLICIT, NO_SLOT, PLAIN_STRIDE, SLOTS, Cache, Kind, Pipe, Space

ADDRESS_REGISTER = "R252"
"""Source register if there is nothing to wait for. R252 to R255 are never written."""
SLOT_BLOCKS = 62
WIDTH_TOKEN = {1: ".U8", 2: ".U16", 4: "", 8: ".64", 16: ".128"}
CACHE_TOKEN = {Cache.DEFAULT: "", Cache.BYPASS_L1: ".STRONG.GPU", Cache.STREAM: ".EF", Cache.UNCACHED: ".UNCACHED"}
ACCESS = {
    (Kind.LOAD, Space.GLOBAL): "LDG.E", (Kind.LOAD, Space.LOCAL): "LDL", (Kind.LOAD, Space.SHARED): "LDS",
    (Kind.STORE, Space.GLOBAL): "STG.E", (Kind.STORE, Space.LOCAL): "STL", (Kind.STORE, Space.SHARED): "STS",
    (Kind.ATOMIC, Space.GLOBAL): "ATOMG.E.ADD", (Kind.ATOMIC, Space.LOCAL): "ATOMG.E.ADD",
    (Kind.ATOMIC, Space.SHARED): "ATOMS.ADD",
    (Kind.REDUCE, Space.GLOBAL): "RED.E.ADD", (Kind.REDUCE, Space.LOCAL): "RED.E.ADD",
    (Kind.REDUCE, Space.SHARED): "ATOMS.ADD",
}  # fmt: skip
SOURCES_LEAST = {Kind.LOAD: 1, Kind.STORE: 2, Kind.ATOMIC: 2, Kind.REDUCE: 2, Kind.ASYNC_COPY: 2}
WORK = {  # opcodes that Accel-Sim has for every architecture: it stops at an unknown opcode
    Pipe.ALU: "IADD3", Pipe.FMA: "FFMA", Pipe.FP64: "DADD", Pipe.SFU: "MUFU.RCP", Pipe.BRANCH: "BRA",
    Pipe.UNIFORM: "LDC",
}  # fmt: skip
TENSOR_BY_MACS = {
    256: "HMMA.884.F32.F32.STEP0", 512: "HMMA.884.F16.F16.STEP0", 1024: "HMMA.1688.F32", 2048: "HMMA.16816.F32",
    4096: "HMMA.16816.F32.TF32",
}  # fmt: skip
TENSOR_DEFAULT = "HMMA.16816.F32"
HELPER_NOTE, REPEAT_NOTE = f"T3 {HELPER} 0x0 0 ", f"T3 {REPEAT} 0x0 0 "
PC_STEP = 16
ALL_LANES = PC_MASK = (1 << 32) - 1


def block_register(block: int) -> str:
    """First register of a block of four."""
    return f"R{4 + 4 * block}"


def slots_of(wait: int) -> list[int]:
    """Slots of a wait mask, lowest first."""
    return [slot for slot in range(SLOTS) if wait >> slot & 1]


class Row(NamedTuple):
    """One EVENT as Python numbers. They are several times faster to read than a numpy record."""

    kind: int
    space: int
    cache: int
    pipe: int
    width_bytes: int
    slot: int
    inner: int
    array: int
    stride: int
    count: int  # type: ignore[assignment]
    cycles: int
    work: int
    pc: int
    pad: int
    row_stride: int
    base: int
    mask: int
    wait: int


assert Row._fields == EVENT.names


def rows_of(events: np.ndarray) -> list[Row]:
    """EVENT records as Rows."""
    return [Row(*values) for values in events.tolist()]


def lane_addresses(event: Row, addresses: np.ndarray) -> list[int]:
    """Addresses of the active lanes."""
    lanes = event.mask.bit_count()
    base, inner = event.base, event.inner
    if inner == EXPLICIT:
        return [int(address) for address in addresses[base : base + lanes]]
    stride, row_stride = event.stride, event.row_stride
    return [(base + k % inner * stride + k // inner * row_stride) % (1 << 64) for k in range(lanes)]


def is_contiguous(mask: int) -> bool:
    """True if there is no gap between the active lanes."""
    low = mask & -mask
    return mask & (mask + low) == 0


def address_columns(event: Row, addresses: np.ndarray) -> str:
    """Width, mode and addresses: base and stride if possible, else a list or differences."""
    mask, width = event.mask, event.width_bytes
    if event.inner == PLAIN_STRIDE and (is_contiguous(mask) or mask == 0):
        return f"{width} 1 {event.base:#x} {event.stride}"
    lanes = lane_addresses(event, addresses)
    if not is_contiguous(mask):
        return f"{width} 0 " + " ".join(f"{address:#x}" for address in lanes)
    deltas = [_signed(right - left) for left, right in pairwise(lanes)]
    return f"{width} 2 {lanes[0]:#x} " + " ".join(map(str, deltas))


def _signed(difference: int) -> int:
    """A difference of addresses as a signed 64-bit number."""
    return (difference + (1 << 63)) % (1 << 64) - (1 << 63)


def access_opcode(event: Row) -> str:
    """Opcode of a memory event, with width and cache policy as modifiers."""
    kind, space, width = Kind(event.kind), Space(event.space), event.width_bytes
    if width not in WIDTH_TOKEN:
        raise UserError(f"width_bytes: found {width}, an Accel-Sim trace allows {', '.join(map(str, WIDTH_TOKEN))}")
    cache = Cache(event.cache) if space == Space.GLOBAL else Cache.DEFAULT
    if kind == Kind.ASYNC_COPY:
        bypass = ".BYPASS" if cache == Cache.BYPASS_L1 else CACHE_TOKEN[cache]
        return f"LDGSTS.E{bypass}{WIDTH_TOKEN[width]}"
    return ACCESS[kind, space] + WIDTH_TOKEN[width] + CACHE_TOKEN[cache]


class WarpLines:
    """Writes the lines of one warp."""

    def __init__(self, addresses: np.ndarray, noted: bool) -> None:
        self._addresses, self._noted = addresses, noted
        self.lines: list[str] = []
        self._groups: list[
            int | None
        ] = []  # slot of each committed copy group; None = empty, or a DEPBAR has waited for it
        self._open: int | None = None  # slot of the copy group being filled
        self._pending: dict[int, list[int]] = {}  # slot -> register blocks of its pending results
        self._stored = 0  # slots of stores that a fence will wait for

    def add(self, event: Row) -> None:
        """Write the lines of one event."""
        kind, wait = Kind(event.kind), event.wait
        if event.mask >> 32:
            raise UserError(f"mask: found {event.mask:#x}, an Accel-Sim trace has 32 lanes per warp")
        if kind != Kind.WAIT:
            self._wait_for_copies(event, wait)
        if kind == Kind.WAIT:
            self._wait(event, wait)
        elif kind == Kind.COMPUTE:
            self._compute(event, wait)
        elif kind == Kind.BARRIER:
            imm = event.work or event.slot
            opcode = "BAR.ARV" if event.space == ARRIVE_ONLY else "BAR.SYNC"
            self._line(event, "", opcode, self._sources(wait, 0), "0", imm)
        elif kind == Kind.EXIT:
            self._line(event, "", "EXIT", self._sources(wait, 0), "0", 0)
        else:
            self._access(event, kind, wait)

    def _access(self, event: Row, kind: Kind, wait: int) -> None:
        slot = event.slot
        if kind == Kind.ASYNC_COPY:
            if self._open is not None and slot != self._open:
                self._commit(event)
            self._open = slot
        sources = self._sources(wait, SOURCES_LEAST[kind])
        destination = self._destination(slot) if kind in (Kind.LOAD, Kind.ATOMIC) else ""
        if kind in (Kind.STORE, Kind.REDUCE) and slot != NO_SLOT:
            self._stored |= 1 << slot
        opcode, memory = access_opcode(event), address_columns(event, self._addresses)
        self._line(event, destination, opcode, sources, memory, 0)
        if event.count > 1:
            self._repeat(event, opcode, memory)

    def _repeat(self, event: Row, opcode: str, memory: str) -> None:
        """Write the further instructions of a memory event. Only shared accesses repeat the access."""
        end = self._end(0, REPEAT_NOTE if self._noted else "")
        line = f"{event.pc:04x} {event.mask:08x} "
        if event.space == Space.SHARED:
            sources = [ADDRESS_REGISTER] * SOURCES_LEAST[Kind(event.kind)]
            target = "1 R255" if event.kind in (Kind.LOAD, Kind.ATOMIC) else "0"
            line += f"{target} {opcode} {len(sources)} {' '.join(sources)} {memory} {end}"
        else:
            line += f"0 {WORK[Pipe.ALU]} 0 0 {end}"
        self.lines += [line] * (event.count - 1)

    def _compute(self, event: Row, wait: int) -> None:
        """Write a COMPUTE event. The first instruction waits; the last one writes the registers of the slot."""
        count, slot = event.count, event.slot
        opcode, memory = WORK.get(Pipe(event.pipe)), "0"
        if opcode is None:
            opcode, memory = self._tensor(event.work // max(count, 1))
        mask = f"{self._lanes(event):08x}"
        sources = self._sources(wait, 0)
        result = "" if slot == NO_SLOT else self._destination(slot)
        last = f"1 {result}" if result else "0"
        if count:
            self._line(event, result if count == 1 else "", opcode, sources, memory, 0)
        for k in range(1, count):
            address = (event.pc + PC_STEP * k) & PC_MASK
            target = last if k == count - 1 else 0
            self.lines.append(f"{address:04x} {mask} {target} {opcode} 0 {memory} {self._end(0, '')}")

    def _tensor(self, macs: int) -> tuple[str, str]:
        """(opcode, memory columns) of a matrix instruction."""
        return TENSOR_BY_MACS.get(macs, TENSOR_DEFAULT), "0"

    def _wait(self, event: Row, wait: int) -> None:
        """Write a WAIT event. A WAIT for nothing closes the copy group."""
        if not wait:
            self._line(event, "", "LDGDEPBAR", [], "0", 0)
            self._close_group()
            return
        if wait & self._stored:
            self._stored &= ~wait
            self._line(event, "", "MEMBAR.SC.GPU", self._sources(wait, 0), "0", 0)
            return
        if self._open is not None and wait >> self._open & 1:
            self._commit(event)
        self._line(event, "", "DEPBAR.LE", self._sources(wait, 0), "0", self._take_groups(wait))

    def _take_groups(self, wait: int) -> int:
        """Mark the groups of a wait mask as done. Returns the number of later groups, which may stay pending."""
        latest = len(self._groups)
        for number, slot in enumerate(self._groups):
            if slot is not None and wait >> slot & 1:
                self._groups[number] = None
                latest = len(self._groups) - number - 1
        return latest

    def _wait_for_copies(self, event: Row, wait: int) -> None:
        """Add lines that make Accel-Sim wait for the copies in the wait mask of an event."""
        if self._open is not None and wait >> self._open & 1:
            self._commit(event)
        if any(slot is not None and wait >> slot & 1 for slot in self._groups):
            self._helper(event, "DEPBAR.LE", self._take_groups(wait))

    def _commit(self, event: Row) -> None:
        """Add a line that closes the copy group."""
        self._helper(event, "LDGDEPBAR", 0)
        self._close_group()

    def _close_group(self) -> None:
        self._groups.append(self._open)
        self._open = None

    def _helper(self, event: Row, opcode: str, imm: int) -> None:
        end = self._end(imm, HELPER_NOTE if self._noted else "")
        self.lines.append(f"{event.pc:04x} ffffffff 0 {opcode} 0 0 {end}")

    def _destination(self, slot: int) -> str:
        """Register into which a result for `slot` is written."""
        if slot == NO_SLOT:
            return "R255"
        used = {block for blocks in self._pending.values() for block in blocks}
        block = slot % SLOT_BLOCKS
        if block in used:
            block = next((spare for spare in range(SLOT_BLOCKS - 1, -1, -1) if spare not in used), block)
        self._pending.setdefault(slot, []).append(block)
        return block_register(block)

    def _sources(self, wait: int, least: int) -> list[str]:
        """The newest registers that an event waits for, at least `least`; ADDRESS_REGISTER fills the rest."""
        blocks = [block for slot in slots_of(wait) for block in self._pending.pop(slot, [])]
        registers = [block_register(block) for block in blocks[-ACCELSIM_SOURCES:]]
        return registers + [ADDRESS_REGISTER] * (least - len(registers))

    def _lanes(self, event: Row) -> int:
        """Mask of the line. Synthesised events have a mask only for accesses; the others get all lanes."""
        mask, kind = event.mask, event.kind
        if mask or kind <= Kind.ASYNC_COPY or not self._noted:
            return mask
        if kind == Kind.COMPUTE and not event.work and not event.wait and event.slot == NO_SLOT:
            return mask
        return ALL_LANES

    def _line(self, event: Row, destination: str, opcode: str, sources: Sequence[str], memory: str, imm: int) -> None:
        parts = [f"{event.pc:04x} {self._lanes(event):08x}", f"1 {destination}" if destination else "0", opcode]
        parts += [str(len(sources)), *sources, memory, self._end(imm, self._note(event))]
        self.lines.append(" ".join(parts))

    def _note(self, event: Row) -> str:
        return f"T3 {event.slot} {event.wait:#x} {event.cache} " if self._noted else ""

    def _end(self, imm: int, note: str) -> str:
        """What stands behind the memory columns."""
        return f"{imm} {note}"
