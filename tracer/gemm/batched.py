"""Equal GEMMs in one kernel (strided batch): attention in separate kernels, experts with a balanced load.

The matrices A of all GEMMs follow each other, then all B, then all C. Workgroup i computes what workgroup
i % (workgroups of one GEMM) of GEMM i // (workgroups of one GEMM) computes.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

from tracer.gemm.kernel import GemmKernel
from tracer.gemm.problem import FIRST_ADDRESS, REGION_BYTES, GemmProblem, Matrix
from tracer.gemm.source import SYNTHESIS_VERSION, GemmSource
from traces.errors import UserError
from traces.schema import LINE_BYTES, Kind, Space
from traces.source import KernelInfo, Workgroup

BATCH_MAX = 1 << 20


class BatchedGemm:
    """The kernel trace (`traces.source.KernelSource`) of a strided batch.

    Args:
        problem: one GEMM. Its addresses are not used.
        batch: number of GEMMs.

    Raises:
        UserError: an impossible batch, or the kernel cannot run the problem.
    """

    def __init__(self, problem: GemmProblem, kernel: GemmKernel, batch: int):
        if not 1 <= batch <= BATCH_MAX:
            raise UserError(f"GEMM batch = {batch!r}: must be a whole number from 1 to {BATCH_MAX}")
        self.batch = batch
        self.strides_bytes = tuple(_stride_bytes(matrix) for matrix in (problem.a, problem.b, problem.c))
        address, addresses = FIRST_ADDRESS, dict[str, Any]()
        for name, stride in zip("abc", self.strides_bytes, strict=True):
            addresses[f"{name}_address"] = address
            address += -(-stride * batch // REGION_BYTES) * REGION_BYTES
        self.first = GemmSource(replace(problem, **addresses, c_source_address=addresses["c_address"]), kernel)

    @property
    def problem(self) -> GemmProblem:
        """The first GEMM."""
        return self.first.problem

    @property
    def kernel(self) -> GemmKernel:
        return self.first.kernel

    @cached_property
    def info(self) -> KernelInfo:
        own = self.first.info
        x, y, z = own.grid
        return replace(
            own,
            name=f"{own.name}_batch{self.batch}",
            grid=(x, y, z * self.batch),
            workgroups=own.workgroups * self.batch,
            attributes=own.attributes | {"batch": self.batch},
        )

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups in launch order, starting at number `start`."""
        own = self.first.info.workgroups
        for index in range(start, self.info.workgroups):
            member, local = divmod(index, own)
            workgroup = self.first.workgroup(local)
            yield workgroup._replace(index=index, events=self._moved(workgroup.events, member))

    def fingerprint(self) -> str:
        """SHA-256 of problem, kernel, batch and SYNTHESIS_VERSION."""
        content = {"synthesis": SYNTHESIS_VERSION, "problem": asdict(self.problem), "kernel": asdict(self.kernel)}
        return sha256(json.dumps(content | {"batch": self.batch}, sort_keys=True).encode()).hexdigest()

    def _moved(self, events: np.ndarray, member: int) -> np.ndarray:
        """Events of the first GEMM at the addresses of another one."""
        moved = events.copy()
        base = events["base"]
        a, b, c = (np.uint64(member * stride) for stride in self.strides_bytes)
        by = np.where(base < self.problem.b.address, a, np.where(base < self.problem.c.address, b, c))
        memory = (events["kind"] <= Kind.ASYNC_COPY) & (events["space"] == Space.GLOBAL)
        moved["base"] += np.where(memory, by, np.uint64(0))
        return moved


def _stride_bytes(matrix: Matrix) -> int:
    """From one matrix of the batch to the next: whole lines."""
    return -(-matrix.span_bytes // LINE_BYTES) * LINE_BYTES
