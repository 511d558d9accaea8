"""RMS normalisation: y = x / sqrt(mean(x^2) + epsilon) * weight, row by row.

As `tracer.operators.layernorm` with one sum, one vector and one statistic. Traffic in sectors of 32 bytes, where a row
is S whole sectors (S32 of 4-byte elements):

forward:   DRAM reads (rows + 1) * S, DRAM writes rows * S, with `stats` ceil(rows / 8) more.
           With `residual` (h = x + residual, then the norm, fused): reads rows * S more, writes rows * S more.
backward:  DRAM reads (2 * rows + 1) * S + ceil(rows / 8) + W * S32 in the second kernel,
           DRAM writes rows * S + W * S32, then S; W workgroups.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.operators import inductor, library
from tracer.operators.counted import Counted
from tracer.operators.norm import Norm
from tracer.operators.row_costs import RowInstructions


@dataclass(frozen=True, kw_only=True)
class RmsNorm(Norm):
    """One RMS normalisation. The fields are those of `tracer.operators.norm.Norm`."""

    NAME: ClassVar[str] = "rmsnorm"
    VECTORS: ClassVar[int] = 1
    SCALARS: ClassVar[int] = 1
    REDUCTIONS: ClassVar[int] = 1
    TORCH: ClassVar[Counted[RowInstructions]] = library.MEAN_OF_SQUARES
    INDUCTOR: ClassVar[Counted[RowInstructions]] = inductor.MEAN_OF_SQUARES
