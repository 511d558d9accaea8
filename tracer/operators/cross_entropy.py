"""Cross-entropy of logits [rows, vocab] and the number of the right column of each row.

E = rows * vocab * B bytes (B bytes of the type), R = ceil(rows / 8) sectors of 32 bytes for 4 bytes per row.

`fused` (loss and gradient in one kernel, as training libraries do): a row is read for maximum and sum, read again, and
the gradient takes its place. Requested by loads 2 E and the targets; DRAM writes E and the losses; DRAM reads E if the
caches hold a row between its two passes, else 2 E. Backward, the gradient is scaled: DRAM reads E, writes E.

`fused=false`: log-softmax (`passes` passes, then y is written), and a kernel of one warp that sums y of the target of
each row: PyTorch's `nll_loss_forward_reduce_cuda_kernel_2d` (pytorch@00e3254d, aten/src/ATen/native/cuda/Loss.cu; later
versions may have more warps). It takes `lanes` rows at a time, and its reads of y wait for the targets. The one sum
that it stores is left out.

`library=inductor`: maximum and sum in one pass, from which the loss is made: DRAM reads E, writes 3 R. Backward the
logits are read again: DRAM reads E, writes E.

Backward: the gradient of the choice is written (zeros, and one number per row), then dx = dy - exp(y) * sum(dy): DRAM
reads 2 E, writes 2 E.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from tracer.operators.element_map import ElementMap
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.inductor import ONLINE_SOFTMAX, inductor_map, inductor_rows
from tracer.operators.library import Library
from tracer.operators.operator import Operator
from tracer.operators.row_kernel import SCALAR_BYTES, RowKernel
from tracer.operators.tensor import Tensor, Use


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Operator):
    """Cross-entropy loss of a batch of tokens.

    Attributes:
        rows: tokens.
        fused: loss and gradient in one kernel.
        library: INDUCTOR = the kernels of torch.compile, without the fields of the kernel.
        backward: the gradient of the logits.
        warps: of a workgroup; a row belongs to a workgroup.
        passes: reading passes for maximum and sum, if not fused.

    Raises:
        UserError: a field has an impossible value.
    """

    NAME: ClassVar[str] = "cross_entropy"
    NEEDS: ClassVar[dict[str, dict[str, object]]] = {
        "passes": {"fused": False, "backward": False},
        **{name: {"library": Library.GENERIC} for name in ("fused", "warps")},
    }

    rows: int
    vocab: int
    fused: bool = True
    backward: bool = False
    warps: int = 32
    passes: int = 2
    library: Library = Library.GENERIC

    def check(self) -> None:
        self.refuse_library(Library.TORCH)

    def parts(self) -> tuple[EvenKernel, ...]:
        b, shape = self.dtype.bytes, (self.rows, self.vocab)
        size, scalars = self.rows * self.vocab * b, self.rows * SCALAR_BYTES
        x, y, dy, target, loss = self.buffers(size, size, size, scalars, 3 * scalars)
        if self.library == Library.INDUCTOR:
            return (self._inductor(x, dy, target, loss),)
        settings: dict[str, Any] = {
            "warps": min(self.warps, 1024 // self.lanes),
            "lanes": self.lanes,
            "shared_rows": True,
        }
        if self.fused and self.backward:
            return (ElementMap("scale", *shape, (Tensor(x, b, Use.UPDATE),), lanes=self.lanes),)
        if self.fused:
            settings |= {"scalars_in": (target,), "scalars_out": (loss,), "keep": False}
            return (RowKernel("cross_entropy", *shape, (Tensor(x, b),), (Tensor(x, b, Use.WRITE),), sfu=1, **settings),)
        if self.backward:
            inputs, outputs = (Tensor(dy, b), Tensor(y, b)), (Tensor(x, b, Use.WRITE),)
            return (
                ElementMap("nll_backward", *shape, (Tensor(dy, b, Use.WRITE),), lanes=self.lanes),
                RowKernel("log_softmax_backward", *shape, inputs, outputs, sfu=1, **settings),
            )
        settings |= {"passes": self.passes, "reductions": 2, "sfu": 1, "keep": False}
        chosen = (Tensor(target, SCALAR_BYTES), Tensor(y, b, pitch_bytes=self.vocab * b, indexed=True))
        one_warp = {"warps": 1, "unroll": 1, "turns": -(-self.rows // self.lanes), "lanes": self.lanes}
        return (
            RowKernel("log_softmax", *shape, (Tensor(x, b),), (Tensor(y, b, Use.WRITE),), **settings),
            ElementMap("nll", self.rows, 1, chosen, **one_warp),
        )

    def _inductor(self, x: int, dx: int, target: int, loss: int) -> EvenKernel:
        """The kernel of torch.compile; the loss has maximum and sum behind it."""
        b, shape = self.dtype.bytes, (self.rows, self.vocab)
        if self.backward:
            tensors = (Tensor(x, b), Tensor(dx, b, Use.WRITE))
            return inductor_map(ElementMap("cross_entropy_backward", *shape, tensors, lanes=self.lanes))
        kept = tuple(loss + number * self.rows * SCALAR_BYTES for number in range(3))
        fields = inductor_rows(self.vocab, b, self.lanes, ONLINE_SOFTMAX)
        return RowKernel("cross_entropy", *shape, (Tensor(x, b),), scalars_in=(target,), scalars_out=kept, **fields)
