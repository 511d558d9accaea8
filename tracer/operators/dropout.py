"""Dropout: y = x * mask / (1 - p), element by element; the mask has a byte per element.

Forward, the mask is made and stored: DRAM reads elements * B, writes elements * (B + 1), B bytes of the type. Backward,
the mask is read: DRAM reads elements * (B + 1), writes elements * B.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.operators.element_map import ElementMap
from tracer.operators.element_operator import ElementOperator
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.tensor import Tensor, Use

MASK_BYTES = 1
RANDOM_INSTRUCTIONS = 12
"""Instructions of the random number of an element (Philox 4x32-10 makes four with some 50; assumed)."""


def dropout_map(
    rows: int, cols: int, element_bytes: int, lanes: int, x: int, y: int, mask: int, backward: bool = False
) -> ElementMap:
    """The kernel from x to y; x, y and mask are addresses."""
    name, use = ("dropout_backward", Use.READ) if backward else ("dropout", Use.WRITE)
    tensors = (Tensor(x, element_bytes), Tensor(y, element_bytes, Use.WRITE), Tensor(mask, MASK_BYTES, use))
    return ElementMap(name, rows, cols, tensors, fma=2 if backward else 2 + RANDOM_INSTRUCTIONS, lanes=lanes)


@dataclass(frozen=True, kw_only=True)
class Dropout(ElementOperator):
    """Dropout of a tensor of rows x cols elements.

    Attributes:
        backward: the gradient of x.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "dropout"

    rows: int
    cols: int
    backward: bool = False

    def parts(self) -> tuple[EvenKernel, ...]:
        size, b = self.rows * self.cols * self.dtype.bytes, self.dtype.bytes
        x, y, mask = self.buffers(size, size, self.rows * self.cols * MASK_BYTES)
        kernel = dropout_map(self.rows, self.cols, b, self.lanes, x, y, mask, self.backward)
        return (self.loop(kernel),)
