"""Quantisation to a type of one byte: y = x / scale.

B bytes of the type of x, N = rows * cols elements:

scaling=static   the scale is known: DRAM reads N * B, writes N
scaling=row      one scale per row, from its largest element; the row is kept in registers: DRAM reads N * B, writes
                 N + 4 * rows (read twice by loads if a row does not fit the registers)
scaling=tensor   one scale of all, from a kernel of its own: reads N * B; then as static. The largest elements of the
                 workgroups (4 bytes each) are left out.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

from tracer.data_type import DataType
from tracer.operators.element_map import ElementMap
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.inductor import LARGEST, inductor_rows
from tracer.operators.library import Library
from tracer.operators.operator import Operator
from tracer.operators.row_kernel import SCALAR_BYTES, RowKernel
from tracer.operators.tensor import Tensor, Use
from traces.errors import UserError


class Scaling(IntEnum):
    """Where the scale comes from."""

    STATIC = 0
    ROW = 1
    TENSOR = 2


@dataclass(frozen=True, kw_only=True)
class Quantize(Operator):
    """Quantisation of a tensor of rows x cols elements to fp8 or int8.

    Attributes:
        library: INDUCTOR = the kernel of torch.compile (scaling=row).

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "quantize"
    NEEDS: ClassVar[dict[str, dict[str, object]]] = {"library": {"scaling": Scaling.ROW}}

    rows: int
    cols: int
    scaling: Scaling = Scaling.ROW
    out: DataType = DataType.FP8
    library: Library = Library.GENERIC

    def check(self) -> None:
        self.refuse_library(Library.TORCH)
        if self.out.bytes != 1:
            raise UserError(f"quantize: out = {self.out}: must be fp8 or int8")

    def parts(self) -> tuple[EvenKernel, ...]:
        b, count = self.dtype.bytes, self.rows * self.cols
        x, y, scale = self.buffers(count * b, count, self.rows * SCALAR_BYTES)
        shape, read, written = (self.rows, self.cols), Tensor(x, b), Tensor(y, 1, Use.WRITE)
        if self.scaling == Scaling.ROW:
            fields: dict[str, Any] = {"lanes": self.lanes}
            if self.library == Library.INDUCTOR:
                fields = inductor_rows(self.cols, b, self.lanes, LARGEST)
            return (RowKernel("quantize", *shape, (read,), (written,), scalars_out=(scale,), **fields),)
        largest = ElementMap("largest", *shape, (read,), fma=2, lanes=self.lanes)
        kernel = ElementMap("quantize", *shape, (read, written), fma=2, lanes=self.lanes)
        return (kernel,) if self.scaling == Scaling.STATIC else (largest, kernel)
