"""Copy: y = f(x), element by element: a copy, a change of the type, a scale, an activation function.

DRAM reads rows * cols elements of the type of x, DRAM writes as many of the type `out`.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.data_type import DataType
from tracer.operators.element_map import ElementMap
from tracer.operators.element_operator import ElementOperator
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.tensor import Tensor, Use


@dataclass(frozen=True, kw_only=True)
class Copy(ElementOperator):
    """A tensor of rows x cols elements that is read, and one that is written.

    Attributes:
        out: type of y; None = that of x.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "copy"

    rows: int
    cols: int
    out: DataType | None = None

    def parts(self) -> tuple[EvenKernel, ...]:
        count, read, written = self.rows * self.cols, self.dtype.bytes, (self.out or self.dtype).bytes
        x, y = self.buffers(count * read, count * written)
        tensors = (Tensor(x, read), Tensor(y, written, Use.WRITE))
        return (self.loop(ElementMap("copy", self.rows, self.cols, tensors, lanes=self.lanes)),)
