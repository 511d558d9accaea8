"""Sum of partial results over workgroups: out[cols] = the sum over `parts` of partial[parts, cols], 4 bytes each.

DRAM reads             parts * cols * 4 bytes
DRAM writes            cols * (bytes of the result's type)
"""

from tracer.operators.element_map import ElementMap
from tracer.operators.tensor import Tensor, Use

PARTIAL_BYTES = 4
WORKGROUPS = 256
"""Workgroups that share the rows of a backward pass, some two for each CU (assumed)."""


def turns_of(rows: int) -> int:
    """Rows, one after the other, of a workgroup of a backward pass."""
    return -(-rows // WORKGROUPS)


def parts_of(rows: int) -> int:
    """Workgroups of a backward pass, each of which stores its sum of every column."""
    return -(-rows // turns_of(rows))


def column_sum(name: str, partial: int, out: int, parts: int, cols: int, out_bytes: int, lanes: int) -> ElementMap:
    """The kernel that adds the partial sums at address `partial`. Each warp adds all parts of some columns."""
    read = Tensor(partial, PARTIAL_BYTES, repeat=parts, step_bytes=cols * PARTIAL_BYTES)
    written = Tensor(out, out_bytes, Use.WRITE)
    return ElementMap(name, 1, cols, (read, written), fma=parts, unroll=1, warps=1, lanes=lanes)
