"""Residual: z = x + y, element by element. Backward, the gradient goes to both inputs, so two gradients are added.

DRAM reads 2 * elements, DRAM writes elements, times the bytes of the type; forward and backward alike.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.operators.element_map import ElementMap
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.operator import Operator
from tracer.operators.tensor import Tensor, Use


def residual_map(rows: int, cols: int, element_bytes: int, lanes: int, x: int, y: int, z: int) -> ElementMap:
    """The kernel z = x + y; x, y, z are addresses, and z may be y."""
    written = [Tensor(y, element_bytes, Use.UPDATE)] if y == z else [
        Tensor(y, element_bytes), Tensor(z, element_bytes, Use.WRITE)]  # fmt: skip
    return ElementMap("residual", rows, cols, (Tensor(x, element_bytes), *written), lanes=lanes)


@dataclass(frozen=True, kw_only=True)
class Residual(Operator):
    """The sum of two tensors of rows x cols elements.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "residual"

    rows: int
    cols: int

    def check(self) -> None:
        self.check_sizes("rows", "cols")

    def parts(self) -> tuple[EvenKernel, ...]:
        size = self.rows * self.cols * self.dtype.bytes
        return (residual_map(self.rows, self.cols, self.dtype.bytes, self.lanes, *self.buffers(size, size, size)),)
