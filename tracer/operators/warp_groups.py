"""Events of groups of four warps that multiply and compute: products whose results come later, arithmetic in pieces."""

import numpy as np

from tracer.events import compute
from tracer.operators.flash_kernel import LATENCY_CLK, REGISTERS
from tracer.operators.flash_shape import FlashShape
from tracer.operators.stage_ring import Parts
from tracer.operators.tile_loop import SFU_LATENCY_CLK, Phase, TileLoop
from traces.schema import LATER, Kind, Pipe

GROUP = 4
"""Warps of a group."""
FILE_REGISTERS = 16384
"""Registers of a scheduler, each GROUP-th warp: one workgroup takes them all."""
PIECES = 4
"""Pieces of a softmax: a row of 128 scores has 4 fragments in FlashAttention 4 (softmax.py, `apply_exp2_convert`)."""
INSTRUCTION_K = 16
"""Depth of a matrix instruction of 16-bit operands."""


def arithmetic(each: float, *steps: tuple[tuple[Pipe, float], ...]) -> Parts:
    """Arithmetic of `each` scores of a lane. steps: one after the other; pipes and instructions per score of each.

    A run of instructions holds its scheduler. In PIECES, other warps come between.
    """
    made: Parts = []
    for step in steps:
        for piece in range(PIECES):
            first, last = (round(each * number / PIECES) for number in (piece, piece + 1))
            for pipe, instructions in step:
                made += _run(pipe, instructions, first, last)
    return made


def _run(pipe: Pipe, instructions: float, first: int, last: int) -> list[np.ndarray]:
    """Instructions of scores `first` to `last` of a lane, none if there are none."""
    number = round(instructions * last) - round(instructions * first)
    latency_clk = SFU_LATENCY_CLK if pipe == Pipe.SFU else LATENCY_CLK
    return [compute(pipe, number, latency_clk)] if number else []


def multiply(shape: FlashShape, macs: int, shared_bytes: int, slot: int, instruction_macs: int) -> list[np.ndarray]:
    """A product of a warp, with operands of `shared_bytes` in shared memory, whose result clears the slot.

    macs, instruction_macs: multiply-accumulates, and those of an instruction.
    """
    made = TileLoop(GROUP, shape.lanes, 0, (), shape.mac_cost, instruction_macs)
    events = made.arithmetic(Phase(0, 0, 0, macs, shared_bytes))
    for each in events:
        products = each["kind"] == Kind.COMPUTE
        each["space"][products], each["slot"][products] = LATER, slot
    return events


def registers_of(warps: int, lanes: int) -> int:
    """Registers of a lane of a workgroup that fills a CU."""
    return min(REGISTERS, FILE_REGISTERS // (-(-warps // GROUP) * lanes) // 8 * 8)
