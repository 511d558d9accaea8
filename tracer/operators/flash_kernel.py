"""The forward kernel of FlashAttention 2 (prompt and generation), and what it shares with the backward one.

Forward: 4 warps; a tile of 128 queries stays in shared memory; keys and values are streamed, 64 at a time. Generation
and a paged cache have the kernel for split keys: 64 queries, 128 keys at a time. If more heads share keys, several
workgroups walk the same keys.
With 64 lanes (CDNA) tiles are halved until they fit 64 KB of shared memory (assumed).
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from tracer.events import NO_ADDRESSES, VECTOR_BYTES, access, compute, event, join, join_warps
from tracer.operators.counted import AMD_LANES, Counted
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.flash_shape import FlashShape
from tracer.operators.tile_loop import Phase, Tile, TileLoop
from traces.schema import LINE_BYTES, Kind, Pipe
from traces.source import KernelInfo, Moved, Workgroup

STAT_BYTES = 4
SUM_BYTES = 4
SETUP_INSTRUCTIONS = 64
LATENCY_CLK = 4
REGISTERS = 255
"""Registers per thread: the accumulators fill them (assumed; two workgroups fit on an SM of sm_80)."""
SCORE_ALU, SCORE_FMA, SCORE_SFU = 1.5, 2.0, 1.0
"""Instructions per score: maximum and conversion; scaled difference and sum; exponential."""
TORCH_SCORE_ALU, TORCH_SCORE_FMA, MASK_ALU = 2.6, 5.1, 2.9
"""The same of PyTorch's copy, which is compiled without fast mathematics, and what a mask adds. Counted in the machine
code of PyTorch 2.6.0 for sm_90 (`flash_fwd_kernel` of 64 x 128 x 128 tiles, bf16, causal)."""
AMD_SCORE_FMA, AMD_BACKWARD_FMA = 8.6, 19.0
"""The same on AMD, where a score is rounded to bf16 in five instructions, and per score of the backward pass, which
rounds two numbers; without exponentials. Counted in the machine code for gfx942 that Triton 3.6.0 makes of plain loops
of FlashAttention (blocks of 128 x 64 and 32 x 128, heads of 64; D68)."""
TORCH_WIDE_HEADS = 64
"""Largest heads of which PyTorch's kernel takes 128 keys at a time."""
CDNA_SHARED_BYTES = 65536
"""Shared memory of a CU with 64 lanes."""
PAGE_INSTRUCTIONS = 25
"""Instructions per copy of 16 bytes to find it in a paged cache: division by the page size, look-up, address.
Calibrated: batch 1, 2048 tokens, 8 heads of `validation/references/operator_time.csv`."""
K, V = 0, 1
"""Scoreboard slots of the copies; the streams of the loop are K and V."""


