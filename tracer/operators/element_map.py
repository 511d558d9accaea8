"""Element-wise kernel: reads some tensors, computes, writes others. Work items are independent.

The work has `rows` x `cols` elements. A lane has `vector` adjacent elements per access, 16 bytes of the widest type if
they divide a row. A warp takes `unroll` accesses: first it loads all tensors of all of them, then it computes and
stores one access after the other. If a row has fewer elements than a warp takes, an access covers several rows.
A workgroup does that in `turns`, or for one whole row.

Each element of a tensor is requested once (a shared row once per row of the work), so the traffic in closed form is

    requested by loads     rows * cols * (sum of the bytes of the tensors read), in whole sectors per access
    requested by stores    rows * cols * (sum of the bytes of the tensors written)
    DRAM reads             the tensors read, each once, if L2 holds what rows share
    DRAM writes            the tensors written, each once
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from tracer.events import ALL_LANES, NO_ADDRESSES, access, compute, event, join
from tracer.operators.even_kernel import EVENTS_TOGETHER, EvenKernel, check_vector, check_warps, elements_per_lane
from tracer.operators.tensor import Tensor, Use, arithmetic_pipe
from traces.errors import UserError
from traces.schema import LINE_BYTES, NO_SLOT, Kind, Pipe
from traces.source import KernelInfo, Moved, Workgroup

SETUP_INSTRUCTIONS = 16
ACCESS_INSTRUCTIONS = 10
LATENCY_CLK = 4
SFU_LATENCY_CLK = 20
ADDRESS_REGISTERS = 16
"""Instruction counts, latencies and registers are assumed."""
SLICES = 4
"""Slices of a tensor in flight that take registers (assumed)."""
UNROLL_MAX = 32
TURNS_MAX = 1 << 20
REGISTERS_MAX = 255


@dataclass(frozen=True)
class ElementMap(EvenKernel):
    """An element-wise kernel.

    Attributes:
        name: of the kernel.
        tensors: what it reads and writes; all have `rows` x `cols` elements, or share rows.
        fma: arithmetic instructions per element. sfu: transcendental instructions per element.
        index, index_fma: instructions per access to find its place, beside the address: integer and multiply-add.
        access: instructions per access to each tensor: 64-bit address, limit, loop, conversion.
        vector: elements of a lane per access; 0 = as many as fit 16 bytes and divide a row.
        unroll: accesses of a warp at a time. turns: how often a warp does that, one after the other.
        whole_rows: 1 = a workgroup takes one row (those that one access covers), in as many turns as it needs.
        registers: of a lane; 0 = counted from the loads in flight.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "element_map"
    VERSION: ClassVar[int] = 2

    name: str
    rows: int
    cols: int
    tensors: tuple[Tensor, ...]
    fma: int = 1
    sfu: int = 0
    index: int = 0
    index_fma: int = 0
    access: int = ACCESS_INSTRUCTIONS
    vector: int = 0
    unroll: int = 4
    warps: int = 8
    turns: int = 1
    whole_rows: int = 0
    registers: int = 0
    lanes: int = 32

    def __post_init__(self):
        self.check_sizes("rows", "cols", "unroll", "warps")
        self.check_lanes(self.lanes)
        check_warps(self.name, self.warps, self.lanes)
        if self.unroll > UNROLL_MAX:
            raise UserError(f"{self.name} unroll = {self.unroll}: must be <= {UNROLL_MAX}")
        if not 1 <= self.all_turns <= TURNS_MAX:
            raise UserError(f"{self.name} turns = {self.all_turns}: must be 1 to {TURNS_MAX:,}, events are in memory")
        if not 0 <= self.registers <= REGISTERS_MAX:
            raise UserError(f"{self.name} registers = {self.registers}: must be 0 to {REGISTERS_MAX}")
        check_vector(self.name, self.vector, self.cols, max(tensor.bytes for tensor in self.tensors))

    @property
    def flops(self) -> int:
        """Arithmetic operations: one for each instruction and element."""
        return self.rows * self.cols * (self.fma + self.sfu)

    @property
    def moved_bytes(self) -> Moved:
        read = sum(tensor.whole_bytes(self.rows, self.cols) for tensor in self.tensors if tensor.use != Use.WRITE)
        written = (replace(tensor, repeat=1) for tensor in self.tensors if tensor.use != Use.READ)
        return Moved(read, sum(tensor.whole_bytes(self.rows, self.cols) for tensor in written))

    @property
    def line_requests(self) -> int:
        """Estimate of the line requests: 128-byte lines of all tensors."""
        moved = sum(t.bytes * (t.repeat * (t.use != Use.WRITE) + (t.use != Use.READ)) for t in self.tensors)
        return self.rows * self.cols * moved // LINE_BYTES + 1

    @cached_property
    def lane_elements(self) -> int:
        """Elements of a lane per access."""
        return elements_per_lane(self.vector, self.cols, max(tensor.bytes for tensor in self.tensors))

    @cached_property
    def row_lanes(self) -> int:
        """Lanes that a row needs."""
        return -(-self.cols // self.lane_elements)

    @cached_property
    def fold(self) -> int:
        """Rows that one access covers: a power of two."""
        fold = 1
        shared = [tensor.share for tensor in self.tensors if tensor.share > 1]
        while 2 * fold * self.row_lanes <= self.lanes and all(share % (2 * fold) == 0 for share in shared):
            fold *= 2
        return fold

    @cached_property
    def row_accesses(self) -> int:
        """Accesses that cover a row (`fold` rows)."""
        return -(-self.row_lanes // self.lanes)

    @cached_property
    def accesses(self) -> int:
        """Accesses of the whole work to each tensor."""
        return -(-self.rows // self.fold) * self.row_accesses

    @cached_property
    def all_turns(self) -> int:
        """Turns of a workgroup."""
        return -(-self.row_accesses // (self.warps * self.unroll)) if self.whole_rows else self.turns

    @cached_property
    def workgroup_accesses(self) -> int:
        """Accesses of a workgroup to each tensor."""
        return self.row_accesses if self.whole_rows else self.turns * self.warps * self.unroll

    @cached_property
    def info(self) -> KernelInfo:
        loaded = sum(t.bytes * min(t.repeat, SLICES) for t in self.tensors if t.use != Use.WRITE)
        words = -(-self.unroll * self.lane_elements * loaded // 4)
        return self.make_info(
            f"{self.name}_{self.rows}x{self.cols}",
            workgroups=-(-self.accesses // self.workgroup_accesses),
            warps=self.warps,
            lanes=self.lanes,
            registers=self.registers or min(REGISTERS_MAX, -(-(words + ADDRESS_REGISTERS) // 8) * 8),
        )

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups, starting at number `start`. They differ only in addresses, and at the edges in their lanes."""
        numbers = np.arange(self.warps, dtype=np.uint16)
        program, tensor, slice_, turn = self._program
        whole = np.arange(0, (self.warps + 1) * len(program), len(program))
        step = max(1, EVENTS_TOGETHER // (self.warps * len(program)))
        for first in range(start, self.info.workgroups, step):
            together = range(first, min(first + step, self.info.workgroups))
            begin = np.array(together)[:, None, None] * self.workgroup_accesses
            place = begin + np.arange(self.warps)[:, None] * self.unroll + turn
            events = np.tile(program, (len(together), self.warps, 1))
            self._set_addresses(events, tensor, slice_, place)
            kept = (turn < 0) | (place < np.minimum(begin + self.workgroup_accesses, self.accesses))
            complete = kept.all(axis=(1, 2))
            for k, index in enumerate(together):
                if complete[k]:
                    yield Workgroup(index, numbers, whole, events[k].ravel(), NO_ADDRESSES)
                else:
                    first_event = np.append(0, np.cumsum(kept[k].sum(axis=1)))
                    yield Workgroup(index, numbers, first_event, events[k][kept[k]], NO_ADDRESSES)

    def _set_addresses(self, events: np.ndarray, tensor: np.ndarray, slice_: np.ndarray, place: np.ndarray) -> None:
        """Base and lanes of the memory events. place: number of the access of each event."""
        row, column = place // self.row_accesses * self.fold, place % self.row_accesses
        element = column * (self.lanes * self.lane_elements)
        for number, each in enumerate(self.tensors):
            mine = tensor == number
            base = each.address + row[..., mine] // each.share * each.pitch(self.cols)
            base += slice_[mine] * each.step_bytes + (0 if each.per_row else element[..., mine] * each.bytes)
            events["base"][..., mine] = base
        rows = np.minimum(self.rows - row, self.fold)
        lanes = rows * self.row_lanes if self.fold > 1 else np.minimum(self.row_lanes - column * self.lanes, self.lanes)
        per_row = np.array([each.per_row for each in self.tensors])[tensor]
        lanes, memory = np.where(per_row, rows, lanes), tensor >= 0
        events["mask"][..., memory] = ALL_LANES >> (64 - np.clip(lanes[..., memory], 1, 64)).astype(np.uint64)

    @cached_property
    def _program(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Events of a warp; for each its tensor (-1 = none), slice, and number of the access (-1 = always there)."""
        parts, facts = [compute(Pipe.ALU, SETUP_INSTRUCTIONS, LATENCY_CLK)], [(-1, 0, -1)]
        for turn in range(self.all_turns):
            one, places = self._turn(turn * self.warps * self.unroll)
            parts += one
            facts += places
        parts.append(event(Kind.EXIT))
        facts.append((-1, 0, -1))
        tensor_of, slice_of, turn_of = np.array(facts).T
        return join(parts), tensor_of, slice_of, turn_of

    def _turn(self, first: int) -> tuple[list[np.ndarray], list[tuple[int, int, int]]]:
        """Events of one turn of warp 0, and their tensor, slice and access; the turn begins with access `first`."""
        parts, facts = [], []
        for slot in range(self.unroll):
            for number, tensor in enumerate(self.tensors):
                for slice_ in range(tensor.repeat if tensor.use != Use.WRITE else 0):
                    parts.append(self._access(Kind.LOAD, tensor, slot))
                    facts.append((number, slice_, first + slot))
        for slot in range(self.unroll):
            for pipe, instructions, latency_clk in self._arithmetic():
                parts.append(compute(pipe, instructions, latency_clk, wait=1 << slot))
                facts.append((-1, 0, first + slot))
            for number, tensor in enumerate(self.tensors):
                if tensor.use != Use.READ:
                    parts.append(self._access(Kind.STORE, tensor, slot))
                    facts.append((number, 0, first + slot))
        return parts, facts

    def _arithmetic(self) -> list[tuple[Pipe, int, int]]:
        """Pipe, instructions and latency of the arithmetic of one access."""
        each = self.lane_elements
        accesses = sum(t.repeat * (t.use != Use.WRITE) + (t.use != Use.READ) for t in self.tensors)
        steps = [
            (Pipe.ALU, self.index + self.access * accesses, LATENCY_CLK),
            (Pipe.FMA, self.index_fma, LATENCY_CLK),
            (arithmetic_pipe(t.bytes for t in self.tensors), self.fma * each, LATENCY_CLK),
        ]
        steps.append((Pipe.SFU, self.sfu * each, SFU_LATENCY_CLK))
        return [step for step in steps if step[1]]

    def _access(self, kind: Kind, tensor: Tensor, turn: int) -> np.ndarray:
        slot = turn if kind == Kind.LOAD else NO_SLOT
        wait = 1 << turn if tensor.indexed else 0
        made = access(kind, lanes=1, width_bytes=self.lane_elements * tensor.bytes, slot=slot, wait=wait)
        if tensor.per_row:
            made["width_bytes"] = made["stride"] = tensor.bytes
        if self.fold > 1:
            made["inner"] = 1 if tensor.per_row else self.row_lanes
            made["row_stride"] = tensor.pitch(self.cols) if tensor.share == 1 else 0
        return made
