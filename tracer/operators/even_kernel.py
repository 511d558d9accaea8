"""Base of the kernels of operators."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from tracer.parameter_kernel import ParameterKernel
from traces.source import KernelInfo, Workgroup

EVENTS_TOGETHER = 1 << 12
"""Small workgroups are made together, up to so many events (64 bytes each)."""


class EvenKernel(ParameterKernel, ABC):
    """A kernel (`traces.source.KernelSource`) whose workgroups are alike, so that a part of it stands for the whole."""

    @property
    @abstractmethod
    def info(self) -> KernelInfo:
        """Facts of the kernel."""

    @abstractmethod
    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups in launch order, starting at number `start`."""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Arithmetic operations."""

    @property
    @abstractmethod
    def line_requests(self) -> int:
        """Estimate of the requests of 128-byte lines."""

    @property
    def period(self) -> int:
        """Workgroups after which the work repeats with other data."""
        return 1
