"""The order of a GEMM's tiles that a library chooses: the one whose waves of tiles read fewest operand bytes."""

from dataclasses import replace

import numpy as np

from tracer.gemm.architecture import Architecture, GpuFacts
from tracer.gemm.kernel import GemmKernel, tile_grid
from tracer.gemm.problem import GemmProblem
from tracer.gemm.raster import TileOrder, walk

GROUPS = (1, 2, 4, 8, 16)


def ordered(problem: GemmProblem, kernel: GemmKernel, wave: int, table: Architecture, l2_parts: int) -> GemmKernel:
    """The kernel with the order of tiles whose waves read fewest operand bytes."""
    tiles_m, _ = tile_grid(problem, kernel)
    if l2_parts > 1:
        return _ordered_for_parts(problem, kernel, wave, l2_parts)
    heights = (1, tiles_m) if table.by_rows_or_columns else GROUPS
    height = min(heights, key=lambda rows: (wave_bytes(problem, kernel, wave, min(rows, tiles_m)), rows))
    if table.by_rows_or_columns:
        return replace(kernel, order=TileOrder.ROW if height == 1 else TileOrder.COLUMN)
    return replace(kernel, order=TileOrder.GROUPED, group=height)


def _ordered_for_parts(problem: GemmProblem, kernel: GemmKernel, wave: int, l2_parts: int) -> GemmKernel:
    """The order, by rows or by columns, whose first wave reads fewer operand bytes into one of several L2s."""
    tiles_m, tiles_n = tile_grid(problem, kernel)

    def read_bytes(order: TileOrder) -> int:
        tiles = walk(int(order), 1, tiles_m, tiles_n, 0)[:wave:l2_parts]
        rows, columns = (np.unique(tiles[:, axis]).size for axis in (0, 1))
        return operand_bytes(problem, kernel, rows, columns)

    return replace(kernel, order=min((TileOrder.ROW, TileOrder.COLUMN), key=read_bytes))


def in_turn(kernel: GemmKernel, problem: GemmProblem, gpu: GpuFacts, positions: np.ndarray) -> GemmKernel:
    """The kernel with the bands of tiles whose waves read fewest operand bytes where the walk has another sequence.

    No library has such kernels, so the rule is assumed: each wave reads each of its panels once.

    Args:
        kernel: the library's choice.
        positions: i8[tiles], place in the walk of the tile that is made n-th.
    """
    if kernel.order != TileOrder.GROUPED:
        return kernel
    waves = np.arange(len(positions)) // (gpu.cus * gpu.workgroups(problem, kernel))
    tiles_m, tiles_n = tile_grid(problem, kernel)

    def read_bytes(group: int) -> int:
        tiles = walk(int(kernel.order), group, tiles_m, tiles_n, 0, kernel.cluster_m, kernel.cluster_n)[positions]
        rows, columns = (np.unique(waves * len(positions) + tiles[:, axis]).size for axis in (0, 1))
        return operand_bytes(problem, kernel, rows, columns)

    return replace(kernel, group=min(GROUPS, key=read_bytes))


def wave_bytes(problem: GemmProblem, kernel: GemmKernel, wave: int, group: int) -> float:
    """Operand bytes per unit of K that a wave of tiles reads, each panel once."""
    tiles_m, tiles_n = tile_grid(problem, kernel)
    columns = min(tiles_n, -(-wave // group))
    rows = min(tiles_m, wave, max(group, -(-wave // columns)))
    return operand_bytes(problem, kernel, rows, columns)


def operand_bytes(problem: GemmProblem, kernel: GemmKernel, rows: int, columns: int) -> int:
    """Size of the operands of so many rows and columns of tiles, per unit of K."""
    return rows * kernel.tile_m * problem.a_bytes + columns * kernel.tile_n * problem.b_bytes
