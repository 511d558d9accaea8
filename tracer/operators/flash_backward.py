"""The main kernel of FlashAttention 2's backward pass.

8 warps; tiles of keys and values stay; tiles of queries and output gradients are streamed (BACKWARD). With 64 lanes
(CDNA) the larger side of the tiles is halved until they fit 64 KB of shared memory (assumed).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from tracer.events import compute, event, join
from tracer.operators.counted import AMD_LANES, Counted
from tracer.operators.flash_kernel import (
    AMD_BACKWARD_FMA,
    CDNA_SHARED_BYTES,
    LATENCY_CLK,
    REGISTERS,
    SCORE_ALU,
    SCORE_FMA,
    SCORE_SFU,
    SETUP_INSTRUCTIONS,
    STAT_BYTES,
    SUM_BYTES,
    K,
    Tiled,
    V,
    line_of_numbers,
)
from tracer.operators.flash_shape import FlashShape
from tracer.operators.tile_loop import NO_STREAM, Phase, Tile, TileLoop
from traces.schema import LINE_BYTES, Kind, Pipe
from traces.source import KernelInfo, Moved


class BackwardTiles(NamedTuple):
    """Tiles of the backward pass for heads of up to `head_dim` elements.

    Attributes:
        queries, keys: of a tile.
        scores, keys_out, queries_out: of the 8 warps, how many divide the rows of the product: of the scores (queries),
            of the gradients of k and v (keys), of the gradient of q (queries). The others divide its columns.
        v_in_registers: values stay in registers, not in shared memory.
    """

    head_dim: int
    queries: int
    keys: int
    scores: int
    keys_out: int
    queries_out: int
    v_in_registers: bool = False


WIDE_BYTES = 144 << 10
BACKWARD = (
    BackwardTiles(64, 128, 128, 4, 4, 4),
    BackwardTiles(96, 64, 128, 2, 4, 4),
    BackwardTiles(128, 64, 128, 2, 4, 2),
    BackwardTiles(256, 64, 64, 4, 2, 2),
)
"""FlashAttention 2 (Dao-AILab/flash-attention @0251105a, csrc/flash_attn/src/flash_bwd_launch_template.h) on a machine
with WIDE_BYTES of shared memory in a workgroup."""
NARROW = (
    BackwardTiles(96, 64, 128, 2, 4, 4, v_in_registers=True),
    BackwardTiles(256, 64, 64, 4, 2, 2, v_in_registers=True),
)
"""The same on a machine with less (heads of up to 32 elements have wider tiles there)."""


class BackwardPart(NamedTuple):
    """What a workgroup does: its rows of k and v; the rows of q and of the gradient of o that it walks, of the sums of
    the gradient of q, and the number of the first one in `stats`; its rows of the gradients of k and v."""

    keys: tuple[Tile, Tile]
    queries: tuple[Tile, Tile]
    sums: Tile
    numbers: int
    out: tuple[Tile, Tile]


@dataclass(frozen=True)
class FlashBackward(Tiled):
    """The main kernel of the backward pass.

    Attributes:
        queries: addresses of q and of the gradient of o. keys: of k and v.
        stats: of the two numbers per query. sums: of the gradient of q. out: of the gradients of k and v.
    """

    NAME: ClassVar[str] = "flash_backward"
    VERSION: ClassVar[int] = 2
    WARPS: ClassVar[int] = 8

    shape: FlashShape
    queries: tuple[int, int]
    keys: tuple[int, int]
    stats: tuple[int, int]
    sums: int
    out: tuple[int, int]

    @cached_property
    def tiles(self) -> tuple[int, int]:
        """Queries of an iteration, and keys of a workgroup."""
        m, n = self._layout.queries, self._layout.keys
        while self.shape.lanes == AMD_LANES and self._tiles_bytes(m, n) > CDNA_SHARED_BYTES:
            m, n = (m // 2, n) if m >= n else (m, n // 2)
        return m, n

    @property
    def _layout(self) -> BackwardTiles:
        return self.shape.row_of(NARROW if self.shape.narrow else BACKWARD)

    @property
    def blocks(self) -> int:
        """Workgroups of one head."""
        return -(-self.shape.keys // self.block_n)

    @property
    def moved_bytes(self) -> Moved:
        q, kv = self.shape.tensor_bytes
        sums = q * SUM_BYTES // self.shape.element_bytes
        return Moved(2 * (q + kv) + sums, 2 * q + sums)  # gradients of k and v for each head

    @property
    def line_requests(self) -> int:
        """Estimate of the line requests: 128-byte lines of the streamed tiles and of the sums."""
        s = self.shape
        rows = s.batch * s.heads * self.blocks * s.queries
        if s.causal:
            rows = rows * (2 * s.keys - s.queries) // (2 * s.keys)
        return rows * (2 * s.element_bytes + SUM_BYTES) * s.head_dim // LINE_BYTES + 1

    @property
    def flops(self) -> int:
        """Operations of the matrix work of the five products, without what causality leaves out."""
        return 10 * self.shape.pairs * self.shape.head_dim

    @cached_property
    def info(self) -> KernelInfo:
        s = self.shape
        return self.make_info(
            f"flash_backward_{s.batch}x{s.heads}x{s.queries}x{s.head_dim}",
            workgroups=s.batch * s.heads * self.blocks,
            warps=self.WARPS,
            lanes=s.lanes,
            registers=REGISTERS,
            shared_bytes=min(163840, self._tiles_bytes(*self.tiles)),
        )

    def warp_events(self, index: int) -> list[np.ndarray]:
        part = self.part(index)
        return [self._warp(part, warp) for warp in range(self.WARPS)]

    def part(self, index: int, together: int = 1) -> BackwardPart:
        """The part of a workgroup; so many neighbours begin `together`, with the queries of the first one."""
        s = self.shape
        rest, block = divmod(index, self.blocks)
        batch, head = divmod(rest, s.heads)
        first = block * self.block_n
        rows = max(0, min(self.block_n, s.keys - first))
        begin = block // together * together * self.block_n
        start = max(0, begin - (s.keys - s.queries)) // self.block_m * self.block_m if s.causal else 0
        kv_pitch, pitch, row = s.kv_heads * s.row_bytes, s.heads * s.row_bytes, s.row_bytes
        kv = ((batch * s.keys + first) * s.kv_heads + head // s.group) * row
        own = ((batch * s.keys + first) * s.heads + head) * row
        q = ((batch * s.queries + start) * s.heads + head) * row
        left, widen = s.queries - start, SUM_BYTES // s.element_bytes
        k, v = (Tile(address + kv, rows, kv_pitch) for address in self.keys)
        queries, gradients = (Tile(address + q, left, pitch) for address in self.queries)
        dk, dv = (Tile(address + own, rows, pitch) for address in self.out)
        sums = Tile(self.sums + q * widen, left, pitch * widen)
        numbers = (batch * s.heads + head) * s.queries + start
        return BackwardPart((k, v), (queries, gradients), sums, numbers, (dk, dv))

    def loads_of_numbers(self, part: BackwardPart) -> list[np.ndarray]:
        """Loads of the two numbers of each query."""
        rows, lanes = part.sums.rows, self.shape.lanes
        return [line_of_numbers(Kind.LOAD, address + part.numbers * STAT_BYTES, rows, lanes) for address in self.stats]

    def _warp(self, part: BackwardPart, warp: int) -> np.ndarray:
        row, tile_of = self.shape.row_bytes, self._loop.whole_tile
        widen = SUM_BYTES // self.shape.element_bytes
        first_q = part.queries[K].part(0, self.block_m)
        parts = [compute(Pipe.ALU, SETUP_INSTRUCTIONS, LATENCY_CLK)]
        parts += [tile_of(Kind.ASYNC_COPY, tile, row, warp, slot=K) for tile in part.keys]
        parts += self.loads_of_numbers(part) if warp == 0 else []
        parts.append(tile_of(Kind.ASYNC_COPY, first_q, row, warp, slot=K))
        parts.append(self._loop.loop((*part.queries, part.sums), (row, row, row * widen), warp))
        parts += [tile_of(Kind.STORE, tile, row, warp) for tile in part.out]
        return join([*parts, event(Kind.EXIT)])

    @cached_property
    def _loop(self) -> TileLoop:
        s, m, n, layout = self.shape, self.block_m, self.block_n, self._layout
        scores = m * n // self.WARPS
        macs, each, stored = scores * s.head_dim, scores / s.lanes, scores * s.element_bytes

        def fragments(rows: int, columns: int, depth: int, down: int) -> int:
            """Bytes that a warp reads of the operands of a product, whose rows `down` warps divide."""
            return (rows // down + columns * down // self.WARPS) * depth * s.element_bytes

        of_scores = fragments(m, n, s.head_dim, layout.scores) + stored  # the scores go through shared memory
        of_gradients = fragments(m, 0 if layout.v_in_registers else n, s.head_dim, layout.scores) + stored
        of_keys = fragments(n, s.head_dim, m, layout.keys_out)
        of_queries = fragments(m, s.head_dim, n, layout.queries_out)
        alu, fma = Counted((SCORE_ALU, 2 * SCORE_FMA), (0.0, AMD_BACKWARD_FMA)).on(s.lanes)
        after = {"alu": round(alu * each), "fma": round(fma * each), "sfu": round(SCORE_SFU * each)}
        phases = (
            Phase(K, V, 0, macs, of_scores),
            Phase(V, K, 1, macs, of_gradients, **after),
            Phase(V, NO_STREAM, 0, 3 * macs, 2 * of_keys + of_queries, reduce=2),
        )
        return TileLoop(self.WARPS, s.lanes, self.block_m, phases, s.mac_cost)

    def _tiles_bytes(self, m: int, n: int) -> int:
        """Shared memory: keys and values, queries twice, gradients of the output; the scores and their gradients."""
        s = self.shape
        tiles, scores = n * s.row_bytes, 2 * m * n * s.element_bytes
        if self._layout.v_in_registers:
            return 3 * m * s.row_bytes + max(2 * tiles, tiles + scores)
        return 3 * m * s.row_bytes + 2 * tiles + scores
