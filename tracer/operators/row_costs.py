"""Costs of a row kernel (`tracer.operators.row_kernel`) that are not those of its elements."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tracer.events import compute, join
from traces.schema import Pipe

KEPT_ACCESSES = 8
"""Most accesses of a row whose values a warp keeps. fp16 values take 64 registers per thread as fp32 values."""


@dataclass(frozen=True)
class RowCosts:
    """What a row kernel does beside the arithmetic of its elements. The defaults are assumed.

    Attributes:
        setup: instructions of a warp before its first access.
        access: instructions per access to each tensor: 64-bit address, limit, loop, conversion.
        step: instructions of a step of a sum over lanes or warps: an exchange, and what follows it.
        step_clk: its latency. warp_steps: steps of a sum over warps; 0 = as many as over lanes.
        alu: share of setup and steps that the integer pipe takes; the FMA pipe takes the others.
        element_clk: latency of an element in a sum in which each one waits for the one before; 0 = none waits.
        out_clk: the same of an element of the output.
        in_flight: accesses to each input in flight.
        registers: of a lane; 0 = counted from the values in flight.
    """

    setup: int = 16
    access: int = 10
    step: int = 2
    step_clk: int = 25
    warp_steps: int = 0
    alu: float = 1.0
    element_clk: int = 0
    out_clk: int = 0
    in_flight: int = KEPT_ACCESSES
    registers: int = 0

    def on_pipes(self, instructions: int, latency_clk: int, **order) -> np.ndarray:
        """Events of instructions of setup or steps. order: slot and wait."""
        alu = round(self.alu * instructions)
        shares = ((Pipe.ALU, alu), (Pipe.FMA, instructions - alu))
        return join([compute(pipe, number, latency_clk, **order) for pipe, number in shares if number])


class RowInstructions(NamedTuple):
    """Instructions of a row kernel: beside the arithmetic, and per element for output and sums."""

    costs: RowCosts
    fma: int
    sum_fma: int
    sfu: int = 0


ASSUMED = RowCosts()
