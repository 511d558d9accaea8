"""Equal GEMMs in one kernel (strided batch): attention in separate kernels, experts with a balanced load.

Workgroup i computes what workgroup i % (workgroups of one GEMM) of GEMM i // (workgroups of one GEMM) computes. Traffic
per GEMM is that of the GEMM alone; GEMMs that share B read it from L2.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tracer.gemm.kernel import GemmKernel
from tracer.gemm.problem import FIRST_ADDRESS, GemmProblem, Matrix, next_region
from tracer.gemm.source import GemmSource
from tracer.operators.even_kernel import EvenKernel
from traces.errors import UserError
from traces.schema import LINE_BYTES, Kind, Space
from traces.source import KernelInfo, Moved, Workgroup

BATCH_MAX = 1 << 20


@dataclass(frozen=True)
class BatchedGemm(EvenKernel):
    """A strided batch.

    Attributes:
        problem: the first GEMM. kernel: of every GEMM.
        batch: number of GEMMs.
        strides_bytes: from A, B and C of one GEMM to those of the next one.
        shared: number of neighbouring GEMMs with the same B.
        name: of the kernel; "" = that of the first GEMM.

    Raises:
        UserError: an impossible batch, or the kernel cannot run the problem.
    """

    NAME: ClassVar[str] = "gemm"
    VERSION: ClassVar[int] = 2

    problem: GemmProblem
    kernel: GemmKernel
    batch: int
    strides_bytes: tuple[int, int, int]
    shared: int = 1
    name: str = ""

    def __post_init__(self):
        check_batch(self.batch)
        self.check_accesses(self.line_requests)
        _ = self.first  # refuses a kernel that cannot run the problem

    @cached_property
    def first(self) -> GemmSource:
        """The first GEMM."""
        return GemmSource(self.problem, self.kernel, self.name or None)

    @property
    def period(self) -> int:
        return self.first.info.workgroups

    @property
    def flops(self) -> int:
        """Two for each multiply-accumulate."""
        return 2 * self.batch * self.problem.macs

    @property
    def moved_bytes(self) -> Moved:
        read, written = self.problem.moved_bytes
        shared_bytes = self.problem.k * self.problem.n * self.problem.b_bytes * (self.shared - 1) // self.shared
        return Moved(self.batch * (read - shared_bytes), self.batch * written)

    @property
    def line_requests(self) -> int:
        problem, kernel = self.problem, self.kernel
        operands = problem.macs * (problem.a_bytes / kernel.tile_n + problem.b_bytes / kernel.tile_m)
        return int(self.batch * (operands + problem.output_bytes)) // LINE_BYTES + 1

    @cached_property
    def info(self) -> KernelInfo:
        own = self.first.info
        x, y, z = own.grid
        return replace(
            own,
            name=f"{own.name}_batch{self.batch}",
            grid=(x, y, z * self.batch),
            workgroups=own.workgroups * self.batch,
            attributes=own.attributes | {"parameters": self._parameters},
        )

    @property
    def _parameters(self) -> dict[str, Any]:
        """The batch; and what `strided_batch` would make in another way."""
        own = {name: value for name, value in asdict(self).items() if name not in ("problem", "kernel", "batch")}
        usual = self == strided_batch(self.problem, self.kernel, self.batch)
        return {"batch": self.batch} | ({} if usual else own)

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups in launch order, starting at number `start`."""
        for index in range(start, self.info.workgroups):
            member, local = divmod(index, self.period)
            workgroup = self.first.workgroup(local)
            yield workgroup._replace(index=index, events=self._moved(workgroup.events, member))

    def _moved(self, events: np.ndarray, member: int) -> np.ndarray:
        """Events of the first GEMM at the addresses of another one. Its matrices lie apart."""
        a, b, c = self.strides_bytes
        first, own_c = self.problem, member * c
        steps = ((first.a, member * a), (first.b, member // self.shared * b), (first.c, own_c), (first.c_source, own_c))
        memory = (events["kind"] <= Kind.ASYNC_COPY) & (events["space"] == Space.GLOBAL)
        memory |= events["kind"] == Kind.BULK
        base = events["base"].copy()
        for matrix, step in steps:
            inside = memory & (events["base"] >= matrix.address) & (events["base"] < matrix.end)
            base[inside] = events["base"][inside] + np.uint64(step)
        events["base"] = base
        return events


def check_batch(batch: int) -> None:
    """Refuse an impossible number of GEMMs."""
    if not 1 <= batch <= BATCH_MAX:
        raise UserError(f"GEMM batch = {batch!r}: must be a whole number from 1 to {BATCH_MAX}")


def strided_batch(problem: GemmProblem, kernel: GemmKernel, batch: int) -> BatchedGemm:
    """A batch without given addresses: all A follow each other, each on whole lines, then all B, then all C."""
    check_batch(batch)
    strides_bytes = _stride_bytes(problem.a), _stride_bytes(problem.b), _stride_bytes(problem.c)
    address, addresses = FIRST_ADDRESS, dict[str, Any]()
    for name, stride in zip("abc", strides_bytes, strict=True):
        addresses[f"{name}_address"] = address
        address = next_region(address + stride * batch)
    first = replace(problem, **addresses, c_source_address=addresses["c_address"])
    return BatchedGemm(first, kernel, batch, strides_bytes)


def _stride_bytes(matrix: Matrix) -> int:
    """From one matrix of the batch to the next: whole lines."""
    return -(-matrix.span_bytes // LINE_BYTES) * LINE_BYTES
