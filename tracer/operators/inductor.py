"""The kernels that torch.compile makes (TorchInductor, Triton): their loops and their instructions.

The loops are those of torch/_inductor/runtime/triton_heuristics.py (PyTorch 2.11) and of the kernels that it made on an
H200 (validation/references/gpu_h200_kernels.csv): a lane has eight elements of an element-wise kernel, in small ones
two; a row of more than 1024 elements is read in blocks of 2048, once for its sums and once for its output, a shorter
one is kept. The instructions were counted in the machine code for sm_90 that Triton 3.6.0 makes of kernels of this
form, and in that for gfx942, bf16, without NOPs (`tracer.operators.counted`) (D67).
"""

from dataclasses import asdict, dataclass, replace
from math import gcd
from typing import Any

from tracer.events import VECTOR_BYTES
from tracer.operators.counted import Counted
from tracer.operators.element_map import ElementMap
from tracer.operators.row_costs import RowCosts, RowInstructions

BLOCK, WARPS = 1024, 4
"""Elements of a workgroup (XBLOCK) and its warps (`pointwise`)."""
FEW, FEW_BLOCK, FEW_WARPS = 1 << 22, 512, 8
"""The second of its two configurations. The faster one is taken: kernels of 1.0 and 2.1 million elements have this one,
those of 5.2 to 14.7 million the first. So the limit is assumed."""
ROW_BLOCK, ROW_THREADS = 2048, 512
"""Elements of a row that a workgroup reads at a time (R0_BLOCK, `reduction`)."""
KEPT_COLUMNS, KEPT_LANE_ELEMENTS, KEPT_THREADS = 1024, 4, (64, 256)
"""`persistent_reduction`: a workgroup has one row, and so many elements of it in a lane (assumed)."""
DROPOUT_FMA = Counted(65, 77)
"""Instructions per element of a random number (Philox, `tl.rand`) and of what it decides."""


@dataclass(frozen=True)
class MapCosts:
    """Instructions of an element-wise kernel.

    Attributes:
        fma, sfu: per element; `fma` counts all but transcendental ones.
        access: per access to each tensor: conversions of a lane's elements.
        index, index_fma: per access, on the pipe for integers and on others.
    """

    fma: int
    sfu: int = 0
    access: int = 0
    index: int = 0
    index_fma: int = 0


ADD = Counted(MapCosts(1), MapCosts(4))
ROTARY = Counted(MapCosts(6, index=79, index_fma=99), MapCosts(16, index=38))
MAPS = {
    "gelu": Counted(MapCosts(30, 2, 7), MapCosts(35, 2)),
    "gelu_backward": Counted(MapCosts(34, 2, 7), MapCosts(36, 2)),
    "swiglu": Counted(MapCosts(14, 2, 7), MapCosts(25, 2)),
    "swiglu_backward": Counted(MapCosts(19, 2, 7), MapCosts(34, 2)),
    "cross_entropy_backward": Counted(MapCosts(17, 2, 7), MapCosts(25, 2)),
    "residual": ADD,
    "dropout_residual": Counted(MapCosts(DROPOUT_FMA.nvidia + 2, access=7), MapCosts(DROPOUT_FMA.amd + 6)),
    "bias": ADD,
    "copy": Counted(MapCosts(0, access=1), MapCosts(2)),
    "rotary": ROTARY,
    "rotary_backward": ROTARY,
    "dropout": Counted(MapCosts(DROPOUT_FMA.nvidia + 1, access=7), MapCosts(DROPOUT_FMA.amd + 5)),
    "dropout_backward": Counted(MapCosts(4, access=4), MapCosts(6)),
}
"""By the name of the kernel. Those of gfx942 round to bf16 in them. Rotary has half of the elements in a lane: each of
ours makes two of its output; it reads each element for both halves of a head, the second time from L1 (left out). The
gradient of the cross-entropy has the output of `ONLINE_SOFTMAX` (assumed)."""


