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

from tracer.events import VECTOR_BYTES, access, compute, event, join
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.index import Index
from traces.errors import UserError
from traces.schema import LINE_BYTES, Kind, Pipe
from traces.source import KernelInfo, Workgroup

INDEX_BYTES = 4
SETUP_INSTRUCTIONS = 16
ACCESS_INSTRUCTIONS = 8
"""Instructions per access for its row, place and address."""
LATENCY_CLK = 4
REGISTERS = 48
"""Instruction counts, latency and registers are assumed."""
EACH_MAX = 32
UNROLL_MAX = 16
_NO_ADDRESSES = np.empty(0, np.uint64)


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
    VERSION: ClassVar[int] = 1

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
        if self.vector < 0 or (self.vector and self.cols % self.vector):
            raise UserError(f"{self.name} vector = {self.vector}: must divide the {self.cols} elements of a row")

    @property
    def flops(self) -> int:
        """Arithmetic operations: one for each element that is added."""
        added = self.index.each - 1 if self.move == Move.GATHER else int(self.move == Move.REDUCE) * self.index.each
        return 2 * self.index.rows * self.cols * added

    @property
    def wide_bytes(self) -> int:
        """Size of the wider element."""
        return max(self.element_bytes, self.table_bytes)

    @property
    def line_requests(self) -> int:
        """Estimate of the line requests: 128-byte lines of the rows on both sides."""
        moved = self.element_bytes + self.index.each * (self.table_bytes or self.element_bytes)
        return self.index.rows * self.cols * moved // LINE_BYTES + 1

    @property
    def lane_elements(self) -> int:
        """Elements of a lane per access."""
        return self.vector or min(VECTOR_BYTES // self.wide_bytes, self.cols & -self.cols)

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
        listed = self.index.listed
        total = self.index.rows * self.row_accesses
        for index in range(start, self.info.workgroups):
            first = index * self.warps * self.unroll
            warps = [
                self._warp(np.arange(begin, min(begin + self.unroll, total)), listed)
                for begin in range(first, first + self.warps * self.unroll, self.unroll)
            ]
            first_event = np.cumsum([0, *map(len, warps)])
            yield Workgroup(index, numbers, first_event, join(warps), _NO_ADDRESSES)

    def _warp(self, places: np.ndarray, listed: np.ndarray) -> np.ndarray:
        """Events of a warp that takes these accesses. listed: i8 [rows, each], rows of the table."""
        if not len(places):
            return event(Kind.EXIT)
        each, number = self.index.each, len(places)
        row, part = places // self.row_accesses, places % self.row_accesses
        reach = self.lanes * self.lane_elements
        lanes = np.minimum(self.cols - part * reach, reach) // self.lane_elements
        turn = np.arange(number)
        table_row_bytes = self.cols * (self.table_bytes or self.element_bytes)
        table = self.table_at + listed[row] * table_row_bytes + (part * reach * self._table_element)[:, None]
        own = self.rows_at + (row * self.cols + part * reach) * self.element_bytes
        indices = access(
            Kind.LOAD,
            number,
            lanes=each,
            width_bytes=INDEX_BYTES,
            base=self.index_at + row * each * INDEX_BYTES,
            slot=turn,
        )
        ours: dict[str, Any] = {"lanes": lanes, "width_bytes": self.lane_elements * self.element_bytes, "base": own}
        theirs: dict[str, Any] = {
            "lanes": np.repeat(lanes, each),
            "width_bytes": self.lane_elements * self._table_element,
            "base": table.ravel(),
        }
        many = number * each
        add = compute(Pipe.FMA, each * self.lane_elements, LATENCY_CLK, number, wait=1 << (16 + turn))
        if self.move == Move.GATHER:
            slots: dict[str, Any] = {"slot": np.repeat(16 + turn, each), "wait": np.repeat(1 << turn, each)}
            body = [access(Kind.LOAD, many, **theirs, **slots), add, access(Kind.STORE, number, **ours)]
        else:
            kind = Kind.STORE if self.move == Move.SCATTER else Kind.REDUCE
            wait = np.repeat(1 << turn | 1 << (16 + turn), each)
            body = [access(Kind.LOAD, number, **ours, slot=16 + turn), access(kind, many, **theirs, wait=wait)]
        setup = compute(Pipe.ALU, SETUP_INSTRUCTIONS + ACCESS_INSTRUCTIONS * number, LATENCY_CLK)
        return join([setup, indices, *body, event(Kind.EXIT)])

    @property
    def _table_element(self) -> int:
        return self.table_bytes or self.element_bytes
