"""Layer normalisation: y = (x - mean) / sqrt(variance + epsilon) * weight + bias, row by row.

x and y are dense [rows, cols], weight and bias are [cols], all of one type. `tracer.operators.row_kernel` describes the
kernel, `tracer.operators.norm` the chains with dropout and residual. Traffic in sectors of 32 bytes, where a row is S
whole sectors (S32 of 4-byte elements):

forward: x is read, y written; with `stats` also mean and 1 / sqrt(variance + epsilon) of each row, 4 bytes each.

    requested by loads     rows * S * (3 if x is kept in registers, 4 if it is read twice)
    requested by stores    rows * S, with `stats` 2 * rows more
    reads of L2            rows * S + 2 * S for each CU, if the row is kept and L1 holds weight and bias
    DRAM reads             (rows + 2) * S, if L2 holds weight, bias and the rows in flight
    DRAM writes            rows * S, with `stats` 2 * ceil(rows / 8) more

backward: dy and x are read with the two statistics, dx is written. Each of W workgroups adds up the gradients of weight
and bias over its rows; a second kernel adds the W sums of each.

    DRAM reads             (2 * rows + 1) * S + 2 * ceil(rows / 8) + 2 * W * S32 in the second kernel
    DRAM writes            rows * S + 2 * W * S32, then 2 * S
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.operators import inductor, library
from tracer.operators.counted import Counted
from tracer.operators.norm import Norm
from tracer.operators.row_costs import RowInstructions


@dataclass(frozen=True, kw_only=True)
class LayerNorm(Norm):
    """One layer normalisation. The fields are those of `tracer.operators.norm.Norm`."""

    NAME: ClassVar[str] = "layernorm"
    VECTORS: ClassVar[int] = 2
    SCALARS: ClassVar[int] = 2
    REDUCTIONS: ClassVar[int] = 2
    TORCH: ClassVar[Counted[RowInstructions]] = library.WELFORD
    INDUCTOR: ClassVar[Counted[RowInstructions]] = inductor.WELFORD
