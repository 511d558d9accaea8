"""The library's choice: which kernel of an architecture's table runs a GEMM, with which split of K and order of tiles.

The rule is the same for all shapes: the kernel with the shortest expected time. Nothing is measured or simulated for
it, so the choice is known before the run. The expected time of a kernel is

    time  = max(time of the CU with most tiles, DRAM bytes / DRAM bandwidth) + time of the reduction, with split-K
    tile  = K-steps * max(arithmetic, operands at the CU's share of L2, operands in flight per latency) + latency
            (a CU counts only its own part of the operands that its cluster shares)
    bytes = operands per wave of tiles, each panel once, but at least once in all and at most what L2 cannot keep

A wave is a block of tiles as nearly square as the order allows (`TileOrder.GROUPED`). `library.toml` has the tables.
rocBLAS was tuned for a list of sizes, and runs any other size with the kernel of the nearest one. So the kernel of such
an architecture is the one with the shortest expected time for the nearest tuned size.
"""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tracer.data_type import DataType
from tracer.gemm.architecture import GemmLibrary
from tracer.gemm.kernel import Copy, GemmKernel, check_kernel, registers_per_thread, shared_bytes
from tracer.gemm.problem import GemmProblem
from tracer.gemm.raster import TileOrder, walk
from traces.errors import UserError
from traces.units import HZ_PER_MHZ, PS_PER_S

TABLE = Path(__file__).parent / "library.toml"
SPLITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
GROUPS = (1, 2, 4, 8, 16)
LEAST_SPLIT_K = 256
"""Shortest depth of a share of K (assumed)."""
KEPT = 0.5
"""Share of L2 that keeps operands from wave to wave (assumed); the rest holds the stream of the other operand."""
STEP_CLK = 200
"""Clocks of a K-step without arithmetic, if the table has no `step_clk`: two barriers, latency of the first fragments
(read off our simulated kernels of 128 x 128 and 256 x 128 tiles on a100_80g, not off measurements)."""
SUM_BYTES = 4
"""Shares of a split-K tile are fp32 sums: written, then read and added."""
SUM_S = 4e-6
"""Time that split-K adds besides the bytes: a second kernel adds the shares in common libraries (assumed)."""


class GpuFacts(NamedTuple):
    """What the choice needs to know of a machine.

    Attributes:
        library: its table.
        lanes: of a warp.
        cus, clock_MHz, macs_per_clk: number and clock of CUs, fp16 multiply-accumulates of one CU per clock.
        l2_bytes_per_clk: share of one CU in the bandwidth of L2, per clock of the CU.
        l2_bytes: capacity.
        l2_parts: L2s that do not share lines; workgroup i uses number i % l2_parts.
        bulk, clusters: has it bulk copies, and clusters of workgroups?
        dram_bytes_per_s: peak.
        latency_ps: of a read from DRAM.
        resident: (threads, registers per thread, shared bytes) -> workgroups that fit on a CU, 0 = none.
    """

    library: GemmLibrary
    lanes: int
    cus: int
    clock_MHz: float
    macs_per_clk: float
    l2_bytes_per_clk: float
    l2_bytes: int
    dram_bytes_per_s: float
    latency_ps: int
    resident: Callable[[int, int, int], int]
    l2_parts: int = 1
    bulk: bool = False
    clusters: bool = False


@dataclass(frozen=True)
class Architecture:
    """A table of `library.toml`.

    Attributes:
        types: type -> time of a multiply-accumulate, relative to fp16.
        kernels: their order of tiles is chosen.
        step_clk: clocks of a K-step without arithmetic.
        clusters: tiles (m, n) of a cluster that each kernel may have. It has the one with which a CU loads least.
        otherwise: the library whose kernels run what none of these can (operands that no bulk copy can load).
        by_rows_or_columns: the order is by rows or by columns; False = in bands.
        splits: it has kernels with split-K.
        tuned: m, n, k of the sizes for which the library was tuned; () = for every size.
    """

    name: str
    types: dict[DataType, float]
    kernels: tuple[GemmKernel, ...]
    step_clk: int
    clusters: tuple[tuple[int, int], ...]
    otherwise: GemmLibrary | None
    by_rows_or_columns: bool
    splits: bool
    tuned: tuple[tuple[int, int, int], ...]


