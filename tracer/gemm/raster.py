"""The order in which workgroups compute output tiles.

A *position* is a place in the walk (0 .. tiles - 1). A tile is given by its row and column in the grid of tiles.
"""

from enum import IntEnum

import numpy as np

from tracer.compile.jit import compiled


class TileOrder(IntEnum):
    ROW = 0  # along a row of tiles, then the next row
    COLUMN = 1  # down a column of tiles, then the next column
    GROUPED = 2  # bands of `group` rows, each column by column: a wave shares panels of both operands


@compiled
def tile_at(position, order, group, tiles_m, tiles_n, cluster_m, cluster_n):
    """(tile row, tile column) at a position of the walk.

    The walk goes from cluster to cluster of cluster_m x cluster_n tiles, and in each down its columns.
    """
    size = cluster_m * cluster_n
    cluster, rank = position // size, position % size
    height = max(1, group // cluster_m)
    row, column = _cluster_at(cluster, order, height, tiles_m // cluster_m, tiles_n // cluster_n)
    return row * cluster_m + rank % cluster_m, column * cluster_n + rank // cluster_m


@compiled
def _cluster_at(position, order, group, tiles_m, tiles_n):
    """(row, column) of a cluster of tiles."""
    if order == TileOrder.ROW:
        return position // tiles_n, position % tiles_n
    if order == TileOrder.COLUMN:
        return position % tiles_m, position // tiles_m
    band = position // (group * tiles_n)
    first_row = band * group
    height = min(group, tiles_m - first_row)
    within = position - band * group * tiles_n
    return first_row + within % height, within // height


@compiled(allocates=True)
def walk(order, group, tiles_m, tiles_n, start, cluster_m=1, cluster_n=1):
    """The whole walk. It begins at position `start` (stagger) and wraps around.

    Returns:
        i8[tiles_m * tiles_n, 2]: tile row and column of the i-th workgroup's tile.
    """
    tiles = tiles_m * tiles_n
    grid = np.empty((tiles, 2), np.int64)
    for i in range(tiles):
        grid[i, 0], grid[i, 1] = tile_at((i + start) % tiles, order, group, tiles_m, tiles_n, cluster_m, cluster_n)
    return grid
