"""Base of the kernels of operators."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from tracer.events import VECTOR_BYTES
from tracer.parameter_kernel import ParameterKernel
from traces.errors import UserError
from traces.schema import WIDTH_BYTES
from traces.source import KernelInfo, Moved, Workgroup

THREADS_MAX = 1024
EVENTS_TOGETHER = 1 << 12
"""Small workgroups are made together, up to so many events (64 bytes each)."""


def check_warps(name: str, warps: int, lanes: int) -> None:
    """Refuse more threads than a workgroup can have."""
    if warps * lanes > THREADS_MAX:
        raise UserError(f"{name} warps = {warps}: must be <= {THREADS_MAX // lanes}")


def check_vector(name: str, vector: int, cols: int, widest_bytes: int) -> None:
    """Refuse accesses of lanes that do not divide a row of `cols` elements, or are too wide. widest_bytes: of an
    element."""
    if vector < 0 or (vector and cols % vector):
        raise UserError(f"{name} vector = {vector}: must divide the {cols} elements of a row")
    if vector * widest_bytes > WIDTH_BYTES:
        raise UserError(f"{name} vector = {vector}: a lane has at most {WIDTH_BYTES} bytes per access")


def elements_per_lane(vector: int, cols: int, widest_bytes: int) -> int:
    """Elements of a lane per access: `vector`; 0 = as many as fit 16 bytes and divide a row."""
    return vector or min(VECTOR_BYTES // widest_bytes, cols & -cols)


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
    def moved_bytes(self) -> Moved:
        """Size of the data that the kernel reads and writes, each counted once."""

    @property
    @abstractmethod
    def line_requests(self) -> int:
        """Estimate of the requests of 128-byte lines."""

    @property
    def period(self) -> int:
        """Workgroups after which the work repeats with other data."""
        return 1
