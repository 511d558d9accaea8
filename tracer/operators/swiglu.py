"""SwiGLU: y = silu(gate) * up, element by element. gate and up are the halves of rows of 2 * cols elements.

Of each tensor E = rows * cols * B bytes move (B bytes of the type):

forward:   DRAM reads 2 E, writes E. With `fused=false` silu is a kernel of its own: reads 3 E, writes 2 E.
backward:  dy, gate and up are read, the gradients of gate and up are written: reads 3 E, writes 2 E.
           With `fused=false` three kernels: dy * up, dy * silu(gate), and the gradient of silu: reads 6 E, writes 3 E.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.operators.element_map import ElementMap
from tracer.operators.element_operator import OF_NO_LIBRARY, ElementOperator
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.library import Library
from tracer.operators.tensor import Tensor, Use

FMA, SFU = 4, 2
"""Instructions per element: exponential, reciprocal, products (assumed)."""
BACKWARD_FMA = 10
EXACT_FMA = 24
"""With the exponential (8) and the division (9) of the C library in fp32, and conversions (assumed)."""


@dataclass(frozen=True, kw_only=True)
class SwiGlu(ElementOperator):
    """SwiGLU whose result has rows x cols elements.

    Attributes:
        fused: one kernel.
        backward: the gradients of gate and up.
        exact: exponential and division as the C library computes them (fused, forward).
        whole_rows: a workgroup takes a whole row, in turns. registers: of a lane; 0 = counted.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "swiglu"
    NEEDS: ClassVar[dict[str, dict[str, object]]] = {
        **OF_NO_LIBRARY,
        **{name: {"library": Library.GENERIC} for name in ("fused", "whole_rows", "registers")},
        "exact": {"fused": True, "backward": False, "library": Library.GENERIC},
    }

    rows: int
    cols: int
    fused: bool = True
    backward: bool = False
    exact: bool = False
    whole_rows: bool = False
    registers: int = 0

    def parts(self) -> tuple[EvenKernel, ...]:
        b, pitch = self.dtype.bytes, 2 * self.cols * self.dtype.bytes
        size = self.rows * self.cols * b
        both, y, dy, gradients, between = self.buffers(2 * size, size, size, 2 * size, size)
        half = self.cols * b
        gate, up = Tensor(both, b, pitch_bytes=pitch), Tensor(both + half, b, pitch_bytes=pitch)
        d_gate = Tensor(gradients, b, Use.WRITE, pitch_bytes=pitch)
        d_up = Tensor(gradients + half, b, Use.WRITE, pitch_bytes=pitch)
        out, dy_in, kept, again = (
            Tensor(y, b, Use.WRITE),
            Tensor(dy, b),
            Tensor(between, b, Use.WRITE),
            Tensor(between, b),
        )
        if self.backward and self.fused:
            return (self._map("swiglu_backward", (dy_in, gate, up, d_gate, d_up), BACKWARD_FMA, SFU),)
        if self.backward:
            return (
                self._map("mul_backward", (dy_in, up, kept), 1),
                self._map("mul_backward", (dy_in, gate, d_up), FMA, SFU),
                self._map("silu_backward", (again, gate, d_gate), BACKWARD_FMA, SFU),
            )
        if self.fused:
            return (self._map("swiglu", (gate, up, out), EXACT_FMA if self.exact else FMA, SFU),)
        return self._map("silu", (gate, kept), FMA, SFU), self._map("mul", (again, up, out), 1)

    def _map(self, name: str, tensors: tuple[Tensor, ...], fma: int, sfu: int = 0) -> ElementMap:
        rows = {"whole_rows": self.whole_rows, "registers": self.registers}
        return self.loop(ElementMap(name, self.rows, self.cols, tensors, fma=fma, sfu=sfu, lanes=self.lanes, **rows))
