"""A GEMM whose number of workgroups can be reduced while it runs; and the check that a trace is one plain GEMM."""

from collections.abc import Iterator

from tracer.gemm.source import GemmSource, TileOrder
from traces.errors import UserError
from traces.source import KernelInfo, TraceSource, Workgroup


class CutKernel:
    """The workgroups of a GEMM up to an end that can change (`traces.source.KernelSource`).

    Attributes:
        given: workgroups issued so far.
        end: workgroups that it will issue in total.
    """

    def __init__(self, gemm: GemmSource):
        self.gemm = gemm
        self.given, self.end = 0, gemm.info.workgroups

    @property
    def info(self) -> KernelInfo:
        return self.gemm.info

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        self.given = start
        while self.given < self.end:
            self.given += 1
            yield self.gemm.workgroup(self.given - 1)

    def fingerprint(self) -> str:
        return self.gemm.fingerprint()


def plain_gemm(source: TraceSource) -> GemmSource:
    """The GEMM of a trace that holds only this GEMM.

    Raises:
        UserError: another kind of trace; split K or persistent workgroups (their waves are not of equal tiles); a tile
            order other than row (its time per wave may change, `validation/tables/extrapolation.md`).
    """
    commands = list(source.commands())
    if len(commands) != 1 or not isinstance(commands[0], GemmSource):
        raise UserError("extrapolation: found a trace, allowed is one GEMM (--kernel gemm:...)")
    kernel = commands[0].kernel
    if kernel.persistent is not None or kernel.split_k != 1:
        kind = "split-K" if kernel.persistent is None else "persistent workgroups"
        raise UserError(f"extrapolation: found a GEMM with {kind}, allowed is one output tile per workgroup")
    if kernel.order != TileOrder.ROW:
        order = kernel.order.name.lower()
        raise UserError(f"extrapolation: found order {order}, allowed is row: the others are not validated")
    return commands[0]
