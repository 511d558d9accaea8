"""Base of operators: a few fields that determine one kernel or several."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

from tracer.data_type import DataType
from tracer.gemm.architecture import GpuFacts
from tracer.gemm.fields import on_machine
from tracer.operators.even_kernel import EvenKernel
from tracer.operators.library import Library
from tracer.operators.tensor import FIRST_ADDRESS, regions
from tracer.parameter_kernel import SIZES, ParameterKernel, field_text
from traces.errors import UserError
from traces.source import KernelInfo, Workgroup


@dataclass(frozen=True, kw_only=True)
class Operator(ParameterKernel):
    """An operator of a Transformer. With one kernel it is a `traces.source.KernelSource` itself.

    A subclass gives `parts`. Raises UserError if a field has an impossible value. Fields with a name of
    `tracer.parameter_kernel.SIZES` have the range of that name, except those in OTHER_RANGES. NEEDS has the fields
    without effect on some kernels: field -> other fields, and the value of each with which alone it has one.

    Attributes:
        dtype: type of the activations.
        address: of the first buffer; each further buffer begins at a multiple of 2 MiB.
        lanes: of a warp.
    """

    VERSION = 1
    OTHER_RANGES: ClassVar[tuple[str, ...]] = ()
    NEEDS: ClassVar[Mapping[str, Mapping[str, object]]] = MappingProxyType({})

    dtype: DataType = DataType.FP16
    address: int = FIRST_ADDRESS
    lanes: int = 32

    @classmethod
    def of_machine(cls, gpu: GpuFacts, dtype: DataType, given: Mapping[str, Any]) -> dict[str, Any]:
        """Fields that a machine gives if the text does not.

        Args:
            dtype: of the operator. given: fields of the text.
        """
        return on_machine(gpu, dtype)

    def __post_init__(self):
        self.check_lanes(self.lanes)
        sizes = [field.name for field in fields(self) if field.name in SIZES]
        self.check_sizes(*(name for name in sizes if name not in self.OTHER_RANGES))
        self._check_needs()
        self.check()
        for kernel in self.kernels:  # shapes that no kernel can run are refused at once
            self.check_accesses(kernel.line_requests)

    def refuse_library(self, library: Library) -> None:
        """Refuse a library that has no kernel for this operator."""
        if getattr(self, "library", Library.GENERIC) == library:
            allowed = " or ".join(field_text(one) for one in Library if one != library)
            raise UserError(f"{self.NAME} library = {field_text(library)}: must be {allowed}")

    def _check_needs(self) -> None:
        """Refuse a field that would have no effect."""
        given = {field.name for field in fields(self) if getattr(self, field.name) != field.default}
        for name in [name for name in self.NEEDS if name in given]:
            for other, needed in self.NEEDS[name].items():
                if getattr(self, other) != needed:
                    found, allowed = field_text(getattr(self, name)), f"{other}={field_text(needed)}"
                    raise UserError(f"{self.NAME} {name} = {found}: allowed with {allowed}")

    def check(self) -> None:
        """Refuse impossible values of the subclass's fields, beside sizes."""

    def parts(self) -> tuple[EvenKernel, ...]:
        """The kernels, in order."""
        raise TypeError(f"{type(self).__name__} has no kernels")

    @cached_property
    def kernels(self) -> tuple[EvenKernel, ...]:
        """The kernels, in order."""
        return self.parts()

    @property
    def kernel(self) -> EvenKernel:
        """The only kernel.

        Raises:
            UserError: there are several.
        """
        if len(self.kernels) != 1:
            raise UserError(f"{self.NAME}: has {len(self.kernels)} kernels with these fields, allowed is one kernel")
        return self.kernels[0]

    @property
    def info(self) -> KernelInfo:
        return self.kernel.info

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        return self.kernel.workgroups(start)

    def fingerprint(self) -> str:
        return self.kernel.fingerprint()

    def buffers(self, *sizes_bytes: int) -> tuple[int, ...]:
        """Addresses of buffers of these sizes.

        Raises:
            UserError: a wrong address, or a buffer ends beyond the address space.
        """
        try:
            return regions(self.address, sizes_bytes)
        except UserError as problem:
            raise UserError(f"{self.NAME}: {problem}") from None
