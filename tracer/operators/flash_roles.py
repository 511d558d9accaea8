"""The forward kernels of FlashAttention 3 (Hopper; Shah et al., arXiv 2407.08608) and 4 (Blackwell): warps with roles.

One warp copies queries, keys and values in bulk (TMA) into stages of shared memory. Groups of four warps have the
queries, 64 each on Hopper, 128 on Blackwell. On Hopper a group multiplies too (WGMMA): the next scores and the output
of those before, beside the softmax. On Blackwell four more warps for each group stand for the one that multiplies for
all (tcgen05): the output of the scores before, then the next scores, while the other group takes its softmax. Groups
begin their products in turn.

Pairs of workgroups on Blackwell keep half of the keys and values each, as pairs of a GEMM do (D64).

Left out: persistent workgroups (each tile has its own), pieces of scores that are handed over early, masks (D65).
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from tracer.events import compute, event, join, shared_access
from tracer.operators.flash_kernel import (
    LATENCY_CLK,
    SCORE_FMA,
    SCORE_SFU,
    SETUP_INSTRUCTIONS,
    STAT_BYTES,
    FlashForward,
    Part,
    line_of_numbers,
)
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
from tracer.operators.warp_groups import GROUP, INSTRUCTION_K, arithmetic, multiply, registers_of
from traces.schema import Kind, Pipe
from traces.source import KernelInfo

STAGED, COPIED, SCORES, OUTPUT = range(1, 5)
"""Scoreboard slots: results in shared memory, and on their way from there; products."""


class Roles(NamedTuple):
    """Tiles for heads of up to `head_dim` elements.

    Attributes:
        groups: of warps, with queries of their own.
        keys, causal_keys: of an iteration.
        paired: without causality, pairs of workgroups keep half of each tile of keys and values.
        causal_pair: also with it.
        stored, causal_stored: the softmax goes through shared memory, without and with causality.
        in_turn: groups begin their products one after the other.
    """

    head_dim: int
    groups: int
    keys: int
    causal_keys: int
    paired: bool = False
    causal_pair: bool = False
    stored: bool = False
    causal_stored: bool = False
    in_turn: bool = False


HOPPER = (
    Roles(64, 3, 192, 128, stored=True, in_turn=True),
    Roles(96, 3, 144, 144, stored=True, causal_stored=True, in_turn=True),
    Roles(128, 2, 176, 128, in_turn=True),
    Roles(192, 2, 112, 112),
    Roles(256, 2, 80, 80),
)
"""Dao-AILab/flash-attention @0251105a, hopper/tile_size.h; two stages of keys and two of values
(hopper/flash_fwd_launch_template.h); turns (mainloop_fwd_sm90_tma_gmma_ws.hpp, `UseSchedulerBarrier`)."""
BLACKWELL = (
    Roles(112, 2, 128, 128, in_turn=True),
    Roles(128, 2, 128, 128, paired=True, in_turn=True),
    Roles(192, 2, 128, 128, in_turn=True),
    Roles(256, 1, 128, 128, paired=True, causal_pair=True),
)
"""The same, flash_attn/cute/flash_fwd_sm100.py and interface.py (`use_2cta_instrs`). Heads of 129 to 191 elements and
of 192 with as wide values are not there: assumed. Those of 256 have a kernel of their own, whose pairs, tile of 128
queries and two places for scores (`qk_acc_stage`) are here (sm100_hd256_2cta_fmha_forward.py)."""
BLACKWELL_STAGE_BYTES = 224 << 10
"""Shared memory for queries, outputs and the stages of keys and values (`_setup_attributes`)."""
STAGES_MAX = 11
"""Two of the PHASE_BARRIERS of a workgroup for each stage, and nine for the roles; more stages are of no use."""
L2_BYTES = {3: 32 << 20, 4: 50 << 20}
"""Keys and values of a section (tile_scheduler.hpp, tile_scheduler.py)."""
EMULATED = {False: 3 / 16, True: 1 / 8}
"""Share of exponentials that polynomials compute on Blackwell, without and with causality: of 128 scores in fragments
of 32, 2 of 4 fragments with 6 of 16 or 4 of 16 pairs (softmax.py, `apply_exp2_convert`, `_TUNING_CONFIG`, heads of
128; taken for all heads)."""
EMULATED_ALU, EMULATED_FMA = 3.0, 6.0
"""Instructions of one of them: limit, shift, sum of integers; rounding, two differences, polynomial of degree 3
(utils.py, `ex2_emulation_2`; packed instructions take two turns of the pipe)."""
LARGEST_ALU, CONVERT_ALU = {3: 1.0, 4: 0.5}, 0.5
"""Instructions per score: the maximum, on Blackwell of three numbers at a time (utils.py, `fmax_reduce`); conversion of
two."""


@cache
def _softmax(lanes: int, scores: int, version: int, emulated: float) -> Parts:
    """Softmax of `scores` scores of a warp. emulated: share of exponentials that polynomials compute."""
    return arithmetic(
        scores / lanes,
        ((Pipe.ALU, LARGEST_ALU[version]),),
        (
            (Pipe.FMA, SCORE_FMA + emulated * EMULATED_FMA),
            (Pipe.SFU, SCORE_SFU * (1 - emulated)),
            (Pipe.ALU, CONVERT_ALU + emulated * EMULATED_ALU),
        ),
    )


@dataclass(frozen=True)
class FlashRoles(FlashForward):
    """A forward kernel whose warps have roles; more than one query."""

    VERSION: ClassVar[int] = 1

    @property
    def _roles(self) -> Roles:
        return self.shape.row_of(HOPPER if self.shape.version == 3 else BLACKWELL)

    @property
    def _group_rows(self) -> int:
        """Queries of a group of warps."""
        return 64 if self.shape.version == 3 else 128

    @property
    def _groups(self) -> int:
        groups = self._roles.groups
        return groups if self.shape.version == 3 else min(groups, -(-self.shape.queries // self._group_rows))

    @cached_property
    def tiles(self) -> tuple[int, int]:
        keys = self._roles.causal_keys if self.shape.causal else self._roles.keys
        return self._groups * self._group_rows, keys

    @property
    def _pair(self) -> int:
        """Workgroups that share keys and values."""
        s = self.shape
        paired = self._roles.causal_pair if s.causal else self._roles.paired
        return 2 if paired and s.queries > self.block_m else 1

    @property
    def blocks(self) -> int:
        return -(-self.shape.queries // (self.block_m * self._pair)) * self._pair

    @property
    def _stages(self) -> int:
        """Tiles of keys or values in shared memory."""
        if self.shape.version == 3:
            return 4
        return min(STAGES_MAX, (BLACKWELL_STAGE_BYTES - self._kept_bytes) // self._tile_bytes)

    @property
    def _tile_bytes(self) -> int:
        """Size of a tile of keys in the shared memory of a workgroup."""
        return self.block_n // self._pair * self.shape.row_bytes

    @property
    def _kept_bytes(self) -> int:
        """Size of the queries, on Blackwell also of the outputs, which take the same place with heads from 192."""
        apart = self.shape.version > 3 and self.shape.head_dim < 192
        return (2 if apart else 1) * self.block_m * self.shape.row_bytes

    @property
    def _warps_number(self) -> int:
        return GROUP * self._groups * (1 if self.shape.version == 3 else 2) + 1

    @cached_property
    def info(self) -> KernelInfo:
        s = self.shape
        return self.make_info(
            f"flash_attention_{s.version}_{s.batch}x{s.heads}x{s.queries}x{s.keys}x{s.head_dim}",
            workgroups=s.batch * s.heads * self.blocks,
            warps=self._warps_number,
            lanes=s.lanes,
            registers=registers_of(self._warps_number, s.lanes),
            shared_bytes=self._kept_bytes + self._stages * self._tile_bytes,
            cluster=self._pair,
        )

    @property
    def _filled(self) -> Ring:
        """Stages that the copies fill; behind it those that are read, and the barriers of the queries."""
        return Ring(0, self._stages)

    @property
    def _freed(self) -> Ring:
        return Ring(self._stages, self._stages)

    def _barrier(self, number: int) -> Ring:
        """Of queries (0); of group g on Blackwell: scores (1 + g), their softmax (3 + g), outputs (5 + g); of all: its
        products have begun (7 + g)."""
        return Ring(2 * self._stages + number)

    def warp_events(self, index: int) -> list[np.ndarray]:
        sequence_head, block = self._place(index)
        part = self.prompt(sequence_head, block)
        if self._pair == 2:  # both walk the keys of the later one
            part = part._replace(end=self.prompt(sequence_head, block | 1).end)
        iterations = -(-part.end // self.block_n)
        groups = [self._group(number, part, iterations) for number in range(self._groups)]
        multiply = [] if self.shape.version == 3 else [self._multiplies(g, iterations) for g in range(self._groups)]
        return [
            *(warp for group in groups for warp in group),
            *(warp for warp in multiply for _ in range(GROUP)),
            self._copies(part, block, iterations),
        ]

    @property
    def _section(self) -> int:
        """Heads whose workgroups are mixed with causality, so that the heaviest come first."""
        s = self.shape
        fit = L2_BYTES[s.version] // (2 * s.keys * s.row_bytes)
        return min(s.batch * s.heads, s.group << max(0, fit.bit_length() - 1))

    @property
    def period(self) -> int:
        return self.blocks * (self._section if self.shape.causal else 1)

    def _place(self, index: int) -> tuple[int, int]:
        """Head, counted over all sequences, and block of queries of a workgroup."""
        if not self.shape.causal:
            return divmod(index, self.blocks)
        pairs, member = divmod(index, self._pair)
        blocks = self.blocks // self._pair
        section, rest = divmod(pairs, self._section * blocks)
        first = section * self._section
        heads = min(self._section, self.shape.batch * self.shape.heads - first)
        return first + rest % heads, (blocks - 1 - rest // heads) * self._pair + member

    def _copies(self, part: Part, block: int, iterations: int) -> np.ndarray:
        """The warp that copies."""
        s, filled, freed = self.shape, self._filled, self._freed
        setup = compute(Pipe.ALU, SETUP_INSTRUCTIONS, LATENCY_CLK)
        queries = self._barrier(0)
        first = arrival(queries, 1)._replace(events=bulk_load(part.q, s.row_bytes))
        kept = self.block_n // self._pair
        tiles = [tile.part(block % self._pair * kept) for tile in self.streams(part)]
        parts: Parts = []
        for turn, tile in enumerate(tiles):
            load = arrival(filled, 1)._replace(events=bulk_load(tile._replace(rows=kept), s.row_bytes))
            parts += [until_free(freed, 2, turn), load._replace(turns=2, turn=turn), arrival(filled, 1, 2, turn)]
        walk = streamed(parts, tiles, self.block_n, kept, iterations)
        return join([setup, loop([first, arrival(queries, 1)], 1), walk, event(Kind.EXIT)])

    def _group(self, number: int, part: Part, iterations: int) -> list[np.ndarray]:
        """The warps of a group: softmax and output, on Hopper also the products."""
        s, rows = self.shape, self._group_rows // GROUP
        events = self._softmaxes(number, iterations)
        out = shared_access(Kind.STORE, s.lanes, rows * s.row_bytes, STAGED)
        warps = []
        for warp in range(GROUP):
            first = number * self._group_rows + warp * rows
            mine = part.o.part(first, rows)
            parts = [events, out, bulk_store(mine, s.row_bytes, COPIED, 1 << STAGED)]
            if self.stats is not None and mine.rows > 0:
                address = self.stats + (part.stats + first) * STAT_BYTES
                parts.append(line_of_numbers(Kind.STORE, address, mine.rows, s.lanes))
            warps.append(join([*parts, event(Kind.EXIT)]))
        return warps

    def _softmaxes(self, number: int, iterations: int) -> np.ndarray:
        """What each warp of a group does before it stores."""
        s, rows = self.shape, self._group_rows // GROUP
        emulated = EMULATED[s.causal] if s.version > 3 and not s.fast_exp else 0.0
        softmax = _softmax(s.lanes, rows * self.block_n, s.version, emulated)
        if self._stored_bytes:
            store = shared_access(Kind.STORE, s.lanes, self._stored_bytes, STAGED)
            softmax = [*softmax, store, event(Kind.WAIT, wait=1 << STAGED)]
        scale = compute(Pipe.FMA, rows * s.head_dim // s.lanes, LATENCY_CLK)
        if s.version == 3:
            return join([self._products(number, iterations, [], [*softmax], [scale]), scale])
        setup = compute(Pipe.ALU, SETUP_INSTRUCTIONS, LATENCY_CLK)
        walk: Parts = [until_done(self._barrier(1 + number)), *softmax, arrival(self._barrier(3 + number), GROUP)]
        end: Parts = [until_done(self._barrier(5 + number)), scale]
        return join([setup, loop(walk, iterations), loop(end, 1)])

    @property
    def _stored_bytes(self) -> int:
        """Softmax of a warp's scores that goes through shared memory."""
        s, roles = self.shape, self._roles
        stored = roles.causal_stored if s.causal else roles.stored
        return self._group_rows // GROUP * self.block_n * s.element_bytes if stored else 0

    def _turn(self, group: int) -> tuple[Parts, Parts]:
        """A group waits until the one before it has begun its products of an iteration, and tells that it has."""
        if not self._roles.in_turn or self._groups == 1:
            return [], []
        before = self._barrier(7 + (group - 1) % self._groups)
        return [until_done(before) if group > 0 else until_free(before)], [arrival(self._barrier(7 + group), GROUP)]

    def _multiplies(self, group: int, iterations: int) -> np.ndarray:
        """One of the four warps that multiply for a group on Blackwell."""
        ready = until_done(self._barrier(3 + group))
        return join([self._products(group, iterations, [ready], [], []), event(Kind.EXIT)])

    def _multiply(self, shared_bytes: int, slot: int) -> list[np.ndarray]:
        """What a warp multiplies of the scores or of the output of a group.

        shared_bytes: of the operand in shared memory that is the group's own. A tile of keys or values, the other one,
        is read once for the group.
        """
        scores = self._group_rows // GROUP * self.block_n
        shared = shared_bytes + self._tile_bytes // GROUP
        return multiply(self.shape, scores * self.shape.head_dim, shared, slot, scores * INSTRUCTION_K)

    def _products(self, group: int, iterations: int, ready: Parts, softmax: Parts, rescale: Parts) -> np.ndarray:
        """What a warp does that multiplies for a group: the next scores beside the output of the ones before.

        With two groups on Blackwell the output comes first: meanwhile the other group takes its softmax.

        ready: it waits for the softmax of the group. softmax, rescale: what it does itself between the products.
        """
        filled, readers = self._filled, GROUP * self._groups
        of_scores = self._multiply(self._group_rows // GROUP * self.shape.row_bytes, SCORES)
        of_output = self._multiply(self._stored_bytes, OUTPUT)
        scores_done, output_done = event(Kind.WAIT, wait=1 << SCORES), event(Kind.WAIT, wait=1 << OUTPUT)
        tell: Parts = [] if softmax else [arrival(self._barrier(1 + group), GROUP)]

        def keys_read(turn: int) -> Parts:
            return [scores_done, *tell, arrival(self._freed, readers, 2, turn), *softmax]

        output: Parts = [until_done(filled, 2, 1), *ready, *of_output]
        read = arrival(self._freed, readers, 2, 1)
        begin: Parts = [until_done(filled, 2, 0), *of_scores, *keys_read(0)]
        after: Parts = [output_done, read, *rescale]
        scores: Parts = [until_done(filled, 2, 2), *of_scores]
        turn, begun = self._turn(group)
        if softmax:
            walk = [*turn, *scores, *output, *begun, *keys_read(2), *after]
        elif self._groups == 1:
            walk = [*scores, *keys_read(2), *output, *after]
        else:
            walk = [*turn, *output, *scores, *begun, *after, *keys_read(2)]
        tell_end: Parts = [] if softmax else [arrival(self._barrier(5 + group), GROUP)]
        end: Parts = [*turn, *output, *begun, output_done, *tell_end]
        return join([
            compute(Pipe.ALU, SETUP_INSTRUCTIONS, LATENCY_CLK),
            loop([until_done(self._barrier(0))], 1),
            loop(begin, 1),
            loop(walk, iterations - 1),
            loop(end, 1, iterations - 1),
        ])  # fmt: skip


def forward_kernel(shape: FlashShape, q: int, k: int, v: int, o: int, stats: int | None) -> FlashForward:
    """The forward kernel of a prompt. q, k, v, o, stats: addresses."""
    kind = FlashForward if shape.version == 2 else FlashRoles
    return kind(shape, q, k, v, o, stats)
