"""GELU: y = x * Phi(x), element by element; with `bias` y = gelu(x + bias).

B bytes of the type, a row of S whole sectors of 32 bytes:

forward:   DRAM reads and writes rows * cols * B each. With `bias` fused S sectors more are read. With `bias` and
           `fused=false` the bias is a kernel of its own (`tracer.operators.bias`): x + bias is written and read too.
backward:  dy and x are read, dx is written: DRAM reads 2 * rows * cols * B, writes rows * cols * B (with `bias` S
           more are read). The gradient of the bias is `bias:backward=true`.
"""

from dataclasses import dataclass
from typing import ClassVar

from tracer.operators.bias import bias_map
from tracer.operators.counted import Counted
from tracer.operators.element_map import ElementMap
from tracer.operators.element_operator import OF_NO_LIBRARY, ElementOperator
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.library import Library
from tracer.operators.tensor import Tensor, Use

FMA, SFU = 10, 2
"""Instructions per element of the tanh form: polynomial, exponential, reciprocal (assumed)."""
EXACT = Counted((26, 1), (35, 1))
"""Of the form with the error function: counted in the machine code of PyTorch 2.6.0 for sm_90 (`GeluCUDAKernelImpl`,
bf16); of AMD in that of the same function in Triton, without the rounding."""
BACKWARD_FMA = 20


@dataclass(frozen=True, kw_only=True)
class Gelu(ElementOperator):
    """GELU of a tensor of rows x cols elements.

    Attributes:
        bias: a bias of cols elements is added first.
        fused: bias and GELU are one kernel.
        backward: the gradient of x.
        exact: the error function as the C library computes it, without fast instructions (forward).

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "gelu"
    NEEDS: ClassVar[dict[str, dict[str, object]]] = {
        **OF_NO_LIBRARY,
        "fused": {"bias": True, "library": Library.GENERIC},
        "exact": {"backward": False, "library": Library.GENERIC},
    }

    rows: int
    cols: int
    bias: bool = False
    fused: bool = True
    backward: bool = False
    exact: bool = False

    def parts(self) -> tuple[EvenKernel, ...]:
        rows, cols, b = self.rows, self.cols, self.dtype.bytes
        size = rows * cols * b
        x, y, dy, between, bias = self.buffers(size, size, size, size, cols * b)
        shape = (rows, cols)
        vector = (Tensor(bias, b, share=rows),) if self.bias and self.fused else ()
        if self.backward:
            tensors = (Tensor(dy, b), Tensor(x, b), *vector, Tensor(y, b, Use.WRITE))
            return (self._map("gelu_backward", *shape, tensors, BACKWARD_FMA, SFU),)
        before: tuple[EvenKernel, ...] = ()
        if self.bias and not self.fused:
            before = (self.loop(bias_map(rows, cols, b, self.lanes, x, between, bias)),)
            x = between
        costs = EXACT.on(self.lanes) if self.exact else (FMA, SFU)
        return (*before, self._map("gelu", *shape, (Tensor(x, b), *vector, Tensor(y, b, Use.WRITE)), *costs))

    def _map(self, name: str, rows: int, cols: int, tensors: tuple[Tensor, ...], fma: int, sfu: int) -> ElementMap:
        return self.loop(ElementMap(name, rows, cols, tensors, fma=fma, sfu=sfu, lanes=self.lanes))
