"""What a tiled GEMM must touch, element by element, and what a workgroup's events do touch, lane by lane."""

import numpy as np

from tests.support.lane_twin import lane_addresses
from tracer.gemm.source import Layout, TileOrder


def naive_walk(order, group, tiles_m, tiles_n):
    """[(tile row, tile column)] in walk order."""
    if order == TileOrder.ROW:
        return [(r, c) for r in range(tiles_m) for c in range(tiles_n)]
    if order == TileOrder.COLUMN:
        return [(r, c) for c in range(tiles_n) for r in range(tiles_m)]
    bands = [range(first, min(first + group, tiles_m)) for first in range(0, tiles_m, group)]
    return [(r, c) for band in bands for c in range(tiles_n) for r in band]


def naive_items(problem, kernel, index):
    """What workgroup `index` computes: [(tile row, tile column, split)]."""
    tiles_m, tiles_n = -(-problem.m // kernel.tile_m), -(-problem.n // kernel.tile_n)
    tiles = naive_walk(kernel.order, kernel.group, tiles_m, tiles_n)
    tiles = tiles[kernel.start_tile :] + tiles[: kernel.start_tile]
    items = [(*tile, split) for split in range(kernel.split_k) for tile in tiles]
    return items[index : index + 1] if kernel.persistent is None else items[index :: kernel.persistent]


def split_steps(problem, kernel, split):
    """K-steps of a split, as a range."""
    steps = -(-problem.k // kernel.tile_k)
    return range(steps * split // kernel.split_k, steps * (split + 1) // kernel.split_k)


def touches(matrix, events):
    """How often each element is touched by the lanes of `events`: int array [rows, columns].

    Asserts that every lane is aligned to its width and touches whole elements inside the matrix.
    """
    count = np.zeros((matrix.rows, matrix.columns), int)
    for event in events:
        width = int(event["width_bytes"])
        for address in lane_addresses(event, ()):
            assert address % width == 0
            for element in range(width // matrix.element_bytes):
                count[element_at(matrix, address + element * matrix.element_bytes)] += 1
    return count


def element_at(matrix, address):
    """(row, column) of the element at a byte address, which must be inside the matrix."""
    offset, rest = divmod(address - matrix.address, matrix.element_bytes)
    assert rest == 0
    assert offset >= 0
    outer, inner = divmod(offset, matrix.leading_dimension)
    row, column = (outer, inner) if matrix.layout == Layout.ROW else (inner, outer)
    assert row < matrix.rows, "beyond the last row"
    assert column < matrix.columns, "beyond the last column"
    return row, column


def needed_operands(problem, kernel, items):
    """How often each element of A and of B has to be loaded: once per tile and K-step that needs it."""
    a, b = np.zeros((problem.m, problem.k), int), np.zeros((problem.k, problem.n), int)
    for tile_row, tile_column, split in items:
        rows = slice(tile_row * kernel.tile_m, (tile_row + 1) * kernel.tile_m)
        columns = slice(tile_column * kernel.tile_n, (tile_column + 1) * kernel.tile_n)
        steps = split_steps(problem, kernel, split)
        ks = slice(steps.start * kernel.tile_k, steps.stop * kernel.tile_k)
        a[rows, ks] += 1
        b[ks, columns] += 1
    return a, b


def needed_outputs(problem, kernel, items):
    """How often each element of C has to be stored."""
    c = np.zeros((problem.m, problem.n), int)
    for tile_row, tile_column, _ in items:
        c[
            tile_row * kernel.tile_m : (tile_row + 1) * kernel.tile_m,
            tile_column * kernel.tile_n : (tile_column + 1) * kernel.tile_n,
        ] += 1
    return c
