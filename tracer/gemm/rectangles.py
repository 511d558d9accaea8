"""Rectangles of a matrix, and the warp accesses that load or store one.

A tile covers tile_rows runs of tile_run_bytes adjacent bytes. At the edge of the matrix only `rows` runs of `run_bytes`
exist. Threads cover the *whole* tile; consecutive threads are along the adjacent bytes. The warps take accesses in
turn, as in a real kernel. Lanes outside the matrix are masked off. An access without active lanes is not made.
"""

import numpy as np

from tracer.compile.jit import compiled
from tracer.events import ALL_LANES
from tracer.gemm.problem import Layout
from traces.schema import PLAIN_STRIDE

MATRIX = np.dtype(
    [
        ("address", "i8"),  # of element (0, 0)
        ("rows", "i8"),
        ("columns", "i8"),
        ("element_bytes", "i8"),
        ("pitch_bytes", "i8"),  # from one run of adjacent elements to the next
        ("layout", "i8"),  # Layout
    ]
)

RECTANGLE = np.dtype(
    [
        ("address", "i8"),  # of its first byte
        ("pitch_bytes", "i8"),  # from run to run
        ("rows", "i8"),  # runs that exist
        ("run_bytes", "i8"),  # bytes of a run that exist
        ("tile_rows", "i8"),  # runs of the whole tile
        ("tile_run_bytes", "i8"),  # bytes of a run of the whole tile
        ("width_bytes", "i8"),  # bytes per lane
    ]
)

COLUMN_MAJOR = int(Layout.COLUMN)


@compiled
def cut_rectangle(rectangle, matrix, row, column, tile_rows, tile_columns, vector_bytes):
    """Fill `rectangle` with the part of the matrix that a tile at element (row, column) covers.

    The access width is `vector_bytes`, halved until it divides the first address, the pitch and the length of a run.
    So every lane is aligned and stays inside the matrix.

    Reads: matrix. Writes: rectangle.
    """
    run, across = column, row
    run_tile, across_tile = tile_columns, tile_rows
    run_limit, across_limit = matrix.columns, matrix.rows
    if matrix.layout == COLUMN_MAJOR:
        run, across = row, column
        run_tile, across_tile = tile_rows, tile_columns
        run_limit, across_limit = matrix.rows, matrix.columns
    rectangle.address = matrix.address + across * matrix.pitch_bytes + run * matrix.element_bytes
    rectangle.pitch_bytes = matrix.pitch_bytes
    rectangle.rows = max(0, min(across_tile, across_limit - across))
    rectangle.run_bytes = max(0, min(run_tile, run_limit - run)) * matrix.element_bytes
    rectangle.tile_rows = across_tile
    rectangle.tile_run_bytes = run_tile * matrix.element_bytes
    shared_bits = rectangle.address | rectangle.run_bytes
    if rectangle.rows > 1:
        shared_bits |= rectangle.pitch_bytes
    width_bytes = vector_bytes
    while shared_bits & (width_bytes - 1):
        width_bytes >>= 1
    rectangle.width_bytes = width_bytes


@compiled
def write_accesses(events, at, access, rectangle, lane_bytes, lanes, warp, warps):
    """Write the accesses of one warp to a rectangle that `warps` warps share.

    Args:
        events: EVENT[:]; events after its end are counted but not kept (`tracer.gemm.tiles`).
        at: index of the first event to write.
        access: EVENT record; all fields are set except addresses and lanes.
        rectangle: RECTANGLE record.
        lane_bytes: adjacent bytes of a lane, moved by as many accesses as the width needs; 0 = as wide as an access.
        lanes: lanes of a warp.

    Returns:
        Index after the last event.
    """
    width_bytes = rectangle.width_bytes
    vector_bytes = max(lane_bytes, width_bytes)
    tile_vectors = rectangle.tile_run_bytes // vector_bytes
    pieces = (tile_vectors + lanes - 1) // lanes  # accesses per run, if runs are longer than a warp
    height = lanes // tile_vectors if pieces == 1 else 1  # runs per access
    bands = (rectangle.tile_rows + height - 1) // height
    access.width_bytes = width_bytes
    access.stride = vector_bytes
    for i in range(warp, bands * pieces, warps):
        row = i // pieces * height
        vector = (i - i // pieces * pieces) * lanes
        rows = min(rectangle.rows - row, height)
        for first in range(vector * vector_bytes, (vector + 1) * vector_bytes, width_bytes):
            left_bytes = rectangle.run_bytes - first  # from the first lane to the end of the run
            columns = min((left_bytes + vector_bytes - 1) // vector_bytes, lanes)
            if columns <= 0 or rows <= 0:
                continue
            access.base = rectangle.address + row * rectangle.pitch_bytes + first
            access.mask = lane_mask(columns, rows, tile_vectors)
            access.inner = columns if rows > 1 else PLAIN_STRIDE
            access.row_stride = rectangle.pitch_bytes if rows > 1 else 0
            events[min(at, events.size - 1)] = access
            at += 1
    return at


@compiled
def lane_mask(columns, rows, row_lanes):
    """Mask of the first `columns` lanes in each of `rows` groups of `row_lanes` lanes; columns * rows >= 1."""
    if columns == row_lanes:
        return ALL_LANES >> np.uint64(64 - columns * rows)
    one_row = ALL_LANES >> np.uint64(64 - columns)
    mask = one_row
    for r in range(1, rows):
        mask |= one_row << np.uint64(r * row_lanes)
    return mask


def make_matrix(matrix):
    """MATRIX record of a `tracer.gemm.problem.Matrix`."""
    record = np.zeros((), MATRIX)
    record["address"], record["rows"], record["columns"] = matrix.address, matrix.rows, matrix.columns
    record["element_bytes"], record["pitch_bytes"] = matrix.element_bytes, matrix.pitch_bytes
    record["layout"] = matrix.layout
    return record
