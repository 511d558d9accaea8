"""LAMB, one step over all parameters, in four or five kernels; weights and moments in fp32, `dtype` is the type of the
gradients, `out` that of a copy of the weights to compute with.

Bytes per parameter, with fp32 gradients / with these and a 16-bit copy of the weights / with 16-bit gradients and copy:

    overflow        -  / 4  / 2    the gradient is read (a loss scale must be checked)
    gradient norm   4  / 4  / 2    the gradient is read
    stage 1         28 / 28 / 24   weight, gradient and moments are read; moments and the update are written. The update
                                   takes the place of the gradient, in its type.
    tensor norms    8  / 8  / 6    weight and update are read
    stage 2         12 / 14 / 12   weight and update are read; weight and its copy are written
    together        52 / 58 / 46

The sums of the workgroups (4 bytes each) are left out.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.data_type import DataType
from tracer.operators.adam import STATE_BYTES, check_types, copy_of_weights
from tracer.operators.element_map import ElementMap
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.operator import Operator
from tracer.operators.tensor import Tensor, Use


@dataclass(frozen=True, kw_only=True)
class Lamb(Operator):
    """One step of LAMB.

    Attributes:
        dtype: of the gradients.
        out: of the weights' copy beside the fp32 master; fp32 = no copy; None = as dtype.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "lamb"

    parameters: int
    dtype: DataType = DataType.FP32
    out: DataType | None = None

    def check(self) -> None:
        check_types(self, self.out)

    def parts(self) -> tuple[EvenKernel, ...]:
        size, g = self.parameters * STATE_BYTES, self.dtype.bytes
        at_weight, at_m, at_v, at_gradient, copy = self.buffers(size, size, size, self.parameters * g, size)
        moments = tuple(Tensor(address, STATE_BYTES, Use.UPDATE) for address in (at_m, at_v))
        weight, gradient = Tensor(at_weight, STATE_BYTES), Tensor(at_gradient, g)
        new_weight, update = Tensor(at_weight, STATE_BYTES, Use.UPDATE), Tensor(at_gradient, g, Use.UPDATE)
        half = copy_of_weights(self.out or self.dtype, copy)
        return (
            *((self._map("overflow", (gradient,), 1),) if half else ()),
            self._map("gradient_norm", (gradient,), 1),
            self._map("lamb_stage_1", (weight, update, *moments), 14, 2),
            self._map("tensor_norms", (weight, gradient), 2),
            self._map("lamb_stage_2", (gradient, new_weight, *half), 2),
        )

    def _map(self, name: str, tensors: tuple[Tensor, ...], fma: int, sfu: int = 0) -> ElementMap:
        return ElementMap(name, 1, self.parameters, tensors, fma=fma, sfu=sfu, lanes=self.lanes)