class Tiled(EvenKernel):
    """A kernel with tiles of `block_m` queries and `block_n` keys."""

    WARPS: ClassVar[int]

    @property
    @abstractmethod
    def tiles(self) -> tuple[int, int]:
        """Queries, and keys, of a tile."""

    @property
    def block_m(self) -> int:
        return self.tiles[0]

    @property
    def block_n(self) -> int:
        return self.tiles[1]

    @property
    @abstractmethod
    def blocks(self) -> int:
        """Workgroups of one head."""

    @property
    def period(self) -> int:
        """Workgroups after which the work repeats with other data."""
        return self.blocks

    @abstractmethod
    def warp_events(self, index: int) -> list[np.ndarray]:
        """Events of each warp of a workgroup."""

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups, starting at number `start`: the blocks of a head are neighbours, then the heads, the batch."""
        for index in range(start, self.info.workgroups):
            warps = self.warp_events(index)
            events, first_event = join_warps(warps)
            yield Workgroup(index, np.arange(len(warps), dtype=np.uint16), first_event, events, NO_ADDRESSES)


class Part(NamedTuple):
    """What a workgroup does: its rows of q and o, the number of its first row in `stats`; the sequence and head of its
    keys, and the keys from `first` to `end`."""

    q: Tile
    o: Tile
    stats: int
    batch: int
    kv_head: int
    first: int
    end: int


@dataclass(frozen=True)
class FlashForward(Tiled):
    """Forward. q, k, v, o, stats: addresses. out_bytes: of an element of o (parts: 4)."""

    NAME: ClassVar[str] = "flash_attention"
    VERSION: ClassVar[int] = 2
    WARPS: ClassVar[int] = 4

    shape: FlashShape
    q: int
    k: int
    v: int
    o: int
    stats: int | None = None
    out_bytes: int = 0

    @property
    def generation(self) -> bool:
        """One query: a workgroup has the heads that share keys, at most `block_m` of them."""
        return self.shape.queries == 1

    @cached_property
    def tiles(self) -> tuple[int, int]:
        """Rows of q of a workgroup, and keys of an iteration."""
        split, s = self.generation or self.shape.paged, self.shape
        wide = split or (s.torch and s.head_dim <= TORCH_WIDE_HEADS)
        block_m, block_n = 64 if split else 128, 128 if wide and s.lanes == 32 else 64
        while s.lanes == AMD_LANES and (block_m + 2 * block_n) * s.row_bytes > CDNA_SHARED_BYTES:
            block_m, block_n = (block_m // 2, block_n) if block_m > block_n else (block_m, block_n // 2)
        return block_m, block_n

    @property
    def blocks(self) -> int:
        """Workgroups of one head (of one head of k and v in generation)."""
        s = self.shape
        return s.parts * -(-s.group // self.block_m) if self.generation else -(-s.queries // self.block_m)

    @property
    def flops(self) -> int:
        """Operations of the matrix work: two for each multiply-accumulate, without what causality leaves out."""
        return 4 * self.shape.pairs * self.shape.head_dim

    @cached_property
    def info(self) -> KernelInfo:
        s = self.shape
        return self.make_info(
            f"flash_attention_{s.batch}x{s.heads}x{s.queries}x{s.keys}x{s.head_dim}",
            workgroups=s.batch * (s.kv_heads if self.generation else s.heads) * self.blocks,
            warps=self.WARPS,
            lanes=s.lanes,
            registers=REGISTERS,
            shared_bytes=(self.block_m + 2 * self.block_n) * s.row_bytes,
        )

    @property
    def moved_bytes(self) -> Moved:
        q, kv = self.shape.tensor_bytes
        element_bytes, parts = self.shape.element_bytes, self.shape.parts
        return Moved(q + 2 * kv, parts * q * (self.out_bytes or element_bytes) // element_bytes)

    @property
    def line_requests(self) -> int:
        """Estimate of the line requests: 128-byte lines of queries, keys and values."""
        s, m = self.shape, self.block_m
        if self.generation:
            rows = s.keys * s.kv_heads * -(-s.group // m)
        else:
            rows = s.queries // m * s.heads * s.keys // (2 if s.causal else 1)
        return 2 * (s.batch * (rows + s.queries * s.heads) * s.row_bytes // LINE_BYTES + 1)

    def warp_events(self, index: int) -> list[np.ndarray]:
        return self._warps(self._generated(index) if self.generation else self.prompt(*divmod(index, self.blocks)))

    def prompt(self, sequence_head: int, block: int) -> Part:
        """Block `block` of the queries of a head; the heads of all sequences are numbered."""
        s = self.shape
        batch, head = divmod(sequence_head, s.heads)
        first = block * self.block_m
        rows = max(0, min(self.block_m, s.queries - first))
        last = s.keys - s.queries + first + rows if s.causal else s.keys
        keys = min(s.keys, -(-last // self.block_n) * self.block_n)
        place = ((batch * s.queries + first) * s.heads + head) * s.row_bytes
        q = Tile(self.q + place, rows, s.heads * s.row_bytes)
        stats = (batch * s.heads + head) * s.queries + first
        return Part(q, q._replace(address=self.o + place), stats, batch, head // s.group, 0, keys)

    def _generated(self, index: int) -> Part:
        s = self.shape
        rest, block = divmod(index, self.blocks)
        batch, head = divmod(rest, s.kv_heads)
        block, part = divmod(block, s.parts)
        first_row = block * self.block_m
        rows = min(self.block_m, s.group - first_row)
        step = -(-s.keys // (s.parts * self.block_n)) * self.block_n
        first, end = min(s.keys, part * step), min(s.keys, (part + 1) * step)
        row = batch * s.heads + head * s.group + first_row
        out_row = s.head_dim * (self.out_bytes or s.element_bytes)
        part_row = row + part * s.batch * s.heads
        q = Tile(self.q + row * s.row_bytes, rows, s.row_bytes)
        o = Tile(self.o + part_row * out_row, rows, out_row)
        return Part(q, o, part_row, batch, head, first, end)

    def streams(self, part: Part) -> tuple[Tile, Tile]:
        """Keys and values of a workgroup."""
        s = self.shape
        offset = ((part.batch * s.keys + part.first) * s.kv_heads + part.kv_head) * s.row_bytes
        rows, pitch = part.end - part.first, s.kv_heads * s.row_bytes
        return Tile(self.k + offset, rows, pitch), Tile(self.v + offset, rows, pitch)

    def _warps(self, part: Part) -> list[np.ndarray]:
        """Events of the warps of a workgroup."""
        s, streams, keys = self.shape, self.streams(part), part.end - part.first
        out_row = s.head_dim * (self.out_bytes or s.element_bytes)
        warps = []
        for warp in range(self.WARPS):
            first_k = streams[K].part(0, self.block_n)
            parts = [
                compute(Pipe.ALU, SETUP_INSTRUCTIONS, LATENCY_CLK),
                self._loop.whole_tile(Kind.ASYNC_COPY, part.q, s.row_bytes, warp, slot=K),
                *([self._loop.whole_tile(Kind.ASYNC_COPY, first_k, s.row_bytes, warp, slot=K)] if keys > 0 else []),
                *([self._loop.loop(streams, (s.row_bytes, s.row_bytes), warp)] if keys > 0 else []),
                *([self._masks(keys)] if s.torch and keys > 0 else []),
                compute(Pipe.FMA, self._rows * s.head_dim // s.lanes, LATENCY_CLK, wait=1 << K),
                self._loop.whole_tile(Kind.STORE, part.o, out_row, warp),
            ]
            if self.stats is not None and warp == 0:
                parts.append(line_of_numbers(Kind.STORE, self.stats + part.stats * STAT_BYTES, part.q.rows, s.lanes))
            warps.append(join([*parts, event(Kind.EXIT)]))
        return warps

    @property
    def _rows(self) -> int:
        """Rows of q of a warp."""
        return self.block_m // self.WARPS

    def _masks(self, keys: int) -> np.ndarray:
        """Instructions of the masks: of the last block of keys, and of those that the diagonal crosses."""
        crossed = -(-self.block_m // self.block_n) if self.shape.causal else 0
        masked = min(1 + crossed, -(-keys // self.block_n))
        return compute(Pipe.ALU, round(MASK_ALU * masked * self._rows * self.block_n / self.shape.lanes), LATENCY_CLK)

    @cached_property
    def _loop(self) -> TileLoop:
        s = self.shape
        scores = self._rows * self.block_n
        macs, tile_bytes = scores * s.head_dim, self.block_n * s.row_bytes
        each = scores / s.lanes
        nvidia = (TORCH_SCORE_ALU, TORCH_SCORE_FMA) if s.torch else (SCORE_ALU, SCORE_FMA)
        score_alu, score_fma = Counted(nvidia, (0.0, AMD_SCORE_FMA)).on(s.lanes)
        softmax = {
            "alu": round(score_alu * each),
            "fma": round(score_fma * each) + self._rows * s.head_dim // s.lanes,
            "sfu": round(SCORE_SFU * each),
        }
        copies = tile_bytes // (VECTOR_BYTES * s.lanes * self.WARPS)
        pages = PAGE_INSTRUCTIONS * copies if s.paged else 0
        phases = (
            Phase(K, V, 0, macs, tile_bytes + self._rows * s.row_bytes, copy_alu=pages, **softmax),
            Phase(V, K, 1, macs, tile_bytes, copy_alu=pages),
        )
        return TileLoop(self.WARPS, s.lanes, self.block_n, phases, s.mac_cost)


def line_of_numbers(kind: Kind, address: int, rows: int, lanes: int) -> np.ndarray:
    """Accesses to one number of 4 bytes per row."""
    first = np.arange(0, rows, lanes)
    return access(kind, len(first), lanes=np.minimum(rows - first, lanes), width_bytes=STAT_BYTES,
                  base=address + first * STAT_BYTES)  # fmt: skip
