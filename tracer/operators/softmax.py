"""Softmax: y = exp(x - max) / sum(exp(x - max)), row by row.

A row is S whole sectors of 32 bytes. A row that fits the registers of its warps is read once. A longer one is read in
`passes` passes for maximum and sum (1: both at once) and once more for the output; L2 may hold it in between.

forward:   requested by loads rows * S * n (n = 1, or passes + 1); DRAM writes rows * S
backward:  dy and y are read, dx is written: DRAM reads 2 * rows * S, writes rows * S
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from tracer.operators.even_kernel import EvenKernel
from tracer.operators.inductor import GRADIENT, ONLINE_SOFTMAX, inductor_rows
from tracer.operators.library import EXACT_SOFTMAX, Library, rows_of_a_warp, torch_softmax
from tracer.operators.operator import Operator
from tracer.operators.row_kernel import RowKernel
from tracer.operators.tensor import Tensor, Use


@dataclass(frozen=True, kw_only=True)
class Softmax(Operator):
    """Softmax over the rows of a matrix.

    Attributes:
        library: TORCH = the kernel of PyTorch, `exact`, INDUCTOR = that of torch.compile; without the fields of the
            kernel below.
        exact: exponential and division as the C library computes them, without the fast instructions.
        backward: the gradient of x.
        warps: of a workgroup. vector: elements of a lane per access; 0 = 16 bytes.
        passes: reading passes for maximum and sum of a row that does not fit the registers.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "softmax"
    NEEDS: ClassVar[dict[str, dict[str, object]]] = {
        **{name: {"library": Library.GENERIC} for name in ("warps", "vector", "keep")},
        **{name: {"backward": False, "library": Library.GENERIC} for name in ("passes", "exact")},
    }

    rows: int
    cols: int
    backward: bool = False
    warps: int = 8
    vector: int = 0
    passes: int = 1
    keep: bool = True
    exact: bool = False
    library: Library = Library.GENERIC

    def parts(self) -> tuple[EvenKernel, ...]:
        size, b = self.rows * self.cols * self.dtype.bytes, self.dtype.bytes
        x, y, dy = self.buffers(size, size, size)
        settings: dict[str, Any] = {"warps": self.warps, "vector": self.vector, "keep": self.keep, "lanes": self.lanes}
        torch = self.library == Library.TORCH
        together = rows_of_a_warp(self.rows, self.cols, self.lanes) if torch else 1
        shape = (self.rows // together, self.cols * together)
        settings |= torch_softmax(self.cols, b, self.lanes, self.backward) if torch else {}
        if self.library == Library.INDUCTOR:
            settings = inductor_rows(self.cols, b, self.lanes, GRADIENT if self.backward else ONLINE_SOFTMAX)
        if self.backward:
            inputs = (Tensor(dy, b), Tensor(y, b))
            return (RowKernel("softmax_backward", *shape, inputs, (Tensor(x, b, Use.WRITE),), **settings),)
        outputs = (Tensor(y, b, Use.WRITE),)
        if self.library == Library.INDUCTOR:
            return (RowKernel("softmax", *shape, (Tensor(x, b),), outputs, **settings),)
        counts = EXACT_SOFTMAX.on(self.lanes)._asdict() if self.exact else {"sfu": 1}
        settings = {"passes": self.passes, **counts, **settings, "reductions": 2}
        return (RowKernel("softmax", *shape, (Tensor(x, b),), outputs, **settings),)
