"""GEMMs of different M in one kernel (grouped GEMM): experts, each with its own tokens.

The rows of all groups follow each other in A and in C; each group has its own B. A group without rows does nothing. The
workgroups of a group follow those of the group before it.

DRAM reads     A once, and B of each group with rows once, if L2 holds the operands of a wave
DRAM writes    C once
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cached_property
from hashlib import sha256
from itertools import accumulate

from tracer.gemm.kernel import GemmKernel, kernel_fields
from tracer.gemm.problem import GemmProblem, Layout, next_region, spelled_out
from tracer.gemm.source import SYNTHESIS_VERSION, GemmSource
from traces.errors import UserError
from traces.schema import LINE_BYTES
from traces.source import KernelInfo, Moved, Workgroup

GROUPS_MAX = 1 << 12


class GroupedGemm:
    """The kernel trace (`traces.source.KernelSource`) of a grouped GEMM.

    Args:
        problem: all groups as one GEMM: m is the sum of their rows. Its addresses are not used.
        kernel: of every group.
        groups: M of each group, 0 = no rows.

    Raises:
        UserError: impossible groups, or the kernel cannot run them.
    """

    def __init__(self, problem: GemmProblem, kernel: GemmKernel, groups: tuple[int, ...]):
        check_groups(groups)
        self.kernel, self.groups = kernel, groups
        self.problem = replace(problem, a_address=None, b_address=None, c_address=None, c_source_address=None)
        b_bytes = -(-self.problem.b.span_bytes // LINE_BYTES) * LINE_BYTES
        c_address = next_region(self.problem.b.address + b_bytes * len(groups))
        starts = accumulate(groups, initial=0)
        self.sources = [
            GemmSource(_group(self.problem, rows, start, number * b_bytes, c_address), kernel)
            for number, (rows, start) in enumerate(zip(groups, starts, strict=False))
            if rows
        ]

    @property
    def flops(self) -> int:
        """Two for each multiply-accumulate."""
        return 2 * self.problem.macs

    @property
    def moved_bytes(self) -> Moved:
        """Size of the matrices of all groups that have rows."""
        read, written = zip(*(source.moved_bytes for source in self.sources), strict=True)
        return Moved(sum(read), sum(written))

    @cached_property
    def info(self) -> KernelInfo:
        first, problem = self.sources[0].info, self.problem
        workgroups = sum(source.info.workgroups for source in self.sources)
        return replace(
            first,
            name=f"gemm_{problem.m}x{problem.n}x{problem.k}_groups{len(self.groups)}",
            grid=(workgroups, 1, 1),
            workgroups=workgroups,
            attributes=first.attributes
            | {"problem": asdict(problem) | {"m": None}, "parameters": {"groups": list(self.groups)}},
        )

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups in launch order, starting at number `start`."""
        before = 0
        for source in self.sources:
            for local in range(max(0, start - before), source.info.workgroups):
                yield source.workgroup(local)._replace(index=before + local)
            before += source.info.workgroups

    def fingerprint(self) -> str:
        """SHA-256 of problem, kernel, groups and SYNTHESIS_VERSION."""
        fields = {"problem": asdict(self.problem), "kernel": kernel_fields(self.kernel)}
        content = {"synthesis": SYNTHESIS_VERSION, **fields}
        return sha256(json.dumps(content | {"groups": self.groups}, sort_keys=True).encode()).hexdigest()


def _group(problem: GemmProblem, rows: int, start: int, b_offset: int, c_address: int) -> GemmProblem:
    """`rows` rows of A and C, from row `start` on, and the B that begins after `b_offset` bytes."""
    a, c = problem.a, problem.c
    a_step, c_step = (m.pitch_bytes if m.layout == Layout.ROW else m.element_bytes for m in (a, c))
    own_c = c_address + start * c_step
    return replace(
        spelled_out(problem),
        m=rows,
        a_address=a.address + start * a_step,
        b_address=problem.b.address + b_offset,
        c_address=own_c,
        c_source_address=own_c,
    )


def check_groups(groups: tuple[int, ...]) -> None:
    """Refuse too many groups, a negative number of rows, and groups without any row."""
    if not 1 <= len(groups) <= GROUPS_MAX or min(groups) < 0 or not sum(groups):
        raise UserError(
            f"GEMM of {len(groups)} groups of {sum(groups)} rows: allowed are 1 to {GROUPS_MAX} groups, each of 0 rows "
            "or more, and at least one row"
        )
