"""Batched GEMM: the same GEMM on `batch` matrices that lie one after the other; heads may share the second operand.

It repeats the workgroups of one GEMM (`tracer.gemm`) at other addresses. Traffic per GEMM is that of the GEMM alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource, Layout
from tracer.operators.even_kernel import EvenKernel
from traces.schema import LINE_BYTES, Kind, Space
from traces.source import KernelInfo, Workgroup

TILE, TILE_K = 128, 32
"""Tile of the output, and depth of a step (assumed: one shape for all)."""
SMALL_TILE = 64
"""Width of the tile if the output has at most this number of columns."""


@dataclass(frozen=True)
class BatchedGemm(EvenKernel):
    """`batch` GEMMs C = A x B. `shared` neighbouring ones have the same B. column: B is stored by columns.

    Raises:
        UserError: a GEMM that cannot run.
    """

    NAME: ClassVar[str] = "batched_gemm"
    VERSION: ClassVar[int] = 1

    name: str
    batch: int
    m: int
    n: int
    k: int
    element_bytes: int
    a: int
    b: int
    c: int
    shared: int = 1
    column: bool = False
    lanes: int = 32

    @cached_property
    def gemm(self) -> GemmSource:
        """The GEMM of the first matrices."""
        size = self.element_bytes
        problem = GemmProblem(
            self.m, self.n, self.k, a_bytes=size, b_bytes=size, c_bytes=size,
            b_layout=Layout.COLUMN if self.column else Layout.ROW,
            lda=self.k, ldb=self.k if self.column else self.n, ldc=self.n,
            a_address=self.a, b_address=self.b, c_address=self.c,
        )  # fmt: skip
        narrow = self.n <= SMALL_TILE
        kernel = GemmKernel(tile_m=TILE, tile_n=SMALL_TILE if narrow else TILE, tile_k=TILE_K, lanes=self.lanes)
        return GemmSource(problem, kernel)

    @property
    def period(self) -> int:
        return self.gemm.info.workgroups

    @property
    def flops(self) -> int:
        """Two for each multiply-accumulate."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def line_requests(self) -> int:
        operands = self.m * self.n * self.k * self.element_bytes * 2 // TILE
        return self.batch * (operands + self.m * self.n * self.element_bytes) // LINE_BYTES + 1

    @cached_property
    def info(self) -> KernelInfo:
        one = self.gemm.info
        return self.make_info(
            f"{self.name}_{self.batch}x{self.m}x{self.n}x{self.k}",
            workgroups=self.batch * one.workgroups,
            warps=one.warps_per_workgroup,
            lanes=self.lanes,
            registers=one.registers,
            shared_bytes=one.shared_bytes,
        )

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups, starting at number `start`: those of the first GEMM, then of the second, and so on."""
        each = self.period
        sizes = [
            rows * cols * self.element_bytes for rows, cols in ((self.m, self.k), (self.k, self.n), (self.m, self.n))
        ]
        for index in range(start, self.info.workgroups):
            number, place = divmod(index, each)
            workgroup = self.gemm.workgroup(place)
            shifts = (number * sizes[0], number // self.shared * sizes[1], number * sizes[2])
            yield workgroup._replace(index=index, events=self._moved(workgroup.events, shifts))

    def _moved(self, events: np.ndarray, shifts: tuple[int, int, int]) -> np.ndarray:
        """Events whose addresses in A, B and C are moved. The matrices lie apart, so an address tells its matrix."""
        memory = (events["kind"] <= Kind.ASYNC_COPY) & (events["space"] == Space.GLOBAL)
        problem, base = self.gemm.problem, events["base"].copy()
        for matrix, shift in zip((problem.a, problem.b, problem.c), shifts, strict=True):
            inside = memory & (events["base"] >= matrix.address) & (events["base"] < matrix.end)
            base[inside] += np.uint64(shift)
        events["base"] = base
        return events
