"""The main kernels of the backward pass of FlashAttention 3 (Hopper) and 4 (Blackwell): warps with roles.

A workgroup keeps a tile of keys and values and walks the queries. One warp copies queries and gradients of outputs into
stages of shared memory. On Hopper two groups of four warps multiply (WGMMA) and compute: the scores again, the
gradients of the softmax, and the three gradients. On Blackwell four warps stand for the one that multiplies (tcgen05),
two groups compute, and four warps add the gradients of the queries in L2; the next scores are multiplied before the
gradients of the current ones. With heads from 128 elements, pairs of workgroups there keep half of each tile of queries
(D64).

Left out: as in `tracer.operators.flash_roles` (D65).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from tracer.events import compute, event, join, shared_access
from tracer.operators.flash_backward import BackwardPart, FlashBackward
from tracer.operators.flash_kernel import (
    LATENCY_CLK,
    SCORE_SFU,
    SETUP_INSTRUCTIONS,
    SUM_BYTES,
)
from tracer.operators.flash_roles import CONVERT_ALU
from tracer.operators.flash_shape import FlashShape
from tracer.operators.stage_ring import (
    Parts,
    Ring,
    arrival,
    bulk_load,
    bulk_store,
    loop,
    streamed,
    until_done,
    until_free,
)
from tracer.operators.tile_loop import Tile
from tracer.operators.warp_groups import GROUP, INSTRUCTION_K, arithmetic, multiply, registers_of
from traces.schema import Bulk, Kind, Pipe
from traces.source import KernelInfo

GROUPS = 2
"""Of warps that compute."""
WARPS_COMPUTING = GROUP * GROUPS
STAGED, COPIED, SCORES, GRADIENTS, VALUES, QUERIES, KEYS = range(1, 8)
"""Scoreboard slots: results in shared memory, and on their way from there; the five products (scores, their gradients,
gradients of values, queries and keys)."""
SHARED_BYTES = 224 << 10
SCALE_FMA, GRADIENT_FMA = 1.0, 2.0
"""Instructions per score: scaled difference; difference and product of the gradient."""


class BackwardRoles(NamedTuple):
    """Tiles for heads of up to `head_dim` elements.

    Attributes:
        queries, causal_queries: of an iteration. keys: of a workgroup.
        stages: of queries, of gradients of outputs.
        paired: pairs of workgroups keep half of each tile of queries.
    """

    head_dim: int
    queries: int
    causal_queries: int
    keys: int
    stages: tuple[int, int]
    paired: bool = False


HOPPER = (
    BackwardRoles(64, 128, 128, 128, (2, 2)),
    BackwardRoles(96, 64, 64, 128, (2, 2)),
    BackwardRoles(128, 80, 64, 128, (2, 2)),
    BackwardRoles(192, 64, 64, 96, (2, 1)),
    BackwardRoles(256, 64, 64, 64, (1, 1)),
)
"""Dao-AILab/flash-attention @0251105a, flash_attn/cute/interface.py (`_tile_size_bwd_sm90`)."""
BLACKWELL = (
    BackwardRoles(112, 128, 128, 128, (2, 1)),
    BackwardRoles(192, 128, 128, 128, (1, 1), True),
    BackwardRoles(256, 64, 64, 64, (1, 1), True),
)
"""The same, `_flash_attn_bwd` and flash_bwd_sm100.py. Heads of 256 elements have a kernel of their own: assumed."""


@dataclass(frozen=True)
class FlashRolesBackward(FlashBackward):
    """A main kernel of the backward pass whose warps have roles."""

    VERSION: ClassVar[int] = 1

    @property
    def _roles(self) -> BackwardRoles:
        return self.shape.row_of(HOPPER if self.shape.version == 3 else BLACKWELL)

    @cached_property
    def tiles(self) -> tuple[int, int]:
        roles = self._roles
        return roles.causal_queries if self.shape.causal else roles.queries, roles.keys

    @property
    def _pair(self) -> int:
        return 2 if self._roles.paired else 1

    @property
    def blocks(self) -> int:
        return -(-self.shape.keys // (self.block_n * self._pair)) * self._pair

    @property
    def _number_of_warps(self) -> int:
        return WARPS_COMPUTING + (0 if self.shape.version == 3 else 2 * GROUP) + 1

    @cached_property
    def info(self) -> KernelInfo:
        s, (m, n) = self.shape, self.tiles
        kept = (2 * n + sum(self._roles.stages) * m // self._pair) * s.row_bytes + m * n * s.element_bytes
        return self.make_info(
            f"flash_backward_{s.version}_{s.batch}x{s.heads}x{s.queries}x{s.head_dim}",
            workgroups=s.batch * s.heads * self.blocks,
            warps=self._number_of_warps,
            lanes=s.lanes,
            registers=registers_of(self._number_of_warps, s.lanes),
            shared_bytes=min(SHARED_BYTES, kept + m * s.head_dim * SUM_BYTES),
            cluster=self._pair,
        )

    @cached_property
    def _rings(self) -> tuple[Ring, Ring, Ring, Ring]:
        """Stages of queries and of gradients of outputs: filled, then read."""
        first, rings = 0, []
        for stages in (*self._roles.stages, *self._roles.stages):
            rings.append(Ring(first, stages))
            first += stages
        return rings[0], rings[1], rings[2], rings[3]

    def _barrier(self, number: int) -> Ring:
        """Of keys and values (0). On Blackwell of scores (1), their gradients (2), softmax (3), its gradient (4), the
        gradients of queries (5) and their place (6), the end (7)."""
        return Ring(2 * sum(self._roles.stages) + number)

    def warp_events(self, index: int) -> list[np.ndarray]:
        part = self.part(index, self._pair)
        iterations = -(-part.sums.rows // self.block_m)
        return [
            *(self._computes(warp, iterations, part) for warp in range(WARPS_COMPUTING)),
            *self._helpers(iterations, part.sums),
            self._copies(part, index % self._pair, iterations),
        ]

    def _copies(self, part: BackwardPart, member: int, iterations: int) -> np.ndarray:
        """The warp that copies. member: number of the workgroup in its pair."""
        s, barrier = self.shape, self._barrier(0)
        setup = compute(Pipe.ALU, SETUP_INSTRUCTIONS, LATENCY_CLK)
        first: Parts = [arrival(barrier, 1)._replace(events=bulk_load(tile, s.row_bytes)) for tile in part.keys]
        share = self.block_m // self._pair
        tiles = [tile.part(member * share) for tile in part.queries]
        parts: Parts = []
        for tile, filled, freed in zip(tiles, self._rings[:2], self._rings[2:], strict=True):
            load = bulk_load(tile._replace(rows=share), s.row_bytes)
            parts += [until_free(freed), arrival(filled, 1)._replace(events=load), arrival(filled, 1)]
        walk = streamed(parts, tiles, self.block_m, share, iterations)
        return join([setup, loop([*first, arrival(barrier, 1)], 1), walk, event(Kind.EXIT)])

    def _product(self, own: int, streamed_bytes: int, slot: int, warps: int) -> list[np.ndarray]:
        """A part of one of the five products, of which `warps` warps compute one.

        own: bytes of an operand that all warps read a part of. streamed_bytes: of one that each group reads.
        """
        m, n = self.tiles
        macs = m * n * self.shape.head_dim // warps
        shared = own // warps + streamed_bytes // GROUP
        return multiply(self.shape, macs, shared, slot, macs // self.shape.head_dim * INSTRUCTION_K)

    def _products(self, warps: int) -> tuple[list[np.ndarray], ...]:
        """The five products of an iteration. P and dS of the gradients of keys and values are not in shared memory."""
        s, (m, n) = self.shape, self.tiles
        kept, walked, scores = n * s.row_bytes, m // self._pair * s.row_bytes, m * n * s.element_bytes
        return (
            self._product(kept, walked, SCORES, warps),
            self._product(kept, walked, GRADIENTS, warps),
            self._product(0, walked, VALUES, warps),
            self._product(kept, scores, QUERIES, warps),
            self._product(0, walked, KEYS, warps),
        )

    def _arithmetic(self) -> tuple[Parts, Parts]:
        """Softmax of a warp's scores, and its gradient, which goes to shared memory."""
        s, (m, n) = self.shape, self.tiles
        each = m * n / WARPS_COMPUTING / s.lanes
        softmax = arithmetic(each, ((Pipe.FMA, SCALE_FMA), (Pipe.SFU, SCORE_SFU), (Pipe.ALU, CONVERT_ALU)))
        gradient: Parts = [
            *arithmetic(each, ((Pipe.FMA, GRADIENT_FMA), (Pipe.ALU, CONVERT_ALU))),
            self._to_shared(m * n * s.element_bytes // WARPS_COMPUTING, 0),
            event(Kind.WAIT, wait=1 << STAGED),
        ]
        return softmax, gradient

    def _to_shared(self, size_bytes: int, wait: int) -> np.ndarray:
        """A store to shared memory."""
        return shared_access(Kind.STORE, self.shape.lanes, size_bytes, STAGED, wait)

    def _computes(self, warp: int, iterations: int, part: BackwardPart) -> np.ndarray:
        """A warp of the two groups that compute."""
        s, rows = self.shape, self.block_n // WARPS_COMPUTING
        parts = [compute(Pipe.ALU, SETUP_INSTRUCTIONS, LATENCY_CLK)]
        parts += self.loads_of_numbers(part) if warp == 0 else []
        if s.version == 3:
            parts += [loop([until_done(self._barrier(0))], 1), self._iterations(warp, iterations, part.sums)]
        else:
            softmax, gradient = self._arithmetic()
            walk: Parts = [
                *[until_done(self._barrier(1)), *softmax, arrival(self._barrier(3), WARPS_COMPUTING)],
                *[until_done(self._barrier(2)), *gradient, arrival(self._barrier(4), WARPS_COMPUTING)],
            ]
            parts += [loop(walk, iterations), loop([until_done(self._barrier(7))], 1)]
        for tile in part.out:
            parts += [
                compute(Pipe.FMA, rows * s.head_dim // s.lanes, LATENCY_CLK),
                self._to_shared(rows * s.row_bytes, 1 << COPIED),
                bulk_store(tile.part(warp * rows, rows), s.row_bytes, COPIED, 1 << STAGED),
            ]
        return join([*parts, event(Kind.EXIT)])

    def _iterations(self, warp: int, iterations: int, sums: Tile) -> np.ndarray:
        """The loop of a warp on Hopper."""
        filled_q, filled_do, freed_q, freed_do = self._rings
        scores, gradients, values, queries, keys = self._products(WARPS_COMPUTING)
        softmax, gradient = self._arithmetic()
        together = event(Kind.BARRIER, slot=0)
        together["work"] = WARPS_COMPUTING * self.shape.lanes

        def done(slot: int) -> np.ndarray:
            return event(Kind.WAIT, wait=1 << slot)

        parts: Parts = [until_done(filled_q), *scores, until_done(filled_do), *gradients]
        parts += [done(SCORES), *softmax, done(GRADIENTS), *gradient, *values, together, *queries]
        parts += [done(VALUES), arrival(freed_do, WARPS_COMPUTING), *keys, done(QUERIES)]
        parts += [*self._sum(warp, WARPS_COMPUTING, sums), done(KEYS), arrival(freed_q, WARPS_COMPUTING)]
        return self._summed(parts, warp, WARPS_COMPUTING, sums, iterations)

    def _sum(self, warp: int, warps: int, sums: Tile) -> Parts:
        """The warp's rows of the gradient of queries go to shared memory, and are added in L2."""
        rows, row_bytes = self.block_m // warps, self.shape.head_dim * SUM_BYTES
        tile = sums._replace(address=sums.address + warp * rows * sums.pitch_bytes, rows=rows)
        add = bulk_store(tile, row_bytes, COPIED, 1 << STAGED, Bulk.REDUCE)
        return [self._to_shared(rows * row_bytes, 1 << COPIED), add]

    def _summed(self, parts: Parts, warp: int, warps: int, sums: Tile, iterations: int) -> np.ndarray:
        """A loop whose only bulk copy adds the warp's rows of the gradient of queries."""
        rows = self.block_m // warps
        return streamed(parts, [sums.part(warp * rows)], self.block_m, rows, iterations)

    def _helpers(self, iterations: int, sums: Tile) -> list[np.ndarray]:
        """On Blackwell, the warps that add the gradients of queries, and those that multiply."""
        if self.shape.version == 3:
            return []
        full, empty = self._barrier(5), self._barrier(6)
        adding = []
        for warp in range(GROUP):
            parts: Parts = [until_done(full), *self._sum(warp, GROUP, sums), event(Kind.WAIT, wait=1 << STAGED)]
            walk = self._summed([*parts, arrival(empty, GROUP)], warp, GROUP, sums, iterations)
            adding.append(join([walk, event(Kind.EXIT)]))
        return [*adding, *[self._multiplies(iterations)] * GROUP]

    def _multiplies(self, iterations: int) -> np.ndarray:
        """A warp of the four that stand for the one that multiplies on Blackwell."""
        filled_q, filled_do, freed_q, freed_do = self._rings
        scores, gradients, values, queries, keys = self._products(GROUP)

        def tell(slot: int, *rings: Ring) -> Parts:
            return [event(Kind.WAIT, wait=1 << slot), *(arrival(ring, GROUP) for ring in rings)]

        def next_of(ring: Ring) -> Parts:
            """Wait for what the next iteration has."""
            return [until_done(ring)._replace(turn=1)]

        softmax, gradient, place = self._barrier(3), self._barrier(4), self._barrier(6)
        begin: Parts = [
            *[until_done(self._barrier(0)), until_done(filled_q), *scores, *tell(SCORES, self._barrier(1))],
            *[until_done(filled_do), *gradients, *tell(GRADIENTS, self._barrier(2))],
            *[until_done(softmax), *values, *tell(VALUES, freed_do)],
        ]
        following: Parts = [*next_of(filled_q), *scores, *tell(SCORES, self._barrier(1))]
        walk: Parts = [
            *(following if filled_q.stages > 1 else ()),
            *[until_done(gradient), *keys, until_free(place), *queries, *tell(KEYS, freed_q)],
            *tell(QUERIES, self._barrier(5)),
            *(following if filled_q.stages == 1 else ()),
            *[*next_of(filled_do), *gradients, *tell(GRADIENTS, self._barrier(2))],
            *[*next_of(softmax), *values, *tell(VALUES, freed_do)],
        ]
        end: Parts = [
            *[until_done(gradient), *keys, until_free(place), *queries, *tell(KEYS, freed_q)],
            *tell(QUERIES, self._barrier(5), self._barrier(7)),
        ]
        return join([
            compute(Pipe.ALU, SETUP_INSTRUCTIONS, LATENCY_CLK),
            loop(begin, 1),
            loop(walk, iterations - 1),
            loop(end, 1, iterations - 1),
            event(Kind.EXIT),
        ])  # fmt: skip


def backward_kernel(
    shape: FlashShape,
    queries: tuple[int, int],
    keys: tuple[int, int],
    stats: tuple[int, int],
    sums: int,
    out: tuple[int, int],
) -> FlashBackward:
    """The main kernel of the backward pass; addresses as of `FlashBackward`."""
    kind = FlashBackward if shape.version == 2 else FlashRolesBackward
    return kind(shape, queries, keys, stats, sums, out)
