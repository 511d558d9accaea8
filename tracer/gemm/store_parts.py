"""The warp that stores each part of an output tile. It must agree with the epilogue in `tracer.gemm.tiles`."""

import numpy as np

from tracer.gemm.kernel import Epilogue, GemmKernel
from tracer.gemm.problem import Layout, Matrix

PARTS = np.dtype(
    [
        ("runs", "i8"),  # runs of a part
        ("bytes", "i8"),  # adjacent bytes of a part
        ("run_step", "i8"),  # added to the warp number from one part to the next across the runs
        ("byte_step", "i8"),  # the same along a run; both modulo ...
        ("warps", "i8"),  # ... the warps of a workgroup
    ]
)
"""Byte b of run r of a tile is stored by warp (r // runs * run_step + b // bytes * byte_step) % warps."""


def store_parts(kernel: GemmKernel, c: Matrix, tiles: np.ndarray, vector_bytes: int) -> np.ndarray:
    """PARTS of tiles.

    Args:
        c: the output.
        tiles: records with `address`, `runs`, `run_bytes` and `pitch_bytes` (only bytes that exist).
        vector_bytes: largest size of a store per lane.
    """
    parts = np.zeros(len(tiles), PARTS)
    parts["warps"] = kernel.warps
    if kernel.epilogue == Epilogue.STAGED:
        _deal_rows(parts, kernel, c, tiles, vector_bytes)
        return parts
    rows, columns = kernel.tile_m // kernel.warps_m, kernel.tile_n // kernel.warps_n
    if c.layout == Layout.ROW:
        parts["runs"], parts["bytes"] = rows, columns * c.element_bytes
        parts["run_step"], parts["byte_step"] = kernel.warps_n, 1
    else:
        parts["runs"], parts["bytes"] = columns, rows * c.element_bytes
        parts["run_step"], parts["byte_step"] = 1, kernel.warps_n
    return parts


def _deal_rows(parts: np.ndarray, kernel: GemmKernel, c: Matrix, tiles: np.ndarray, vector_bytes: int) -> None:
    """Staged epilogue: the warps take accesses in turn (`tracer.gemm.rectangles.write_accesses`)."""
    run_bytes = c.adjacent(kernel.tile_m, kernel.tile_n) * c.element_bytes
    aligned = tiles["address"] | tiles["run_bytes"] | np.where(tiles["runs"] > 1, tiles["pitch_bytes"], 0)
    width_bytes = np.minimum(vector_bytes, aligned & -aligned)
    vectors = run_bytes // width_bytes
    pieces = -(-vectors // kernel.lanes)
    one = pieces == 1
    parts["runs"] = np.where(one, kernel.lanes // vectors, 1)
    parts["bytes"] = np.where(one, run_bytes, kernel.lanes * width_bytes)
    parts["run_step"], parts["byte_step"] = pieces, 1
