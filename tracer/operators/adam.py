"""Adam, one step over all parameters: gradient, weight and two moments; weight and moments are written back.

Bytes per parameter, weights and moments in fp32 (`dtype` is the type of the gradients, `out` that of a copy of the
weights to compute with):

fused        28 with fp32 gradients: reads 16 (weight, gradient, two moments), writes 12; 30 with a 16-bit copy of the
             weights.
             28 with 16-bit gradients and such a copy: reads 14, writes 12 and the copy 2.
fused=false  80: one kernel for each operation of an eager program: m *= b1 (8), m += (1 - b1) g (12), v *= b2 (8),
             v += (1 - b2) g^2 (12), d = sqrt(v) (8), d = d / c (8), d += eps (8), w -= m / d (16); fp32 only.
scaled       66 with fp16 gradients, as Megatron-LM of 2022 updates its weights (megatron/optimizer, megatron/model/
             distributed.py @f602ac56): the gradients are divided by the number of their copies (4), copied to fp32 (6),
             unscaled (8), clipped (12); the update (28) is copied to the 16-bit weights (6); the gradients are cleared
             for the next step (2). Clipping reads them for the norm and scales them.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.data_type import DataType
from tracer.operators.element_map import ElementMap
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.operator import Operator
from tracer.operators.tensor import Tensor, Use
from traces.errors import UserError

FMA, SFU = 12, 2
STATE_BYTES = 4
"""Weights, moments: fp32."""
TYPES = (DataType.FP32, DataType.FP16, DataType.BF16)


def check_types(operator: Operator, out: DataType | None = None) -> None:
    """Refuse gradients, or a copy of the weights, of a type that no optimizer here has."""
    for field, what, found in (("dtype", "gradients", operator.dtype), ("out", "weights", out or operator.dtype)):
        if found not in TYPES:
            raise UserError(f"{operator.NAME} {field} = {found}: allowed for {what} are {', '.join(TYPES)}")


def copy_of_weights(kind: DataType, address: int) -> tuple[Tensor, ...]:
    """The copy of the new weights that an optimizer writes, if it is not of their own type."""
    return (Tensor(address, kind.bytes, Use.WRITE),) if kind.bytes < STATE_BYTES else ()


@dataclass(frozen=True, kw_only=True)
class Adam(Operator):
    """One step of Adam.

    Attributes:
        dtype: of the gradients.
        out: of the weights' copy beside the fp32 master; fp32 = no copy; None = as dtype.
        fused: one kernel.
        scaled: the whole step with a loss scale, in kernels of their own.
        warps: of a workgroup. unroll: accesses of a warp at a time. turns: how often, one after the other.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "adam"

    parameters: int
    dtype: DataType = DataType.FP32
    out: DataType | None = None
    fused: bool = True
    scaled: bool = False
    warps: int = 8
    unroll: int = 4
    turns: int = 1

    def check(self) -> None:
        check_types(self, self.out)
        for field, found in (("dtype", self.dtype), ("out", self.out or self.dtype)):
            if not self.fused and found != DataType.FP32:
                raise UserError(f"adam {field} = {found}: allowed with fused=false is fp32")
            if self.scaled and found != DataType.FP16:
                raise UserError(f"adam {field} = {found}: allowed with scaled=true is fp16")

    def parts(self) -> tuple[EvenKernel, ...]:
        size, g = self.parameters * STATE_BYTES, self.dtype.bytes
        weight, m, v, gradient, copy, denominator = self.buffers(size, size, size, self.parameters * g, size, size)
        if not self.fused:
            return self._eager(weight, m, v, gradient, denominator)
        state = tuple(Tensor(address, STATE_BYTES, Use.UPDATE) for address in (weight, m, v))
        if self.scaled:
            return self._scaled(state, gradient, copy, denominator)
        half = copy_of_weights(self.out or self.dtype, copy)
        return (self._map("adam", (*state, Tensor(gradient, g), *half), FMA, SFU),)

    def _scaled(self, state: tuple[Tensor, ...], half: int, copy: int, whole: int) -> tuple[EvenKernel, ...]:
        """half, whole: addresses of the gradients in 16 and 32 bits; copy: of the 16-bit weights."""
        b, weight = self.dtype.bytes, state[0].address
        return (
            self._map("divide", (Tensor(half, b, Use.UPDATE),)),
            self._map("copy", (Tensor(half, b), Tensor(whole, STATE_BYTES, Use.WRITE))),
            self._map("unscale", (Tensor(whole, STATE_BYTES, Use.UPDATE),), 2),
            self._map("gradient_norm", (Tensor(whole, STATE_BYTES),)),
            self._map("scale", (Tensor(whole, STATE_BYTES, Use.UPDATE),)),
            self._map("adam", (*state, Tensor(whole, STATE_BYTES)), FMA, SFU),
            self._map("copy", (Tensor(weight, STATE_BYTES), Tensor(copy, b, Use.WRITE))),
            self._map("clear", (Tensor(half, b, Use.WRITE),)),
        )

    def _eager(self, weight: int, m: int, v: int, gradient: int, denominator: int) -> tuple[EvenKernel, ...]:
        def updated(address: int) -> Tensor:
            return Tensor(address, STATE_BYTES, Use.UPDATE)

        read = {address: Tensor(address, STATE_BYTES) for address in (m, v, gradient, denominator)}
        return (
            self._map("mul", (updated(m),)),
            self._map("add", (updated(m), read[gradient])),
            self._map("mul", (updated(v),)),
            self._map("addcmul", (updated(v), read[gradient]), 2),
            self._map("sqrt", (read[v], Tensor(denominator, STATE_BYTES, Use.WRITE)), 1, 1),
            self._map("div", (updated(denominator),)),
            self._map("add", (updated(denominator),)),
            self._map("addcdiv", (updated(weight), read[m], read[denominator]), 2, 1),
        )

    def _map(self, name: str, tensors: tuple[Tensor, ...], fma: int = 1, sfu: int = 0) -> ElementMap:
        shape = {"warps": self.warps, "unroll": self.unroll, "turns": self.turns, "lanes": self.lanes}
        return ElementMap(name, 1, self.parameters, tensors, fma=fma, sfu=sfu, **shape)
