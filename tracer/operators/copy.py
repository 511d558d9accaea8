"""Copy: y = f(x), element by element: a copy, a change of the type, a scale, an activation function.

DRAM reads ceil(rows / share) * cols elements of the type of x, DRAM writes rows * cols elements of the type `out`.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.data_type import DataType
from tracer.operators.element_map import ElementMap
from tracer.operators.element_operator import ElementOperator
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.tensor import Tensor, Use
from traces.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Copy(ElementOperator):
    """A tensor of rows x cols elements that is read, and one that is written.

    Attributes:
        out: type of y; None = that of x.
        share: neighbouring rows of y that are made from one row of x.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "copy"

    rows: int
    cols: int
    out: DataType | None = None
    share: int = 1

    def check(self) -> None:
        super().check()
        if not 1 <= self.share <= self.rows:
            raise UserError(f"copy share = {self.share}: must be 1 to rows = {self.rows}")

    def parts(self) -> tuple[EvenKernel, ...]:
        read, written = self.dtype.bytes, (self.out or self.dtype).bytes
        x, y = self.buffers(-(-self.rows // self.share) * self.cols * read, self.rows * self.cols * written)
        tensors = (Tensor(x, read, share=self.share), Tensor(y, written, Use.WRITE))
        return (self.loop(ElementMap("copy", self.rows, self.cols, tensors, lanes=self.lanes)),)
