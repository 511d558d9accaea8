"""A kernel whose middle can be omitted while it runs, and the kernels for which this is allowed."""

from collections.abc import Iterator
from typing import NamedTuple

from sim.occupancy import occupancy_of
from sim.run.steady_waves import window_of
from sim.spec import Machine
from tracer.gemm.source import GemmSource, TileOrder
from tracer.operators.even_kernel import EvenKernel
from traces.source import KernelInfo, KernelSource, Prefill, TraceSource, Workgroup

FEWEST_WAVES = 20
"""A kernel of fewer waves is simulated whole: half of it starts up, and its end weighs too much."""
MOST_IN_PERIOD = 0.25
"""Largest share of the workgroups in a period. The first period starts up, a second one shows the steady work."""


class Pattern(NamedTuple):
    """How the workgroups of a kernel follow each other on a machine; all in workgroups.

    Attributes:
        whole: of the kernel.
        wave: that the machine holds at once.
        repeats_after: after which the work repeats with other data (a period).
        end: at the end of the kernel that are unlike the others, for example a row of incomplete tiles.
        cluster: that are given together.
    """

    whole: int
    wave: int
    repeats_after: int
    end: int
    cluster: int = 1

    @property
    def waves(self) -> float:
        return self.whole / self.wave

    @property
    def window(self) -> int:
        """Workgroups over which rates are taken."""
        return window_of(self.wave, self.repeats_after)

    def left_out(self, given: int) -> int:
        """Workgroups in whole waves between `given` and the end; whole waves are whole clusters."""
        return (self.whole - given - self.end) // self.wave * self.wave


class ShortKernel:
    """A kernel whose middle can be omitted while it runs (`traces.source.KernelSource`).

    Attributes:
        given: workgroups issued so far.
    """

    def __init__(self, kernel: KernelSource, pattern: Pattern):
        self.kernel, self.pattern = kernel, pattern
        self.given = 0
        self.omitted = 0

    @property
    def info(self) -> KernelInfo:
        return self.kernel.info

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        assert not start, "a short kernel cannot be resumed"
        for workgroup in self.kernel.workgroups():
            self.given += 1
            yield workgroup
            if self.omitted and self.given % self.pattern.cluster == 0:
                break
        yield from self.kernel.workgroups(self.given + self.omitted) if self.omitted else ()

    def omit(self) -> int:
        """Continue with the end of the kernel; the last wave stays as incomplete. Returns the number omitted."""
        self.omitted = self.pattern.left_out(self.given)
        return self.omitted

    def fingerprint(self) -> str:
        return self.kernel.fingerprint()


def pattern_of(kernel: KernelSource, machine: Machine) -> Pattern | str:
    """The pattern of a kernel, or why its workgroups have none.

    Raises:
        UserError: a workgroup that does not fit the machine.
    """
    cluster, wave = kernel.info.cluster, wave_of(kernel.info, machine)
    if wave % cluster:
        return f"a kernel whose waves of {wave:,} workgroups have no whole number of clusters"
    if isinstance(kernel, GemmSource):
        shape = kernel.kernel
        if shape.persistent is not None or shape.split_k != 1 or shape.start_tile:
            return "a GEMM with split-K, persistent workgroups or a start_tile"
        period, end = _period_of_tiles(kernel)
    elif isinstance(kernel, EvenKernel):
        period, end = kernel.period, 1
    else:
        return "a kernel whose workgroups may differ; allowed are GEMMs and operators by name"
    end = -(-end // cluster) * cluster
    return Pattern(kernel.info.workgroups, wave, period, end, cluster)


def wave_of(info: KernelInfo, machine: Machine) -> int:
    """Workgroups that the machine holds at once.

    Raises:
        UserError: a workgroup that does not fit the machine.
    """
    return occupancy_of(machine.cu, info).workgroups * machine.cu.count


def _period_of_tiles(gemm: GemmSource) -> tuple[int, int]:
    """Workgroups after which the walk over the tiles repeats, and those at its end that are incomplete."""
    problem, kernel = gemm.problem, gemm.kernel
    if kernel.order == TileOrder.COLUMN:
        columns = gemm.tiles_m * kernel.cluster_n
        return columns, columns if problem.n % kernel.tile_n else 0
    if kernel.order == TileOrder.ROW:
        rows = gemm.tiles_n * kernel.cluster_m
        return rows, rows if problem.m % kernel.tile_m else 0
    band = min(max(1, kernel.group // kernel.cluster_m) * kernel.cluster_m, gemm.tiles_m)
    last = gemm.tiles_m % band or band
    return band * gemm.tiles_n, last * gemm.tiles_n if problem.m % kernel.tile_m or last < band else 0


def reason_whole(kernel: KernelSource, machine: Machine) -> str:
    """Why this kernel must be simulated whole, whatever its times are; "" = it may be simulated in part."""
    found = pattern_of(kernel, machine)
    if isinstance(found, str):
        return f"it is {found}"
    if found.waves < FEWEST_WAVES:
        return f"it has {found.waves:.1f} waves of {found.wave:,} workgroups, at least {FEWEST_WAVES} are needed"
    share = max(found.repeats_after, found.end) / found.whole
    if share > MOST_IN_PERIOD:
        return f"its work repeats after {share:.0%} of its workgroups, at most {MOST_IN_PERIOD:.0%} are allowed"
    return ""


def why_whole(source: TraceSource, machine: Machine) -> str:
    """Why a trace must be simulated whole; "" = at least one of its kernels may be simulated in part.

    Raises:
        UserError: a workgroup that does not fit the machine.
    """
    reasons = [reason_whole(kernel, machine) for kernel in source.commands() if not isinstance(kernel, Prefill)]
    return reasons[0] if reasons and all(reasons) else ""