_COSTS = RowCosts(setup=40, access=7, step=2, step_clk=33, warp_steps=4, alu=0.5, in_flight=2, registers=32)
_AMD = replace(_COSTS, setup=17, access=9, warp_steps=3)
MEAN_OF_SQUARES = Counted(RowInstructions(_COSTS, 2, 2), RowInstructions(_AMD, 2, 3))
"""RMSNorm, with or without a residual: 72 instructions outside of loops, of which 32 are the sum; 64 for a block, four
elements of a lane. On AMD 35 and 75. Latencies of steps, here and below, are those of `tracer.operators.library`
(assumed)."""
WELFORD = Counted(
    RowInstructions(replace(_COSTS, setup=33, access=4, step=31, step_clk=95, alu=0.25, element_clk=16), 9, 22),
    RowInstructions(replace(_AMD, setup=50, step=40, step_clk=95, element_clk=16), 2, 22),
)
"""LayerNorm: 103 instructions of a block for the sums, with a division; 177 and 95 for the sum over lanes and over
warps; 56 of a block for the output. On AMD 99 and four reciprocals, which take four times as long as others; 215 and
83; 42."""
ONLINE_SOFTMAX = Counted(
    RowInstructions(replace(_COSTS, setup=26, access=4, step=42, step_clk=99, alu=0.25, element_clk=16), 17, 29, 2),
    RowInstructions(replace(_AMD, setup=25, step=62, step_clk=99, element_clk=16), 25, 41, 2),
)
"""Softmax: maximum and sum in one pass (`online_softmax_reduce`), 121 instructions of a block; 233 and 134 for the sum
over lanes and over warps; 82 of a block for the output, with a division. On AMD 142 and eight exponentials; 350 and
135; 124."""
LARGEST = Counted(RowInstructions(replace(_COSTS, access=4), 5, 1), RowInstructions(_AMD, 12, 3, 1))
"""The largest element of a row, then the quantised row: 147 instructions for two blocks, on AMD 215."""
GRADIENT = Counted(RowInstructions(replace(_COSTS, access=8), 4, 2), RowInstructions(replace(_AMD, access=6), 4, 2))
"""The gradient of RMSNorm: 94 instructions of a block, with eight accesses; on AMD 70. LayerNorm and softmax have the
same (assumed)."""


def inductor_map(kernel: ElementMap) -> ElementMap:
    """An element-wise kernel with loop and instructions of TorchInductor. Its name is one of `MAPS`."""
    each, costs = 2 if kernel.name.startswith("rotary") else 1, MAPS[kernel.name].on(kernel.lanes)
    block, warps = (FEW_BLOCK, FEW_WARPS) if each * kernel.rows * kernel.cols <= FEW else (BLOCK, WARPS)
    elements = max(1, block // (each * warps * kernel.lanes))
    widest_bytes = max(tensor.bytes for tensor in kernel.tensors)
    vector = gcd(elements, kernel.cols, VECTOR_BYTES // widest_bytes)
    return replace(kernel, vector=vector, unroll=elements // vector, warps=warps, turns=1, **asdict(costs))


def inductor_rows(cols: int, widest_bytes: int, lanes: int, counts: Counted[RowInstructions]) -> dict[str, Any]:
    """Fields of a row kernel. widest_bytes: of an element of its widest tensor."""
    least, most = KEPT_THREADS
    kept = 1 << min(most, max(least, cols // KEPT_LANE_ELEMENTS)).bit_length() - 1
    elements = min(ROW_BLOCK // ROW_THREADS, VECTOR_BYTES // widest_bytes)
    return {
        "shared_rows": True,
        "keep": cols <= KEPT_COLUMNS,
        "warps": (kept if cols <= KEPT_COLUMNS else ROW_THREADS) // lanes,
        "vector": gcd(elements, cols),
        "lanes": lanes,
        **counts.on(lanes)._asdict(),
    }
