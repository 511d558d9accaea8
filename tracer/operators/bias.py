"""Bias: y = x + bias, the same bias for every row. Backward: the gradient of the bias is the sum of dy over the rows.

A row is S whole sectors of 32 bytes (S32 of 4-byte elements), W workgroups work backward.

forward:   DRAM reads (rows + 1) * S, DRAM writes rows * S
backward:  DRAM reads rows * S, DRAM writes W * S32; then a kernel that reads W * S32 and writes S
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.operators.column_sum import PARTIAL_BYTES, column_sum, parts_of, turns_of
from tracer.operators.element_map import ElementMap
from tracer.operators.element_operator import OF_NO_LIBRARY, ElementOperator
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.row_kernel import RowKernel
from tracer.operators.tensor import Tensor, Use


@dataclass(frozen=True, kw_only=True)
class Bias(ElementOperator):
    """The sum of a tensor of rows x cols elements and a bias of cols elements.

    Attributes:
        backward: the gradient of the bias, a sum over rows: it has a loop of its own.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "bias"
    NEEDS: ClassVar[dict[str, dict[str, object]]] = {
        **{name: {"backward": False, **needed} for name, needed in OF_NO_LIBRARY.items()},
        "library": {"backward": False},
    }

    rows: int
    cols: int
    backward: bool = False

    def parts(self) -> tuple[EvenKernel, ...]:
        rows, cols, b, parts = self.rows, self.cols, self.dtype.bytes, parts_of(self.rows)
        x, y, bias, partial = self.buffers(rows * cols * b, rows * cols * b, cols * b, parts * cols * PARTIAL_BYTES)
        if not self.backward:
            return (self.loop(bias_map(rows, cols, b, self.lanes, x, y, bias)),)
        kernel = RowKernel(
            "bias_backward", rows, cols, (Tensor(x, b),), partials=(partial,), reductions=0, fma=1,
            shared_rows=True, turns=turns_of(rows), lanes=self.lanes,
        )  # fmt: skip
        return kernel, column_sum("bias_gradient", partial, bias, parts, cols, b, self.lanes)


def bias_map(rows: int, cols: int, element_bytes: int, lanes: int, x: int, y: int, bias: int) -> ElementMap:
    """The kernel y = x + bias; x, y and bias are addresses."""
    b = element_bytes
    tensors = (Tensor(x, b), Tensor(bias, b, share=rows), Tensor(y, b, Use.WRITE))
    return ElementMap("bias", rows, cols, tensors, lanes=lanes)
