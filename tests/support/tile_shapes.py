"""Shapes of output tiles, whole and ragged, the sectors that they touch, and who stores them, counted one by one."""

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
    tile["parts"] = (shape[1], shape[2], 1, 1, 1)
    for name, value in fields.items():
        tile[name] = value
    return tile


@st.composite
def cuts(draw):
    """(runs, bytes, run_step, byte_step, warps) of the parts of a tile: a grid of wavefronts, or dealt in turn."""
    runs, part_bytes = draw(st.integers(1, 4)), 32 * draw(st.integers(1, 8))
    across, along = draw(st.integers(1, 6)), draw(st.integers(1, 24))  # more than any shape has
    if draw(st.booleans()):
        return runs, part_bytes, 24, 1, 6 * 24
    return runs, part_bytes, along, 1, across


def owners_of(shape, cut):
    """Sector -> wavefront that stores it, naively: run by run, part by part."""
    address, runs, run_bytes, pitch_bytes = shape
    height, width, run_step, byte_step, warps = cut
    found = {}
    for run in range(runs):
        for byte in range(run_bytes):
            band, piece = run // height, byte // width
            sector = (address + run * pitch_bytes + byte) // SECTOR_BYTES * SECTOR_BYTES
            found[sector] = (band * run_step + piece * byte_step) % warps
    return found


def sectors_of(shape):
    """Addresses of the sectors that hold bytes of a tile, in order, naively."""
    address, runs, run_bytes, pitch_bytes = shape
    touched = []
    for run in range(runs):
        first = address + run * pitch_bytes
        sectors = sorted({byte // SECTOR_BYTES * SECTOR_BYTES for byte in range(first, first + run_bytes)})
        touched += sectors
    return touched
