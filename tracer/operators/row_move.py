"""Rows moved by an index: row r of the work and row index[r, k] of a table, for k < `each`.

GATHER reads the table's rows (their weighted sum if there are several) and writes row r. SCATTER reads row r and writes
the table's rows. REDUCE reads row r and adds it to the table's rows in L2 (atomic adds). A lane has `vector` adjacent
elements per access. A warp takes `unroll` accesses: it loads their indices (INDEX_BYTES each), then rows, then stores.

A row of B-byte elements is S whole sectors of 32 bytes, n rows of work:

    GATHER     requested by loads n * each * S and the indices; by stores n * S
    SCATTER    requested by loads n * S and the indices; by stores n * each * S
    REDUCE     as SCATTER, with atomic adds instead of stores
    DRAM       each distinct row of the table once if L2 holds it; n * S for the other side; n * each indices
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tracer.events import ALL_LANES, NO_ADDRESSES, access, compute, event, join
from tracer.operators.even_kernel import EVENTS_TOGETHER, EvenKernel, check_vector, elements_per_lane
from tracer.operators.index import Index
from tracer.operators.tensor import arithmetic_pipe
from traces.errors import UserError
from traces.schema import LINE_BYTES, Kind, Pipe
from traces.source import KernelInfo, Moved, Workgroup

INDEX_BYTES = 4
SETUP_INSTRUCTIONS = 16
ACCESS_INSTRUCTIONS = 8
"""Instructions per access for its row, place and address."""
LATENCY_CLK = 4
REGISTERS = 48
"""Instruction counts, latency and registers are assumed."""
EACH_MAX = 32
UNROLL_MAX = 16


class Move(IntEnum):
    """What a kernel does with the rows of the table."""

    GATHER = 0
    SCATTER = 1
    REDUCE = 2


@dataclass(frozen=True)
class RowMove(EvenKernel):
    """A kernel that moves rows.

    Attributes:
        name: of the kernel.
        cols: elements of a row; element_bytes: of an element of the rows, table_bytes: of the table.
        rows_at, table_at, index_at: addresses of the rows, of the table and of the indices.
        index: which rows of the table.
        vector: elements of a lane per access; 0 = 16 bytes.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "row_move"
    VERSION: ClassVar[int] = 2

    name: str
    move: Move
    cols: int
    element_bytes: int
    rows_at: int
    table_at: int
    index_at: int
    index: Index
    table_bytes: int = 0
    vector: int = 0
    unroll: int = 2
    warps: int = 4
    lanes: int = 32

    def __post_init__(self):
        self.check_sizes("cols", "element_bytes", "unroll", "warps")
        self.check_lanes(self.lanes)
        if self.index.each > EACH_MAX or self.unroll > UNROLL_MAX:
            raise UserError(f"{self.name}: must have at most {EACH_MAX} rows each and an unroll of {UNROLL_MAX}")
        check_vector(self.name, self.vector, self.cols, max(self.element_bytes, self.table_bytes))

    @property
    def flops(self) -> int:
        """Arithmetic operations, for each element of the table: GATHER of several rows two, REDUCE one, else none."""
        each = {Move.GATHER: 2 * (self.index.each > 1), Move.SCATTER: 0, Move.REDUCE: 1}[self.move]
        return self.index.rows * self.index.each * self.cols * each

    @property
    def moved_bytes(self) -> Moved:
        rows = self.index.rows * self.cols * self.element_bytes
        table = self.index.table_rows * self.cols * (self.table_bytes or self.element_bytes)
        return {
            Move.GATHER: Moved(table, rows),
            Move.SCATTER: Moved(rows, table),
            Move.REDUCE: Moved(rows + table, table),
        }[self.move]

    @property
    def line_requests(self) -> int:
        """Estimate of the line requests: 128-byte lines of the rows on both sides."""
        moved = self.element_bytes + self.index.each * (self.table_bytes or self.element_bytes)
        return self.index.rows * self.cols * moved // LINE_BYTES + 1

    @property
    def lane_elements(self) -> int:
        """Elements of a lane per access."""
        return elements_per_lane(self.vector, self.cols, max(self.element_bytes, self.table_bytes))

    @property
    def row_accesses(self) -> int:
        """Accesses that cover a row."""
        return -(-self.cols // (self.lanes * self.lane_elements))

    @cached_property
    def info(self) -> KernelInfo:
        return self.make_info(
            f"{self.name}_{self.index.rows}x{self.cols}",
            workgroups=-(-self.index.rows * self.row_accesses // (self.warps * self.unroll)),
            warps=self.warps,
            lanes=self.lanes,
            registers=REGISTERS,
        )

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups, starting at number `start`."""
        numbers = np.arange(self.warps, dtype=np.uint16)
        listed, total = self.index.listed, self.index.rows * self.row_accesses
        accesses = self.warps * self.unroll
        program = len(self._program(self.unroll))
        first_event = np.arange(0, (self.warps + 1) * program, program)
        complete, step = total // accesses, max(1, EVENTS_TOGETHER // (self.warps * program))
        for first in range(start, complete, step):
            end = min(first + step, complete)
            places = np.arange(first * accesses, end * accesses).reshape(-1, self.unroll)
            events = self._warps(places, listed).reshape(end - first, -1)
            yield from (Workgroup(first + k, numbers, first_event, events[k], NO_ADDRESSES) for k in range(end - first))
        if start <= complete < self.info.workgroups:
            begins = np.minimum(np.arange(complete * accesses, (complete + 1) * accesses, self.unroll), total)
            rest = [np.arange(begin, min(begin + self.unroll, total)) for begin in begins]
            warps = [self._warps(of[None], listed)[0] if len(of) else event(Kind.EXIT) for of in rest]
            yield Workgroup(complete, numbers, np.cumsum([0, *map(len, warps)]), join(warps), NO_ADDRESSES)

    def _warps(self, places: np.ndarray, listed: np.ndarray) -> np.ndarray:
        """EVENT [warps, events of a warp].

        Args:
            places: [warps, accesses of a warp], numbers of accesses.
            listed: i8 [rows, each], rows of the table.
        """
        warps, number = places.shape
        row, part = places // self.row_accesses, places % self.row_accesses
        reach = self.lanes * self.lane_elements
        mask = ALL_LANES >> (64 - np.minimum(self.cols - part * reach, reach) // self.lane_elements).astype(np.uint64)
        table = listed[row] * self.cols + (part * reach)[..., None]
        indices, ours, theirs = self._parts(number)
        events = np.tile(self._program(number), (warps, 1))
        events["base"][:, indices] = self.index_at + row * self.index.each * INDEX_BYTES
        events["base"][:, ours] = self.rows_at + (row * self.cols + part * reach) * self.element_bytes
        events["base"][:, theirs] = self.table_at + table.reshape(warps, -1) * self._table_element
        events["mask"][:, ours] = mask
        events["mask"][:, theirs] = np.repeat(mask, self.index.each, axis=1)
        return events

    def _parts(self, number: int) -> tuple[slice, slice, slice]:
        """Where the accesses to the indices, to our rows and to the table are in `_program`."""
        many = number * self.index.each
        if self.move == Move.GATHER:
            ours = 1 + 2 * number + many  # behind the loads of the table and the sums
            return slice(1, 1 + number), slice(ours, ours + number), slice(1 + number, 1 + number + many)
        theirs = 1 + 2 * number
        return slice(1, 1 + number), slice(1 + number, theirs), slice(theirs, theirs + many)

    def _program(self, number: int) -> np.ndarray:
        """Events of a warp that takes `number` accesses, without their addresses and lanes."""
        each, turn = self.index.each, np.arange(number)
        indices = access(Kind.LOAD, number, lanes=each, width_bytes=INDEX_BYTES, slot=turn)
        ours: dict[str, Any] = {"lanes": 1, "width_bytes": self.lane_elements * self.element_bytes}
        theirs: dict[str, Any] = {"lanes": 1, "width_bytes": self.lane_elements * self._table_element}
        pipe = arithmetic_pipe((self.element_bytes, self.table_bytes)) if each > 1 else Pipe.FMA
        add = compute(pipe, each * self.lane_elements, LATENCY_CLK, number, wait=1 << (16 + turn))
        if self.move == Move.GATHER:
            slots: dict[str, Any] = {"slot": np.repeat(16 + turn, each), "wait": np.repeat(1 << turn, each)}
            body = [access(Kind.LOAD, number * each, **theirs, **slots), add, access(Kind.STORE, number, **ours)]
        else:
            kind = Kind.STORE if self.move == Move.SCATTER else Kind.REDUCE
            wait = np.repeat(1 << turn | 1 << (16 + turn), each)
            loads = access(Kind.LOAD, number, **ours, slot=16 + turn)
            body = [loads, access(kind, number * each, **theirs, wait=wait)]
        setup = compute(Pipe.ALU, SETUP_INSTRUCTIONS + ACCESS_INSTRUCTIONS * number, LATENCY_CLK)
        return join([setup, indices, *body, event(Kind.EXIT)])

    @property
    def _table_element(self) -> int:
        return self.table_bytes or self.element_bytes
