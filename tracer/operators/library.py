"""The row kernels of PyTorch: which one it takes for a row, and its instructions.

Read off the sources (aten/src/ATen/native/cuda/SoftMax.cu, layer_norm_kernel.cu) and counted in the machine code for
sm_90 of PyTorch 2.6.0 (the wheel for CUDA 12.4), bf16, along the path without special values. For AMD, loops that do
the same were compiled for gfx942 (clang of LLVM 22): these counts are not those of PyTorch's own binary
(`tracer.operators.counted`, D59). A reciprocal in a sum counts as four instructions there. Latencies are those of
dependent instructions, 4 clocks each, 20 of a reciprocal, 25 of an exchange between lanes (AMD: 64, through shared
memory), 10 of a branch (assumed).
"""

from dataclasses import replace
from enum import IntEnum
from math import gcd
from typing import Any

from tracer.operators.counted import Counted
from tracer.operators.row_costs import ASSUMED, RowCosts, RowInstructions


class Library(IntEnum):
    """Whose kernel it is."""

    GENERIC = 0
    TORCH = 1
    INDUCTOR = 2  # torch.compile: `tracer.operators.inductor`


WARP_COLUMNS, WARP_BYTES = 2048, 4096
"""Most columns, and largest row, of a softmax that one warp keeps (`softmax_warp_forward`; 1024 columns before 2.7)."""
KEPT_COLUMNS = 256
"""Columns that a warp of a row kernel keeps with one element per lane and access; more have wider accesses, as far as
their width divides the row."""
WARP_THREADS, BLOCK_THREADS, NORM_ELEMENTS = 128, 1024, 4
STAGED_BYTES = 48 * 1024 - 128
"""A row of softmax below this size is in shared memory, if its accesses are aligned (`cunn_SoftMaxForwardSmem`)."""
ALIGNED_BYTES = 16
DIVISION_CLK = 110
"""An output: 12 dependent instructions, a reciprocal and a check of its range, two branches around its slow path. So no
element begins before the one before it ends."""
_EXACT, _EXACT_AMD = RowInstructions(ASSUMED, 23, 7, 2), RowInstructions(ASSUMED, 29, 11, 2)
EXACT_SOFTMAX = Counted(_EXACT, _EXACT_AMD)
"""Instructions per element of a softmax with the exponential and the division of the C library: 2 for the maximum and
11 for the sum of exponentials (AMD: 3 and 19), over two passes; 25 for the output (difference, exponential, division,
conversion), on AMD 29 and two transcendental ones."""
_WARP = RowCosts(setup=60, step=3, step_clk=33, out_clk=DIVISION_CLK)
WARP_SOFTMAX = Counted(
    _EXACT._replace(costs=_WARP),
    RowInstructions(replace(_WARP, setup=30, access=2, step_clk=72, out_clk=0), 15, 9, 1),
)
"""`softmax_warp_forward`: some 40 instructions for each element, all unrolled."""
_BLOCK = RowCosts(setup=160, access=4, step=4, step_clk=33, alu=0.4, out_clk=DIVISION_CLK, in_flight=1, registers=32)
_BLOCK_AMD = replace(_BLOCK, setup=40, access=5, step=3, step_clk=72, out_clk=0)
SOFTMAX = Counted(_EXACT._replace(costs=_BLOCK), _EXACT_AMD._replace(costs=_BLOCK_AMD))
"""`cunn_SoftMaxForward`: 73 instructions before the first loop, some 40 before each other one; 66 and 39 for a sum over
lanes and warps, a third of them only in the first warp. Divisions of AMD have no branches, so elements do not wait."""
STAGED_SOFTMAX = Counted(
    _EXACT._replace(costs=replace(_BLOCK, setup=50, access=15)),
    _EXACT_AMD._replace(costs=replace(_BLOCK_AMD, access=15)),
)
"""`cunn_SoftMaxForwardSmem`: `access` includes the store of the values to shared memory and their loads from there."""
_NORM = RowCosts(setup=117, access=4, step=4, step_clk=33, warp_steps=2, alu=0.25, in_flight=1, registers=40)
_NORM_AMD = replace(_NORM, setup=70, access=3, step_clk=72, warp_steps=1)
WELFORD = Counted(
    RowInstructions(replace(_NORM, step=27, step_clk=95, element_clk=65), 7, 17),
    RowInstructions(replace(_NORM_AMD, step=36, step_clk=144), 9, 20),
)
"""`vectorized_layer_norm_kernel`: mean and variance by Welford's method, with a reciprocal and (not on AMD) two
branches for each element: 17 instructions, of which 10 and the reciprocal wait for one another. Setup is what is
outside of loops. On AMD the two steps over warps count as one: of four warps two have the first, and one the second."""
MEAN_OF_SQUARES = Counted(RowInstructions(_NORM, 2, 2), RowInstructions(_NORM_AMD, 7, 2))
"""The same kernel for RMSNorm (PyTorch 2.8 and later; counts assumed)."""
NORM: dict[str, Any] = {"warps": 4, "shared_rows": True, "keep": False, "tail": True}


def rows_of_a_warp(rows: int, cols: int, lanes: int) -> int:
    """Short rows of a softmax that a warp takes: twice as many as its lanes hold, each in a power of two of them. They
    are one long row of our kernel (`rows` must be a multiple)."""
    lanes_of_row = 1 << (cols - 1).bit_length()
    return gcd(rows, 2 * lanes // lanes_of_row) if lanes_of_row <= lanes else 1


def torch_norm(element_bytes: int) -> dict[str, Any]:
    """Fields of the row kernel of a norm."""
    return {**NORM, "vector": min(NORM_ELEMENTS, ALIGNED_BYTES // element_bytes)}


def torch_softmax(cols: int, element_bytes: int, lanes: int, backward: bool) -> dict[str, Any]:
    """Fields of the row kernel of a softmax of rows of `cols` elements, or of its gradient (of long rows: none)."""
    if cols <= WARP_COLUMNS and cols * element_bytes <= WARP_BYTES:
        counts = {} if backward else WARP_SOFTMAX.on(lanes)._asdict()
        return {"vector": gcd(cols, max(1, cols // KEPT_COLUMNS)), "warps": WARP_THREADS // lanes, **counts}
    if backward:
        return {}
    block = {
        "vector": ALIGNED_BYTES // element_bytes,
        "warps": BLOCK_THREADS // lanes,
        "shared_rows": True,
        "passes": 2,
    }
    size_bytes = cols * element_bytes
    if size_bytes % ALIGNED_BYTES == 0 and size_bytes < STAGED_BYTES:
        return {**block, "staged": True, **STAGED_SOFTMAX.on(lanes)._asdict()}
    return {**block, "keep": False, "tail": True, **SOFTMAX.on(lanes)._asdict()}
