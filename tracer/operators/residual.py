"""Residual: z = x + y, element by element. Backward, the gradient goes to both inputs, so two gradients are added.

DRAM reads 2 * elements, DRAM writes elements, times the bytes of the type; forward and backward alike. With `dropout`
z = dropout(x) + y, and the mask (a byte per element) is written too.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.operators.dropout import MASK_BYTES, RANDOM_INSTRUCTIONS
from tracer.operators.element_map import ElementMap
from tracer.operators.element_operator import ElementOperator
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.library import Library
from tracer.operators.tensor import Tensor, Use


def residual_map(rows: int, cols: int, element_bytes: int, lanes: int, x: int, y: int, z: int) -> ElementMap:
    """The kernel z = x + y; x, y, z are addresses, and z may be y."""
    written = [Tensor(y, element_bytes, Use.UPDATE)] if y == z else [
        Tensor(y, element_bytes), Tensor(z, element_bytes, Use.WRITE)]  # fmt: skip
    return ElementMap("residual", rows, cols, (Tensor(x, element_bytes), *written), lanes=lanes)


@dataclass(frozen=True, kw_only=True)
class Residual(ElementOperator):
    """The sum of two tensors of rows x cols elements.

    Attributes:
        dropout: of the first one.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "residual"

    rows: int
    cols: int
    dropout: bool = False

    def parts(self) -> tuple[EvenKernel, ...]:
        rows, cols, b = self.rows, self.cols, self.dtype.bytes
        x, y, z, mask = self.buffers(*[rows * cols * b] * 3, rows * cols * MASK_BYTES)
        if not self.dropout:
            return (self.loop(residual_map(rows, cols, b, self.lanes, x, y, z)),)
        written = Tensor(z, b, Use.WRITE), Tensor(mask, MASK_BYTES, Use.WRITE)
        tensors = (Tensor(x, b), Tensor(y, b), *written)
        fma, name = 3 + RANDOM_INSTRUCTIONS, "dropout_residual" if self.library == Library.INDUCTOR else "residual"
        return (self.loop(ElementMap(name, rows, cols, tensors, fma=fma, lanes=self.lanes)),)
