"""Shapes of output tiles, whole and ragged, and the sectors that they touch, counted one by one."""

import numpy as np
from hypothesis import strategies as st

from sim.hw.request import SECTOR_BYTES
from sim.hw.space import TILE


@st.composite
def shapes(draw, rows=6, row_bytes=700):
    """(address, runs, run_bytes, pitch_bytes) of a tile whose rows begin at sectors."""
    runs, run_bytes = draw(st.integers(1, rows)), draw(st.integers(1, row_bytes))
    pitch_bytes = 32 * draw(st.integers(-(-run_bytes // 32), 64))
    return 32 * draw(st.integers(1 << 15, (1 << 15) + 64)), runs, run_bytes, pitch_bytes


def tile_record(shape, **fields):
    """A TILE array of one."""
    tile = np.zeros(1, TILE)
    tile["address"], tile["runs"], tile["run_bytes"], tile["pitch_bytes"] = shape
    tile["bytes"], tile["gate"] = len(sectors_of(shape)) * SECTOR_BYTES, -1
    for name, value in fields.items():
        tile[name] = value
    return tile


def sectors_of(shape):
    """Addresses of the sectors that hold bytes of a tile, in order, naively."""
    address, runs, run_bytes, pitch_bytes = shape
    touched = []
    for run in range(runs):
        first = address + run * pitch_bytes
        sectors = sorted({byte // SECTOR_BYTES * SECTOR_BYTES for byte in range(first, first + run_bytes)})
        touched += sectors
    return touched
