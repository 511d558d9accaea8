"""The row kernels of PyTorch: which one it takes for a row, and its instructions.

Read off the sources (aten/src/ATen/native/cuda/SoftMax.cu, layer_norm_kernel.cu) and counted in the machine code for
sm_90 of PyTorch 2.6.0 (the wheel for CUDA 12.4), bf16, along the path without special values. Latencies are the
dependent instructions, 4 clocks each, 20 of a reciprocal, 25 of an exchange between lanes, 10 of a branch (assumed).
"""

from enum import IntEnum
from math import gcd
from typing import Any

from tracer.operators.row_kernel import RowCosts


class Library(IntEnum):
    """Whose kernel it is."""

    GENERIC = 0
    TORCH = 1


WARP_COLUMNS = 1024
"""Most columns of a softmax that one warp keeps (`softmax_warp_forward`)."""
KEPT_COLUMNS = 256
"""Columns that a warp of a row kernel keeps with one element per lane and access; more have wider accesses, as far as
their width divides the row."""
WARP_THREADS, BLOCK_THREADS, NORM_ELEMENTS = 128, 1024, 4
STAGED_BYTES = 48 * 1024 - 128
"""A row of softmax below this size is in shared memory, if its accesses are aligned (`cunn_SoftMaxForwardSmem`)."""
ALIGNED_BYTES = 16
SOFTMAX = RowCosts(setup=160, access=4, step=4, step_clk=33, alu=0.4, in_flight=1, registers=32)
"""`cunn_SoftMaxForward`: 73 instructions before the first loop, some 40 before each other one; 66 and 39 for a sum over
lanes and warps, a third of them only in the first warp."""
STAGED_SOFTMAX = RowCosts(setup=50, access=15, step=4, step_clk=33, alu=0.4, in_flight=1, registers=32)
"""`cunn_SoftMaxForwardSmem`: an access beside its arithmetic goes to shared memory too."""
WELFORD = RowCosts(
    setup=117, access=4, step=27, step_clk=95, warp_steps=2, alu=0.25, element_clk=65, in_flight=1, registers=40
)
"""`vectorized_layer_norm_kernel`: mean and variance by Welford's method, with a reciprocal and two branches for each
element: 17 instructions, of which 10 and the reciprocal wait for one another. Setup is what is outside of loops."""
WELFORD_SUM_FMA, WELFORD_FMA = 17, 7
MEAN_OF_SQUARES = RowCosts(setup=117, access=4, step=4, step_clk=33, warp_steps=2, alu=0.25, in_flight=1, registers=40)
"""The same kernel for RMSNorm (PyTorch 2.8 and later; counts assumed)."""
NORM: dict[str, Any] = {"warps": 4, "shared_rows": True, "keep": False, "tail": True}


def torch_norm(element_bytes: int) -> dict[str, Any]:
    """Fields of the row kernel of a norm."""
    return {**NORM, "vector": min(NORM_ELEMENTS, ALIGNED_BYTES // element_bytes)}


def torch_softmax(cols: int, element_bytes: int, lanes: int, backward: bool) -> dict[str, Any]:
    """Fields of the row kernel of a softmax of rows of `cols` elements, or of its gradient (of long rows: none)."""
    if cols <= WARP_COLUMNS:
        return {"vector": gcd(cols, max(1, cols // KEPT_COLUMNS)), "warps": WARP_THREADS // lanes}
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
        return {**block, "staged": True, "costs": STAGED_SOFTMAX}
    return {**block, "keep": False, "tail": True, "costs": SOFTMAX}
