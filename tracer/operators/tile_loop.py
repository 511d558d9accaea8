"""Events of a fused attention kernel: resident tiles, a loop over streamed tiles, matrix work, output tiles.

A tile has rows of `row_bytes`, `pitch_bytes` apart. A warp access covers as many rows as its lanes reach at 16 bytes
each; a row that is wider has several accesses. The accesses of a tile are split into equal shares of the warps.

The loop is that of FlashAttention 2 (Dao, arXiv 2307.08691): an iteration has phases. A phase waits until its tile is
in shared memory, meets the other warps at a barrier, starts the asynchronous copy of the next tile, reads operand
fragments from shared memory (in PIECES, one ahead of the matrix work) and does its arithmetic.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tracer.events import VECTOR_BYTES, access, compute, event, join
from traces.schema import Kind, Pipe, Space

PIECES = 4
"""Pieces in which the fragments of a phase are read."""
LATENCY_CLK = 4
SFU_LATENCY_CLK = 20
TENSOR_LATENCY_CLK = 33
"""Latencies are assumed."""
FRAGMENT_SLOT = 16
"""First slot of the fragments; streams have the slots below it."""
NO_STREAM = -1


class Tile(NamedTuple):
    """Rows of a tensor: address of row 0, number of rows, bytes from row to row."""

    address: int
    rows: int
    pitch_bytes: int

    def part(self, first: int, rows: int | None = None) -> "Tile":
        """The rows from `first` on, at most `rows`."""
        left = max(0, self.rows - first)
        return Tile(
            self.address + first * self.pitch_bytes, left if rows is None else min(rows, left), self.pitch_bytes
        )


class Phase(NamedTuple):
    """One phase of an iteration, for one warp.

    wait: stream whose tile must have arrived. load: stream whose copy starts. ahead: iterations that the copy is ahead.
    macs: multiply-accumulates. shared_bytes: fragments read. alu, fma, sfu: instructions after the matrix work.
    copy_alu: instructions for the addresses of the copy.
    reduce: stream to which the result is added in L2 (NO_STREAM = none).
    """

    wait: int
    load: int
    ahead: int
    macs: int
    shared_bytes: int
    alu: int = 0
    fma: int = 0
    sfu: int = 0
    copy_alu: int = 0
    reduce: int = NO_STREAM


@dataclass(frozen=True)
class TileLoop:
    """Builder of the events of one workgroup.

    Attributes:
        warps: of a workgroup. lanes: of a warp.
        block: rows of a streamed tile.
        phases: of an iteration.
        mac_cost: time of a multiply-accumulate, relative to the machine's fp16.
        instruction_macs: multiply-accumulates of a warp's instruction.
    """

    warps: int
    lanes: int
    block: int
    phases: tuple[Phase, ...]
    mac_cost: float = 1.0
    instruction_macs: int = 2048

    def whole_tile(self, kind: Kind, tile: Tile, row_bytes: int, warp: int, **link) -> np.ndarray:
        """Accesses of a warp to its share of a tile."""
        return self._rows(kind, tile, *self._share(tile.rows, row_bytes, warp), row_bytes, tile.rows, **link)

    def loop(self, streams: tuple[Tile, ...], row_bytes: tuple[int, ...], warp: int) -> np.ndarray:
        """All iterations of a warp. A stream has all rows of the loop; its tiles have `block` rows."""
        events, stream, row, column = self._iteration(streams, row_bytes, warp)
        iterations = -(-streams[0].rows // self.block)
        number = np.arange(iterations)[:, None]
        made = np.tile(events, (iterations, 1))
        kept = np.ones(made.shape, bool)
        for place, tile in enumerate(streams):
            mine = stream == place
            first = row[mine] + number * self.block
            made["base"][:, mine] = tile.address + np.minimum(first, tile.rows) * tile.pitch_bytes + column[mine]
            made["mask"][:, mine] = self._mask(first, column[mine], row_bytes[place], tile.rows)
            kept[:, mine] = first < tile.rows
        return made[kept]

    def _iteration(
        self, streams: tuple[Tile, ...], row_bytes: tuple[int, ...], warp: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Events of the first iteration; for each its stream (NO_STREAM: none), and row and byte of its first lane."""
        parts: list[tuple[np.ndarray, int, np.ndarray, np.ndarray]] = []

        def plain(*events: np.ndarray) -> None:
            parts.extend((each, NO_STREAM, *np.zeros((2, len(each)), np.int64)) for each in events)

        def tile(kind: Kind, place: int, ahead: int, **link) -> None:
            rows, columns = self._share(self.block, row_bytes[place], warp)
            made = self._rows(kind, streams[place], rows, columns, row_bytes[place], self.block, **link)
            parts.append((made, place, rows + ahead * self.block, columns))

        for phase in self.phases:
            plain(event(Kind.WAIT, wait=1 << phase.wait), event(Kind.BARRIER, slot=0))
            if phase.copy_alu:
                plain(compute(Pipe.ALU, phase.copy_alu, LATENCY_CLK))
            if phase.load != NO_STREAM:
                tile(Kind.ASYNC_COPY, phase.load, phase.ahead, slot=phase.load)
            plain(*self.arithmetic(phase))
            if phase.reduce != NO_STREAM:
                tile(Kind.REDUCE, phase.reduce, 0)
        made, places, rows, columns = zip(*parts, strict=True)
        stream = np.repeat(places, [len(one) for one in made])
        return join(list(made)), stream, np.concatenate(rows), np.concatenate(columns)

    def arithmetic(self, phase: Phase) -> list[np.ndarray]:
        """Fragments, matrix work and the arithmetic after it."""
        macs = phase.macs // PIECES
        instructions = -(-phase.shared_bytes // (PIECES * self.lanes * VECTOR_BYTES))
        fragments = access(
            Kind.LOAD, PIECES, lanes=self.lanes, space=Space.SHARED, slot=FRAGMENT_SLOT + np.arange(PIECES)
        )
        fragments["count"] = instructions
        number, work = max(1, macs // self.instruction_macs), max(1, round(macs * self.mac_cost))
        products = [
            compute(Pipe.TENSOR, number, TENSOR_LATENCY_CLK, work=work, wait=1 << FRAGMENT_SLOT + piece)
            for piece in range(PIECES)
        ]  # fmt: skip
        for each in products:
            each["row_stride"] = macs if self.mac_cost != 1 else 0
        made = [fragments[:1]]
        for piece in range(PIECES):
            made += [fragments[piece + 1 : piece + 2], products[piece]]
        rest = (
            (Pipe.ALU, phase.alu, LATENCY_CLK),
            (Pipe.SFU, phase.sfu, SFU_LATENCY_CLK),
            (Pipe.FMA, phase.fma, LATENCY_CLK),
        )
        return made + [compute(pipe, count, latency_clk) for pipe, count, latency_clk in rest if count]

    def _rows_per_access(self, row_bytes: int) -> int:
        return max(1, self.lanes * VECTOR_BYTES // row_bytes)

    def _share(self, rows: int, row_bytes: int, warp: int) -> tuple[np.ndarray, np.ndarray]:
        """First row of each access of a warp, and its first byte in this row."""
        step, reach = self._rows_per_access(row_bytes), self.lanes * VECTOR_BYTES
        pieces = -(-row_bytes // reach)
        mine = np.array_split(np.arange(-(-rows // step) * pieces), self.warps)[warp]
        return mine // pieces * step, mine % pieces * reach

    def _mask(self, first: np.ndarray, column: np.ndarray, row_bytes: int, end: int) -> np.ndarray:
        """Lanes of accesses that begin at these rows, and bytes in them, of a tensor that ends at row `end`."""
        step = self._rows_per_access(row_bytes)
        lanes = np.clip(end - first, 1, step) * (row_bytes // VECTOR_BYTES)
        lanes = np.minimum(lanes - column // VECTOR_BYTES, self.lanes)
        return np.uint64(0xFFFFFFFFFFFFFFFF) >> (64 - lanes).astype(np.uint64)

    def _rows(
        self, kind: Kind, tile: Tile, rows: np.ndarray, columns: np.ndarray, row_bytes: int, end: int, **link
    ) -> np.ndarray:
        """Accesses that begin at these rows and bytes in them."""
        made = access(kind, len(rows), lanes=1, base=tile.address + rows * tile.pitch_bytes + columns, **link)
        made["mask"] = self._mask(rows, columns, row_bytes, end)
        made["inner"] = min(row_bytes // VECTOR_BYTES, self.lanes)
        made["row_stride"] = tile.pitch_bytes
        return made
