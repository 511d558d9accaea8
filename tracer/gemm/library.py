"""The library's choice: which kernel of an architecture's table runs a GEMM, with which split of K and order of tiles.

The rule is the same for all shapes: the kernel with the shortest expected time (`tracer.gemm.expected`). Nothing is
measured or simulated for it, so the choice is known before the run. `library.toml` has the tables.
rocBLAS was tuned for a list of sizes, and runs any other size with the kernel of the nearest one. So the kernel of such
an architecture is the one with the shortest expected time for the nearest tuned size.
"""

from collections.abc import Iterator
from dataclasses import replace

from tracer.data_type import DataType
from tracer.gemm.architecture import Architecture, GpuFacts, architecture
from tracer.gemm.check import check_kernel, check_whole_sectors
from tracer.gemm.expected import expected_s, loaded_bytes
from tracer.gemm.kernel import Epilogue, GemmKernel
from tracer.gemm.order import ordered
from tracer.gemm.problem import GemmProblem
from tracer.gemm.raster import TileOrder
from traces.errors import UserError

SPLITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
LEAST_SPLIT_K = 256
"""Shortest depth of a share of K (assumed)."""


def choose_kernel(
    problem: GemmProblem,
    gpu: GpuFacts,
    dtype: DataType | None = None,
    batch: int = 1,
    tracked: bool = False,
    rows_alike: bool = True,
    whole: GemmProblem | None = None,
) -> GemmKernel:
    """The kernel that the library runs for a problem.

    Args:
        problem: the GEMM; with a batch, one of them.
        gpu: the machine.
        dtype: of A and B; None = fp16, int8 or fp32 by their size.
        batch: number of equal GEMMs in one kernel.
        tracked: only kernels that the Tracker can follow: without split-K, and no tiles or warps share a sector.
        rows_alike: False = the GEMMs of the kernel have different numbers of rows. Then no cluster has several rows of
            tiles.
        whole: a problem of which this one is a piece. The kernel must be able to run it, too.

    Raises:
        UserError: the machine lacks the type, or no kernel of the table can run the shape.
    """
    table = architecture(gpu.library)
    dtype = dtype or type_of_bytes(problem.a_bytes)
    if dtype not in table.types:
        raise UserError(f"gemm: dtype = {dtype}: {table.name} has {', '.join(table.types)}")
    refused: list[UserError] = []
    best = None
    tables = (table,) if table.otherwise is None else (table, architecture(table.otherwise))
    problems = (problem,) if whole is None else (problem, whole)
    for one in tables:
        types = {each: table.cost(each, one.warpgroup) for each in table.types}
        own = replace(one, types=types, splits=one.splits and not tracked)
        choices = _candidates(problems, gpu, own, dtype, batch, tracked, rows_alike, refused)
        best = best or min(choices, default=None, key=lambda choice: choice[0])
    if best is None:
        reason = refused[-1] if refused else "its CUs are too small"
        raise UserError(f"gemm: no kernel of {table.name} can run it: {reason}")
    _, kernel, split = best
    return replace(kernel, split_k=split)


def type_of_bytes(size: int) -> DataType:
    """The type of elements of which only the size is known."""
    return {1: DataType.INT8, 2: DataType.FP16, 4: DataType.FP32, 8: DataType.FP64}[size]


def choose_piece_kernel(problem: GemmProblem, gpu: GpuFacts, pieces: int, dtype: DataType | None = None) -> GemmKernel:
    """The kernel of a GEMM that is cut into GEMMs of equal numbers of rows: the choice for one of them.

    The walk goes from piece to piece. The Tracker can follow the kernel.

    Raises:
        UserError: as `choose_kernel`.
    """
    rows = -(-problem.m // pieces)
    kernel = choose_kernel(replace(problem, m=rows), gpu, dtype, tracked=True, whole=problem)
    return replace(kernel, order=TileOrder.GROUPED, group=max(1, rows // kernel.tile_m))


def arranged(problem: GemmProblem, kernel: GemmKernel, gpu: GpuFacts, table: Architecture) -> GemmKernel:
    """A kernel like those of a table, with the cluster, if it has none, and the order of tiles of the library."""
    if kernel.cluster == 1 and kernel.bulk:
        kernel = _clustered(kernel, (problem,), _clusters(table, gpu, True), False, []) or kernel
    return ordered(problem, kernel, gpu.cus * max(1, gpu.workgroups(problem, kernel)), table, gpu.l2_parts)


def _clusters(table: Architecture, gpu: GpuFacts, rows_alike: bool) -> list[tuple[int, int]]:
    """Tiles of a cluster that kernels can have."""
    return [one for one in table.clusters if one == (1, 1) or (gpu.clusters and (rows_alike or one[0] == 1))]


def _candidates(
    problems: tuple[GemmProblem, ...],
    gpu: GpuFacts,
    table: Architecture,
    dtype: DataType,
    batch: int,
    tracked: bool,
    rows_alike: bool,
    refused: list[UserError],
) -> Iterator[tuple[float, GemmKernel, int]]:
    """(expected time in s, kernel, split of K) of every kernel that can run all problems. refused: why others cannot.

    The times are those of the first problem.
    """
    problem = problems[0]
    timed = _nearest_tuned(problem, table)
    clusters = _clusters(table, gpu, rows_alike)
    for shape in (kernel for kernel in table.kernels if gpu.bulk or not kernel.bulk):
        fitted = replace(_fitted(shape, problem), lanes=gpu.lanes, mac_cost=table.types[dtype])
        if tracked and gpu.by_wavefront and fitted.epilogue == Epilogue.STAGED:
            fitted = replace(fitted, epilogue=Epilogue.DIRECT)
        kernel = _clustered(fitted, problems, clusters, tracked, refused)
        if kernel is None:
            continue
        resident = gpu.workgroups(problem, kernel)
        if resident == 0:
            continue
        kernel = ordered(problem, kernel, gpu.cus * resident, table, gpu.l2_parts)
        for split in SPLITS if table.splits else (1,):
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
    kernel: GemmKernel,
    problems: tuple[GemmProblem, ...],
    clusters: list[tuple[int, int]],
    tracked: bool,
    refused: list[UserError],
) -> GemmKernel | None:
    """The kernel with the cluster with which a CU loads least, of those that can run all problems; None = none."""
    found = []
    for cluster_m, cluster_n in clusters:
        try:
            clustered = replace(kernel, cluster_m=cluster_m, cluster_n=cluster_n)
            for problem in problems:
                check_kernel(problem, clustered)
                if tracked:
                    check_whole_sectors(problem, clustered)
        except UserError as reason:
            refused.append(reason)
        else:
            found.append(clustered)
    return min(found, default=None, key=lambda one: loaded_bytes(problems[0], one))


def _fitted(kernel: GemmKernel, problem: GemmProblem) -> GemmKernel:
    """The same bytes per K-step for any type: tile_k is in elements of two bytes."""
    tile_k = max(kernel.fragment_pieces, kernel.tile_k * 2 // problem.a_bytes)
    return replace(kernel, tile_k=tile_k)
