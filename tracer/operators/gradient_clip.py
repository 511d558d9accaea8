"""Gradient clipping by the norm of all gradients: a kernel reads them for the norm, another scales them.

B bytes of the type: DRAM reads 2 * parameters * B, writes parameters * B. The sums of the workgroups (4 bytes each) are
left out.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.data_type import DataType
from tracer.operators.adam import check_types
from tracer.operators.element_map import ElementMap
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.operator import Operator
from tracer.operators.tensor import Tensor, Use


@dataclass(frozen=True, kw_only=True)
class GradientClip(Operator):
    """Clipping of the gradients of all parameters.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "gradient_clip"

    parameters: int
    dtype: DataType = DataType.FP32

    def check(self) -> None:
        check_types(self)

    def parts(self) -> tuple[EvenKernel, ...]:
        (gradient,) = self.buffers(self.parameters * self.dtype.bytes)
        b, shape = self.dtype.bytes, (1, self.parameters)
        return (
            ElementMap("gradient_norm", *shape, (Tensor(gradient, b),), lanes=self.lanes),
            ElementMap("scale", *shape, (Tensor(gradient, b, Use.UPDATE),), lanes=self.lanes),
        )
