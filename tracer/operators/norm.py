"""Normalisation of rows, alone or behind dropout and residual: the form that LayerNorm and RMSNorm share.

With `residual` the operator computes h = x + residual and y = norm(h); with `dropout` h = dropout(x) + residual. Fused,
one kernel reads x and residual and writes h and y (and the mask of the dropout, a byte per element). With
`fused=false` dropout, residual and norm are kernels of their own.

Backward: dy, the input of the norm and its statistics are read, dx is written; with `residual` the gradient that
comes along the residual is read and added; with `dropout` the mask is read, and the gradient of x is written beside
that of the residual. Each of W workgroups stores its sums for the gradients of the vectors (4 bytes per column); a
second kernel per vector adds them. torch.compile (`library=inductor`) stores h with the statistics and reads it again,
if a row is long, and has a kernel of its own for the sums of the vectors.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from tracer.data_type import DataType
from tracer.operators.column_sum import PARTIAL_BYTES, column_sum, parts_of, turns_of
from tracer.operators.counted import Counted
from tracer.operators.dropout import MASK_BYTES, dropout_map
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.inductor import DROPOUT_FMA, GRADIENT, inductor_rows
from tracer.operators.library import Library, torch_norm
from tracer.operators.operator import Operator
from tracer.operators.residual import residual_map
from tracer.operators.row_costs import RowInstructions
from tracer.operators.row_kernel import SCALAR_BYTES, RowKernel
from tracer.operators.tensor import Tensor, Use
from traces.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Norm(Operator):
    """A normalisation of rows.

    Attributes:
        warps: of a workgroup.
        stats: forward: the statistics of each row are stored too.
        residual: h = x + residual is normalised and stored. dropout: of x before the sum; needs `residual`.
        fused: dropout, residual and norm are one kernel.
        backward: the gradients of all inputs.
        vector: elements of a lane per access; 0 = 16 bytes. keep: a row stays in registers if it fits.
        shared_rows: a whole workgroup works on each row, also on a short one.
        library: TORCH = the kernel of PyTorch (forward), INDUCTOR = that of torch.compile; without the fields of the
            kernel.
        out: type of x and y, and of their gradients, if residual and h have another.

    Raises:
        UserError: a field has an impossible value.
    """

    VECTORS: ClassVar[int]
    SCALARS: ClassVar[int]
    REDUCTIONS: ClassVar[int]
    NEEDS: ClassVar[dict[str, dict[str, object]]] = {
        "stats": {"backward": False},
        "dropout": {"residual": True},
        "fused": {"residual": True},
        **{name: {"library": Library.GENERIC} for name in ("warps", "vector", "keep")},
        "shared_rows": {"library": Library.GENERIC, "backward": False},
        "out": {"residual": True, "fused": True},
    }
    TORCH: ClassVar[Counted[RowInstructions]]
    """Costs of PyTorch's kernel."""
    INDUCTOR: ClassVar[Counted[RowInstructions]]
    """Those of torch.compile."""

    rows: int
    cols: int
    warps: int = 8
    stats: bool = False
    residual: bool = False
    dropout: bool = False
    fused: bool = True
    backward: bool = False
    vector: int = 0
    keep: bool = True
    shared_rows: bool = False
    library: Library = Library.GENERIC
    out: DataType | None = None

    def check(self) -> None:
        if self.library == Library.TORCH and self.backward:
            raise UserError(f"{self.NAME} library = torch: allowed with backward=false")

    @property
    def _branch_bytes(self) -> int:
        """Of an element of x and y."""
        return (self.out or self.dtype).bytes

    def parts(self) -> tuple[EvenKernel, ...]:
        if self.backward:
            return self._backward()
        size, row, b = self.rows * self.cols * self.dtype.bytes, self.cols * self.dtype.bytes, self.dtype.bytes
        x, y, *rest = self.buffers(
            size, size, *[row] * self.VECTORS, *[self.rows * SCALAR_BYTES] * self.SCALARS,
            *([size, size, size, self.rows * self.cols * MASK_BYTES] if self.residual else []),
        )  # fmt: skip
        vectors, scalars, extra = rest[: self.VECTORS], rest[self.VECTORS :], rest[self.VECTORS + self.SCALARS :]
        inputs, outputs = [Tensor(x, self._branch_bytes)], [Tensor(y, self._branch_bytes, Use.WRITE)]
        sums: list[Tensor] = []
        before: tuple[EvenKernel, ...] = ()
        if self.residual and self.fused:
            residual, h, _, mask = extra
            inputs.append(Tensor(residual, b))
            sums.append(Tensor(h, b, Use.WRITE))
            sums += [Tensor(mask, MASK_BYTES, Use.WRITE)] if self.dropout else []
        elif self.residual:
            residual, h, dropped, mask = extra
            shape = (self.rows, self.cols, b, self.lanes)
            before = (dropout_map(*shape, x, dropped, mask),) if self.dropout else ()
            before += (residual_map(*shape, dropped if self.dropout else x, residual, h),)
            inputs = [Tensor(h, b)]
        first, last = (sums, outputs) if self.library == Library.INDUCTOR else ([], [*outputs, *sums])
        kernel = self._rows(
            inputs=tuple(inputs),
            outputs=tuple(last),
            first_outputs=tuple(first),
            scalars_out=tuple(scalars[: self.SCALARS]) if self.stats else (),
            vectors=tuple(Tensor(address, b) for address in vectors),
            reductions=self.REDUCTIONS,
        )
        return (*before, kernel)

    def _rows(self, **fields) -> RowKernel:
        """A row kernel with the settings of this operator."""
        settings: dict[str, Any] = {"vector": self.vector, "warps": self.warps, "keep": self.keep, "lanes": self.lanes}
        settings["shared_rows"] = self.shared_rows
        name = f"{self.NAME}_backward" if self.backward else self.NAME
        if self.library == Library.TORCH:
            fields |= torch_norm(self.dtype.bytes) | self.TORCH.on(self.lanes)._asdict()
        elif self.library == Library.INDUCTOR:
            counts = GRADIENT if self.backward else self.INDUCTOR
            fields |= inductor_rows(self.cols, self.dtype.bytes, self.lanes, counts)
            if self.dropout and not self.backward:
                fields["sum_fma"] += DROPOUT_FMA.on(self.lanes)
        return RowKernel(name, self.rows, self.cols, **(settings | fields))

    def _backward(self) -> tuple[EvenKernel, ...]:
        rows, cols, b, parts = self.rows, self.cols, self.dtype.bytes, parts_of(self.rows)
        size, row = rows * cols * b, cols * b
        dy, x, dx, dh, dx_dropped, mask, *rest = self.buffers(
            size, size, size, size, size, rows * cols * MASK_BYTES, row,
            *[rows * SCALAR_BYTES] * self.SCALARS,
            *[parts * cols * PARTIAL_BYTES] * self.VECTORS, *[row] * self.VECTORS,
        )  # fmt: skip
        weight, scalars = rest[0], rest[1 : 1 + self.SCALARS]
        partials, gradients = rest[1 + self.SCALARS : -self.VECTORS], rest[-self.VECTORS :]
        own, outputs = (Tensor(dy, self._branch_bytes), Tensor(x, b)), [Tensor(dx, b, Use.WRITE)]
        inputs = [*own]
        after: tuple[EvenKernel, ...] = ()
        if self.residual and self.fused:
            inputs += [Tensor(dh, b)] + ([Tensor(mask, MASK_BYTES)] if self.dropout else [])
            outputs += [Tensor(dx_dropped, self._branch_bytes, Use.WRITE)] if self.dropout or self.out else []
        elif self.residual:
            shape = (rows, cols, b, self.lanes)
            after = (residual_map(*shape, dx, dh, dh),)
            after += (dropout_map(*shape, dh, dx_dropped, mask, backward=True),) if self.dropout else ()
        fields: dict[str, Any] = {"inputs": tuple(inputs), "outputs": tuple(outputs), "vectors": (Tensor(weight, b),)}
        summed: dict[str, Any] = {"partials": tuple(partials), "shared_rows": True, "turns": turns_of(rows)}
        statistics = tuple(scalars)
        kernels: tuple[EvenKernel, ...]
        if self.library == Library.INDUCTOR:  # the sums over rows have a kernel of their own
            vectors = RowKernel(
                f"{self.NAME}_vectors", rows, cols, own, scalars_in=statistics, reductions=0, lanes=self.lanes, **summed
            )
            kernels = (self._rows(**fields, scalars_in=statistics), vectors)
        else:
            kernels = (self._rows(**fields, scalars_in=statistics, **summed, fma=6),)
        sums = (
            column_sum(f"{self.NAME}_gradient", partial, out, parts, cols, b, self.lanes)
            for partial, out in zip(partials, gradients, strict=True)
        )
        return (*kernels, *sums, *after)
