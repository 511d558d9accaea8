"""The order of tiles that a library chooses, beside a count of the operand panels that waves of the walk read."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from tracer.gemm.architecture import GemmLibrary, architecture
from tracer.gemm.kernel import GemmKernel
from tracer.gemm.order import GROUPS, in_turn, ordered, wave_bytes
from tracer.gemm.problem import GemmProblem
from tracer.gemm.raster import TileOrder, walk

GRIDS = st.tuples(st.integers(1, 24), st.integers(1, 24))
POWERS = st.sampled_from([1, 2, 4, 8, 16, 32])
SIDES, BYTES = st.sampled_from([32, 64, 96, 128, 224]), st.sampled_from([1, 2, 4])


@st.composite
def gemms(draw, grids):
    """A grid of tiles, and a GEMM of it whose panels of A and of B have different sizes."""
    tiles_m, tiles_n = grid = draw(grids)
    kernel = GemmKernel(draw(SIDES), draw(SIDES))
    m, n = tiles_m * kernel.tile_m, tiles_n * kernel.tile_n
    return grid, GemmProblem(m, n, 64, a_bytes=draw(BYTES), b_bytes=draw(BYTES)), kernel


def read_bytes(problem, kernel, tiles):
    """Operand bytes per unit of K that tiles read, each panel once."""
    rows, columns = ({int(tile[axis]) for tile in tiles} for axis in (0, 1))
    return len(rows) * kernel.tile_m * problem.a_bytes + len(columns) * kernel.tile_n * problem.b_bytes


def walked(kernel, grid):
    return walk(int(kernel.order), kernel.group, *grid, 0)


@settings(deadline=None)
@given(gemms(GRIDS), st.integers(1, 24), st.integers(1, 700))
def test_the_bytes_of_a_wave_in_one_band_or_in_all_are_those_of_its_panels(gemm, group, wave):
    grid, problem, kernel = gemm
    group = min(group, grid[0])
    if group * grid[1] < wave < grid[0] * grid[1]:
        wave = group * grid[1]
    tiles = walked(replace(kernel, order=TileOrder.GROUPED, group=group), grid)[:wave]
    assert wave_bytes(problem, kernel, wave, group) == read_bytes(problem, kernel, tiles)


@settings(deadline=None)
@given(gemms(st.tuples(POWERS, POWERS)), POWERS, st.booleans())
def test_the_chosen_order_reads_fewest_bytes_in_a_wave(gemm, wave, by_lines):
    grid, problem, kernel = gemm
    table = replace(architecture(GemmLibrary.SM80), by_rows_or_columns=by_lines)
    bands = [replace(kernel, order=TileOrder.GROUPED, group=group) for group in GROUPS]
    lines = [replace(kernel, order=order) for order in (TileOrder.ROW, TileOrder.COLUMN)]
    found = ordered(problem, kernel, wave, table, l2_parts=1)
    assert found == min(
        lines if by_lines else bands, key=lambda one: read_bytes(problem, kernel, walked(one, grid)[:wave])
    )


@settings(deadline=None)
@given(gemms(GRIDS), st.integers(1, 300), st.integers(2, 8))
def test_the_order_for_several_l2_reads_fewest_bytes_into_the_first_one(gemm, wave, parts):
    grid, problem, kernel = gemm

    def bytes_of_first(one):
        return read_bytes(problem, kernel, [tile for i, tile in enumerate(walked(one, grid)[:wave]) if i % parts == 0])

    lines = [replace(kernel, order=order) for order in (TileOrder.ROW, TileOrder.COLUMN)]
    found = ordered(problem, kernel, wave, architecture(GemmLibrary.CDNA3), parts)
    assert found == min(lines, key=bytes_of_first)


@settings(deadline=None)
@given(gemms(GRIDS), st.randoms(use_true_random=False), st.integers(1, 8), st.integers(1, 3))
def test_bands_of_another_sequence_read_fewest_bytes_in_all_waves(gemm, random, cus, resident):
    grid, problem, kernel = gemm
    gpu = gpu_facts(load_preset("a100_80g").machine)._replace(cus=cus, resident=lambda *needs: resident)
    positions = list(range(grid[0] * grid[1]))
    random.shuffle(positions)
    wave = cus * resident

    def bytes_of_all(one):
        tiles = walked(one, grid)[positions]
        return sum(read_bytes(problem, kernel, tiles[k : k + wave]) for k in range(0, len(tiles), wave))

    bands = [replace(kernel, order=TileOrder.GROUPED, group=group) for group in GROUPS]
    assert in_turn(bands[0], problem, gpu, np.array(positions)) == min(bands, key=bytes_of_all)
    assert in_turn(kernel, problem, gpu, np.array(positions)) == kernel  # its order is by rows
