"""Figures of one operator on one machine: time, launch, traffic, operations, and what bounds it, from counters."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sim.counters import add_totals
from sim.hw.request import SECTOR_BYTES
from sim.presets import Preset
from sim.run.result import KernelResult, RunResult
from sim.run.run import KernelRun
from sim.run.shares import FLOP_PER_MAC, shares_of
from tracer.sequence import CommandSequence
from tracer.streams import BufferStream, Flow
from traces.source import KernelSource
from traces.units import ps_to_ns

BUSY = 0.5
"""Least share of the time for which a unit must be busy to be what bounds a kernel; else it is latency (assumed)."""
UNITS = {
    "dram": "DRAM",
    "l2": "L2",
    "tensor": "matrix pipes",
    "shared": "shared memory",
    "issue": "issue",
    "alu": "ALU",
    "fma": "FMA",
    "fp64": "FP64",
    "sfu": "SFU",
    "vector": "VALU",
}
"""Unit that can bound an operator -> its name in `sim.run.shares`."""
OTHER_ADDRESS, OTHER_COPY = 1 << 50, 1 << 51
"""Of the buffers that another kernel has written or copied before."""
OTHER_SIZES = 1.25
"""Size of these buffers together in sizes of L2, so that they fill all of it."""
HALF = 0.5
"""Share of dirty lines in a used L2 of which nothing is known (assumed), and the largest one that it can have."""
OTHER_WARPS, OTHER_UNROLL, OTHER_LANE_BYTES = 8, 4, 16
"""Shape of this kernel (assumed)."""


class L2State(StrEnum):
    """Content of L2 at the launch."""

    EMPTY = "empty"  # nothing, before each kernel of the operator; writes that a kernel leaves in L2 count too
    DIRTY = "dirty"  # lines that another kernel has written
    USED = "used"  # lines that other kernels have read and written: half of them dirty (assumed), or a given share
    WARM = "warm"  # what the same operator has left, as in a loop over one operator


@dataclass(frozen=True)
class KernelFigures:
    """Figures of an operator; times in ns.

    Attributes:
        time_ns: with the launches. launch_ns: launches and gaps between kernels.
        flops: operations; two for each multiply-accumulate of a matrix unit.
        bound_by: the busiest unit of UNITS; latency if none is busy; launch if that is longer.
        busy: share of the kernels' time for which each unit is busy.
        kernels: number of kernels.
    """

    time_ns: float
    launch_ns: float
    dram_read_bytes: int
    dram_write_bytes: int
    flops: int
    bound_by: str
    busy: dict[str, float]
    kernels: int


def kernel_run(
    preset: Preset, kernels: tuple[KernelSource, ...], l2: L2State, accuracy: float, dirty: float = HALF
) -> KernelRun:
    """The run of an operator with this content of L2.

    Args:
        accuracy: of `KernelRun`, for an empty or a used L2.
        dirty: share of the lines of a used L2 that are dirty, at most HALF.
    """
    before: tuple[KernelSource, ...] = ()
    if l2 == L2State.DIRTY:
        before = (other_kernel(preset, Flow.WRITE),)
    elif l2 == L2State.USED:
        stores = stores_of(dirty)
        before = (other_kernel(preset, Flow.COPY if stores else Flow.READ, stores),)
    elif l2 == L2State.WARM:
        before = kernels
    source = CommandSequence([*before, *kernels])
    states = (L2State.EMPTY, L2State.USED)
    return KernelRun(
        preset=preset, source=source, flush_l2=l2 == L2State.EMPTY, accuracy=accuracy if l2 in states else 0.0
    )


def dirty_share(launches: Iterable[tuple[int, tuple[KernelSource, ...]]]) -> float:
    """Share of dirty lines in an L2 that kernels have used: bytes written / bytes moved (lines stay equally long).

    launches: (how often they run, kernels). Kernels without `moved_bytes` do not count.
    """
    moved = [(n, kernel.moved_bytes) for n, kernels in launches for kernel in kernels if hasattr(kernel, "moved_bytes")]
    read, written = (sum(n * size[way] for n, size in moved) for way in (0, 1))
    return min(HALF, written / max(1, read + written))


def stores_of(dirty: float) -> int:
    """Number of stores for OTHER_UNROLL loads with which a copy leaves about this share of the lines dirty."""
    return round(OTHER_UNROLL * dirty / (1 - dirty))


def other_kernel(preset: Preset, flow: Flow, stores: int = 0) -> BufferStream:
    """A kernel that fills L2 with lines that it reads, writes, or both. stores: `stores_of`, for a copy."""
    lanes = preset.machine.cu.lanes_per_warp
    workgroup_bytes = OTHER_WARPS * OTHER_UNROLL * OTHER_LANE_BYTES * lanes
    fills_bytes = int(OTHER_SIZES * preset.machine.l2.bytes) * OTHER_UNROLL // (OTHER_UNROLL + stores)
    count = -(-fills_bytes // workgroup_bytes)
    return BufferStream(
        flow,
        count * workgroup_bytes,
        workgroup_count=count,
        warps=OTHER_WARPS,
        unroll=OTHER_UNROLL,
        address=OTHER_ADDRESS,
        copy_address=OTHER_COPY,
        lanes=lanes,
        stores=stores,
    )


def figures_of(result: RunResult, preset: Preset, kernels: tuple[KernelSource, ...]) -> KernelFigures:
    """Figures of the last kernels of a run (`kernel_run`).

    Args:
        result: of the run. preset: its machine. kernels: of the operator.
    """
    own = result.kernels[-len(kernels) :]
    total = add_totals(kernel.totals for kernel in own)
    busy_ps = sum(kernel.time_ps for kernel in own)
    dispatch = preset.machine.dispatch
    launch_ps = dispatch.launch_ps + (len(own) - 1) * dispatch.gap_ps
    shares = busy_shares(total, preset, busy_ps)
    name, share = max(shares.items(), key=lambda item: item[1])
    bound_by = "launch" if launch_ps > busy_ps else name if share >= BUSY else "latency"
    return KernelFigures(
        time_ns=ps_to_ns(busy_ps + launch_ps),
        launch_ns=ps_to_ns(launch_ps),
        dram_read_bytes=SECTOR_BYTES * total["hbm.read_columns"],
        dram_write_bytes=SECTOR_BYTES * (total["hbm.write_columns"] + total["hbm.update_columns"]),
        flops=flops_of(own, kernels),
        bound_by=bound_by,
        busy={unit: round(value, 4) for unit, value in shares.items()},
        kernels=len(own),
    )


def flops_of(results: list[KernelResult], kernels: tuple[KernelSource, ...]) -> int:
    """All operations, element-wise ones too, as a kernel states them; of any other kernel those of the matrix units."""
    return sum(
        getattr(kernel, "flops", FLOP_PER_MAC * result.totals["cu.tensor_macs"])
        for result, kernel in zip(results, kernels, strict=True)
    )


def busy_shares(total: dict[str, int], preset: Preset, time_ps: int) -> dict[str, float]:
    """Unit of UNITS -> share of its peak."""
    found = shares_of(total, preset.machine, max(1, time_ps))
    return {name: found.get(unit, 0.0) for name, unit in UNITS.items()}
