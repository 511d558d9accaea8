"""LAMB, one step over all parameters, in four kernels; weights and moments in fp32, `dtype` is that of the gradients.

Bytes per parameter, with fp32 gradients / with 16-bit gradients, an fp32 master and a 16-bit copy of the weights:

    overflow        -  / 2    the gradient is read (a loss scale must be checked)
    gradient norm   4  / 2    the gradient is read
    stage 1         28 / 24   weight, gradient and moments are read; moments and the update are written. The update
                              takes the place of the gradient, in its type.
    tensor norms    8  / 6    weight and update are read
    stage 2         12 / 12   weight and update are read; the weight is written (16 bits: its copy too)
    together        52 / 46

The sums of the workgroups (4 bytes each) are left out.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.data_type import DataType
from tracer.operators.adam import STATE_BYTES, check_gradients
from tracer.operators.element_map import ElementMap
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.operator import Operator
from tracer.operators.tensor import Tensor, Use


@dataclass(frozen=True, kw_only=True)
class Lamb(Operator):
    """One step of LAMB.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "lamb"

    parameters: int
    dtype: DataType = DataType.FP32

    def check(self) -> None:
        check_gradients(self)

    def parts(self) -> tuple[EvenKernel, ...]:
        size, g = self.parameters * STATE_BYTES, self.dtype.bytes
        at_weight, at_m, at_v, at_gradient, copy = self.buffers(size, size, size, self.parameters * g, size)
        moments = tuple(Tensor(address, STATE_BYTES, Use.UPDATE) for address in (at_m, at_v))
        weight, gradient = Tensor(at_weight, STATE_BYTES), Tensor(at_gradient, g)
        new_weight, update = Tensor(at_weight, STATE_BYTES, Use.UPDATE), Tensor(at_gradient, g, Use.UPDATE)
        mixed = g < STATE_BYTES
        return (
            *((self._map("overflow", (gradient,), 1),) if mixed else ()),
            self._map("gradient_norm", (gradient,), 1),
            self._map("lamb_stage_1", (weight, update, *moments), 14, 2),
            self._map("tensor_norms", (weight, gradient), 2),
            self._map("lamb_stage_2", (gradient, new_weight, *((Tensor(copy, g, Use.WRITE),) if mixed else ())), 2),
        )

    def _map(self, name: str, tensors: tuple[Tensor, ...], fma: int, sfu: int = 0) -> ElementMap:
        return ElementMap(name, 1, self.parameters, tensors, fma=fma, sfu=sfu, lanes=self.lanes)