@cache
def architecture(library: GemmLibrary) -> Architecture:
    """Read a table."""
    name = library.name.lower()
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))[name]
    kernels = tuple(
        GemmKernel(
            tile_m=tile_m,
            tile_n=tile_n,
            tile_k=tile_k,
            warps_m=warps_m,
            warps_n=warps_n,
            pipeline_depth=depth,
            fragment_pieces=tile_k // table["piece_k"],
            copy=Copy[table["copy"].upper()],
            lanes=table["lanes"],
            warpgroup=table.get("warpgroup", 1),
        )
        for tile_m, tile_n, tile_k, warps_m, warps_n, depth in table["kernels"]
    )
    types = {DataType(key): cost for key, cost in table["types"].items()}
    sides, depths = table.get("tuned_sides", ()), table.get("tuned_depths", ())
    tuned = *product(sides, sides, depths), *map(tuple, table.get("tuned", ()))
    clusters = tuple((m, n) for m, n in table.get("clusters", ((1, 1),)))
    otherwise = GemmLibrary[table["otherwise"].upper()] if "otherwise" in table else None
    orders = table.get("by_rows_or_columns", False), table.get("splits", True)
    step_clk = table.get("step_clk", STEP_CLK)
    return Architecture(name, types, kernels, step_clk, clusters, otherwise, *orders, tuned)


def choose_kernel(
    problem: GemmProblem,
    gpu: GpuFacts,
    dtype: DataType | None = None,
    batch: int = 1,
    splits: tuple[int, ...] = SPLITS,
    rows_alike: bool = True,
) -> GemmKernel:
    """The kernel that the library runs for a problem.

    Args:
        problem: the GEMM; with a batch, one of them.
        gpu: the machine.
        dtype: of A and B; None = fp16, int8 or fp32 by their size.
        batch: number of equal GEMMs in one kernel.
        splits: allowed numbers of shares of K, in ascending order; (1,) = a kernel that the Tracker can follow.
        rows_alike: False = the GEMMs of the kernel have different numbers of rows. Then no cluster has several rows of
            tiles.

    Raises:
        UserError: the machine lacks the type, or no kernel of the table can run the shape.
    """
    table = architecture(gpu.library)
    dtype = dtype or {1: DataType.INT8, 2: DataType.FP16, 4: DataType.FP32, 8: DataType.FP64}[problem.a_bytes]
    if dtype not in table.types:
        raise UserError(f"gemm: dtype = {dtype}: {table.name} has {', '.join(table.types)}")
    refused: list[UserError] = []
    types, best = table.types, None
    tables = (table,) if table.otherwise is None else (table, architecture(table.otherwise))
    for one in tables:
        choices = _candidates(problem, gpu, replace(one, types=types), dtype, batch, splits, rows_alike, refused)
        best = best or min(choices, default=None, key=lambda choice: choice[0])
    if best is None:
        reason = refused[-1] if refused else "its CUs are too small"
        raise UserError(f"gemm: no kernel of {table.name} can run it: {reason}")
    _, kernel, split = best
    return replace(kernel, split_k=split)


