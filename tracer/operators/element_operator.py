"""Base of element-wise operators: how their kernels take the elements."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tracer.data_type import DataType
from tracer.operators.counted import ROUND_FMA, Counted
from tracer.operators.element_map import ElementMap
from tracer.operators.inductor import inductor_map
from tracer.operators.library import Library
from tracer.operators.operator import Operator
from tracer.operators.tensor import Use
from traces.errors import UserError

DIMENSIONS_MAX = 25
"""Most dimensions of a tensor of PyTorch (aten/src/ATen/cuda/detail/OffsetCalculator.cuh: MAX_DIMS)."""
DIMENSION, PLACED_ACCESS = Counted((4, 10, 0), (4, 0, 2)), 4
"""Per dimension of a tensor that is not contiguous (on the pipe for integers, on the other, on this for each tensor):
quotient, remainder, an offset for each tensor; and per access to each tensor. Counted in the machine code of PyTorch
2.6.0 for sm_90 (`elementwise_kernel<128, 4, ...>`, the sum of two tensors of bf16): what is neither an access nor
integer work counts to the multiply-adds. On AMD in that of such a loop for gfx942 (`tracer.operators.library`)."""

LOOP = ("vector", "unroll", "warps", "turns")
"""Fields that are those of `tracer.operators.element_map.ElementMap`."""
OF_NO_LIBRARY: dict[str, dict[str, object]] = {name: {"library": Library.GENERIC} for name in (*LOOP, "dimensions")}
ACCESSES_MAX = 1 << 19
"""Accesses of a workgroup to each tensor, whose events are in memory: some 200 MB."""


@dataclass(frozen=True, kw_only=True)
class ElementOperator(Operator):
    """An element-wise operator.

    Attributes:
        vector: elements of a lane per access; 0 = 16 bytes.
        unroll: accesses of a warp at a time. warps: of a workgroup.
        turns: how often a warp does that, one after the other.
        dimensions: of tensors that are not contiguous, whose places need divisions; 0 = they are contiguous.
        library: INDUCTOR = the kernel of torch.compile, without the fields above.

    Raises:
        UserError: a field has an impossible value.
    """

    OTHER_RANGES: ClassVar[tuple[str, ...]] = ("turns",)
    NEEDS: ClassVar[Mapping[str, Mapping[str, object]]] = OF_NO_LIBRARY

    vector: int = 0
    unroll: int = 4
    warps: int = 8
    turns: int = 1
    dimensions: int = 0
    library: Library = Library.GENERIC

    def check(self) -> None:
        self.refuse_library(Library.TORCH)
        if not 0 <= self.dimensions <= DIMENSIONS_MAX:
            raise UserError(f"{self.NAME} dimensions = {self.dimensions}: must be 0 to {DIMENSIONS_MAX}")
        at_once = self.unroll * self.warps
        if not 1 <= self.turns <= ACCESSES_MAX // at_once:
            raise UserError(
                f"{self.NAME} turns = {self.turns}: must be 1 to {ACCESSES_MAX // at_once:,} with {at_once} accesses "
                "in a turn, the events of a workgroup are in memory"
            )

    def loop(self, kernel: ElementMap) -> ElementMap:
        """The kernel with the loop of this operator, or that of its library."""
        if self.library == Library.INDUCTOR:
            return inductor_map(kernel)
        shape: dict[str, Any] = {name: getattr(self, name) for name in LOOP}
        if self.dtype == DataType.BF16:
            rounded = [one for one in kernel.tensors if one.use != Use.READ and one.bytes == self.dtype.bytes]
            shape["fma"] = kernel.fma + ROUND_FMA.on(self.lanes) * len(rounded)
        if not self.dimensions:
            return replace(kernel, **shape)
        alu, fma, each = DIMENSION.on(self.lanes)
        fma += each * len(kernel.tensors)
        places: dict[str, Any] = {"index": kernel.index + alu * self.dimensions, "index_fma": fma * self.dimensions}
        return replace(kernel, access=PLACED_ACCESS, **places, **shape)