def choose_piece_kernel(problem: GemmProblem, gpu: GpuFacts, pieces: int, dtype: DataType | None = None) -> GemmKernel:
    """The kernel of a GEMM that is cut into GEMMs of equal numbers of rows: the choice for one of them.

    The walk goes from piece to piece. K is not split.

    Raises:
        UserError: as `choose_kernel`.
    """
    rows = -(-problem.m // pieces)
    kernel = choose_kernel(replace(problem, m=rows), gpu, dtype, splits=(1,))
    return replace(kernel, order=TileOrder.GROUPED, group=max(1, rows // kernel.tile_m))


def in_turn(kernel: GemmKernel, problem: GemmProblem, gpu: GpuFacts, positions: np.ndarray) -> GemmKernel:
    """The kernel with the bands of tiles whose waves read fewest operand bytes where the walk has another sequence.

    No library has such kernels, so the rule is assumed: each wave reads each of its panels once.

    Args:
        kernel: the library's choice.
        positions: i8[tiles], place in the walk of the tile that is made n-th.
    """
    if kernel.order != TileOrder.GROUPED:
        return kernel
    needs = kernel.threads, registers_per_thread(problem, kernel), shared_bytes(problem, kernel)
    waves = np.arange(len(positions)) // (gpu.cus * gpu.resident(*needs))
    tiles_m, tiles_n = -(-problem.m // kernel.tile_m), -(-problem.n // kernel.tile_n)

    def read_bytes(group: int) -> int:
        tiles = walk(int(kernel.order), group, tiles_m, tiles_n, 0, kernel.cluster_m, kernel.cluster_n)[positions]
        rows, columns = (np.unique(waves * len(positions) + tiles[:, axis]).size for axis in (0, 1))
        return rows * kernel.tile_m * problem.a_bytes + columns * kernel.tile_n * problem.b_bytes

    return replace(kernel, group=min(GROUPS, key=read_bytes))


def _candidates(
    problem: GemmProblem,
    gpu: GpuFacts,
    table: Architecture,
    dtype: DataType,
    batch: int,
    splits: tuple[int, ...],
    rows_alike: bool,
    refused: list[UserError],
) -> Iterator[tuple[float, GemmKernel, int]]:
    """(expected time in s, kernel, split of K) of every kernel that can run the problem. refused: why others cannot."""
    timed = _nearest_tuned(problem, table)
    clusters = [one for one in table.clusters if one == (1, 1) or (gpu.clusters and (rows_alike or one[0] == 1))]
    for shape in (kernel for kernel in table.kernels if gpu.bulk or not kernel.bulk):
        kernel = _clustered(replace(_fitted(shape, problem), mac_cost=table.types[dtype]), problem, clusters, refused)
        if kernel is None:
            continue
        needs = kernel.threads, registers_per_thread(problem, kernel), shared_bytes(problem, kernel)
        resident = gpu.resident(*needs)
        if resident == 0:
            continue
        kernel = _ordered(problem, kernel, gpu.cus * resident, table, gpu.l2_parts)
        for split in splits if table.splits else splits[:1]:
            if split == 1 or problem.k >= split * max(LEAST_SPLIT_K, kernel.tile_k):
                yield expected_s(timed, kernel, gpu, resident, batch, split, table.step_clk), kernel, split


def _nearest_tuned(problem: GemmProblem, table: Architecture) -> GemmProblem:
    """The tuned size with the least sum of squared differences, with the types of the problem; or the problem."""
    if not table.tuned:
        return problem
    own = problem.m, problem.n, problem.k
    m, n, k = min(table.tuned, key=lambda size: sum((a - b) ** 2 for a, b in zip(size, own, strict=True)))
    return GemmProblem(m, n, k, a_bytes=problem.a_bytes, b_bytes=problem.b_bytes, c_bytes=problem.c_bytes)


def _clustered(
    kernel: GemmKernel, problem: GemmProblem, clusters: list[tuple[int, int]], refused: list[UserError]
) -> GemmKernel | None:
    """The kernel with the cluster with which a CU loads least, of those that can run the problem; None = none can."""
    found = []
    for cluster_m, cluster_n in clusters:
        clustered = replace(kernel, cluster_m=cluster_m, cluster_n=cluster_n)
        try:
            check_kernel(problem, clustered)
        except UserError as reason:
            refused.append(reason)
        else:
            found.append(clustered)
    return min(found, default=None, key=lambda one: _loaded_bytes(problem, one))


def _loaded_bytes(problem: GemmProblem, kernel: GemmKernel) -> float:
    """Operand bytes of a K-step that a workgroup loads itself, for all of its cluster."""
    of_a = min(kernel.tile_m, problem.m) * problem.a_bytes / kernel.cluster_n
    of_b = min(kernel.tile_n, problem.n) * problem.b_bytes / kernel.cluster_m
    return kernel.tile_k * (of_a + of_b)


def _fitted(kernel: GemmKernel, problem: GemmProblem) -> GemmKernel:
    """The same bytes per K-step for any type: tile_k is in elements of two bytes."""
    tile_k = max(kernel.fragment_pieces, kernel.tile_k * 2 // problem.a_bytes)
    return replace(kernel, tile_k=tile_k)


def _ordered(problem: GemmProblem, kernel: GemmKernel, wave: int, table: Architecture, l2_parts: int) -> GemmKernel:
    """The kernel with the order of tiles whose waves read fewest operand bytes."""
    tiles_m = -(-problem.m // kernel.tile_m)
    if l2_parts > 1:
        return _ordered_for_parts(problem, kernel, wave, l2_parts)
    heights = (1, tiles_m) if table.by_rows_or_columns else GROUPS
    height = min(heights, key=lambda rows: (_wave_bytes(problem, kernel, wave, min(rows, tiles_m)), rows))
    if table.by_rows_or_columns:
        return replace(kernel, order=TileOrder.ROW if height == 1 else TileOrder.COLUMN)
    return replace(kernel, order=TileOrder.GROUPED, group=height)


def _ordered_for_parts(problem: GemmProblem, kernel: GemmKernel, wave: int, l2_parts: int) -> GemmKernel:
    """The order, by rows or by columns, whose first wave reads fewer operand bytes into one of several L2s."""
    tiles_m, tiles_n = -(-problem.m // kernel.tile_m), -(-problem.n // kernel.tile_n)

    def read_bytes(order: TileOrder) -> int:
        tiles = walk(int(order), 1, tiles_m, tiles_n, 0)[:wave:l2_parts]
        rows, columns = (np.unique(tiles[:, axis]).size for axis in (0, 1))
        return rows * kernel.tile_m * problem.a_bytes + columns * kernel.tile_n * problem.b_bytes

    return replace(kernel, order=min((TileOrder.ROW, TileOrder.COLUMN), key=read_bytes))


def _wave_bytes(problem: GemmProblem, kernel: GemmKernel, wave: int, group: int) -> float:
    """Operand bytes per unit of K that a wave of tiles reads, each panel once."""
    columns = min(-(-problem.n // kernel.tile_n), -(-wave // group))
    rows = min(-(-problem.m // kernel.tile_m), max(group, -(-wave // columns)))
    return rows * kernel.tile_m * problem.a_bytes + columns * kernel.tile_n * problem.b_bytes


def expected_s(
    problem: GemmProblem,
    kernel: GemmKernel,
    gpu: GpuFacts,
    resident: int,
    batch: int = 1,
    split: int = 1,
    more_clk: int = STEP_CLK,
) -> float:
    """Expected time of a kernel in seconds, as in the text of this module. more_clk: `Architecture.step_clk`."""
    clock_Hz = gpu.clock_MHz * HZ_PER_MHZ
    latency_clk = gpu.latency_ps / PS_PER_S * clock_Hz
    tiles = -(-problem.m // kernel.tile_m) * -(-problem.n // kernel.tile_n) * split * batch
    steps = -(-problem.k // (kernel.tile_k * split))
    rows, columns = min(kernel.tile_m, problem.m), min(kernel.tile_n, problem.n)
    step_bytes = kernel.tile_k * (rows * problem.a_bytes + columns * problem.b_bytes)
    busiest = -(-tiles // gpu.cus)
    together = min(resident, busiest)
    arithmetic = kernel.tile_m * kernel.tile_n * kernel.tile_k * kernel.mac_cost / gpu.macs_per_clk + more_clk
    in_flight = step_bytes * max(1, kernel.pipeline_depth - 1) * together
    loaded_clk = _loaded_bytes(problem, kernel) / gpu.l2_bytes_per_clk
    step_clk = max(arithmetic, loaded_clk, step_bytes * latency_clk / in_flight)
    ends_clk = 2 * latency_clk + rows * columns * problem.c_bytes / gpu.l2_bytes_per_clk
    cu_s = (busiest * steps * step_clk + -(-busiest // together) * ends_clk) / clock_Hz
    dram_s = batch * _dram_bytes(problem, kernel, gpu, resident) / gpu.dram_bytes_per_s
    if split == 1:
        return max(cu_s, dram_s)
    sum_bytes = 2 * tiles * rows * columns * SUM_BYTES
    return max(cu_s, dram_s) + SUM_S + sum_bytes / (gpu.l2_bytes_per_clk * gpu.cus * clock_Hz)


def _dram_bytes(problem: GemmProblem, kernel: GemmKernel, gpu: GpuFacts, resident: int) -> float:
    """Expected DRAM traffic: operands once if L2 keeps the smaller one, else once per wave; output once."""
    a, b = problem.m * problem.k * problem.a_bytes, problem.n * problem.k * problem.b_bytes
    output = problem.m * problem.n * problem.c_bytes
    tiles = -(-problem.m // kernel.tile_m) * -(-problem.n // kernel.tile_n)
    wave = gpu.cus * resident
    if min(a, b) <= KEPT * gpu.l2_bytes or tiles <= wave:
        return a + b + output
    tiles_m = -(-problem.m // kernel.tile_m)
    height = {TileOrder.ROW: 1, TileOrder.COLUMN: tiles_m, TileOrder.GROUPED: kernel.group}[kernel.order]
    return max(a + b, tiles / wave * _wave_bytes(problem, kernel, wave, min(height, tiles_m)) * problem.k) + output
