"""Refuse a GEMM kernel that cannot run its problem, or that this computer could not hold."""

from math import prod

from tracer.gemm.kernel import (
    REGISTERS_MAX,
    SHARED_BYTES_MAX,
    Epilogue,
    GemmKernel,
    computing_registers,
    shared_bytes,
    shared_bytes_needed,
    tile_grid,
)
from tracer.gemm.problem import GemmProblem, Layout, Matrix
from traces.errors import UserError
from traces.schema import BARRIERS, BULK_ALIGN, BULK_BYTES, SECTOR_BYTES

TILES_MAX = 1 << 22
"""Tiles of an output: the tables of a plan have a row for each."""
WARP_STEPS_MAX = 1 << 20
"""K-steps of a workgroup, times its warps: the events of a workgroup are in memory."""
ALL_WARP_STEPS_MAX = 10_000_000_000
"""The same of the whole kernel: more is days of simulation."""
OUTPUT_BYTES_MAX = 1 << 40
"""Size of C: to store or reduce more is days of simulation."""


def check_kernel(problem: GemmProblem, kernel: GemmKernel) -> None:
    """Refuse a kernel that cannot run the problem.

    Raises:
        UserError: names the field, its value and what is allowed.
    """
    _check_vectors(problem, kernel)
    if kernel.boxes:
        _check_box(problem.c, "epilogue", kernel.tile_m // kernel.warps_m, kernel.tile_n // kernel.warps_n)
    if kernel.bulk:
        _check_bulk(problem, kernel)
        _check_cluster(problem, kernel)
    steps = -(-problem.k // kernel.tile_k)
    if kernel.split_k > steps:
        raise UserError(f"kernel split_k = {kernel.split_k}: K = {problem.k} has only {steps} steps of {kernel.tile_k}")
    tiles = prod(tile_grid(problem, kernel))
    if kernel.start_tile >= tiles:
        raise UserError(f"kernel start_tile = {kernel.start_tile}: must be < {tiles}, the number of tiles")
    if problem.output_bytes > OUTPUT_BYTES_MAX:
        raise UserError(f"GEMM with an output of {problem.output_bytes:,} bytes: allowed are {OUTPUT_BYTES_MAX:,}")
    _check_size(tiles, steps, kernel)
    registers = computing_registers(problem, kernel) if kernel.registers is None else kernel.registers
    if registers > REGISTERS_MAX[kernel.lanes]:
        raise UserError(
            f"kernel needs {registers} registers per thread, {REGISTERS_MAX[kernel.lanes]} exist: "
            f"smaller tile_m x tile_n = {kernel.tile_m} x {kernel.tile_n}, more warps or a shallower pipeline"
        )
    needed = shared_bytes_needed(problem, kernel)
    if shared_bytes(problem, kernel) < needed:
        raise UserError(f"kernel shared_bytes = {kernel.shared_bytes}: its tiles need {needed}")
    if shared_bytes(problem, kernel) > SHARED_BYTES_MAX:
        raise UserError(
            f"kernel needs {shared_bytes(problem, kernel)} bytes of shared memory, no machine has more than "
            f"{SHARED_BYTES_MAX}: smaller tiles or pipeline_depth"
        )


def check_whole_sectors(problem: GemmProblem, kernel: GemmKernel) -> None:
    """Refuse a kernel whose tiles, or the parts of warps, share sectors of the output: T3 counts whole sectors.

    Raises:
        UserError: names the field, its value and what is allowed.
    """
    own = ("n", problem.n, kernel.tile_n, kernel.warps_n), ("m", problem.m, kernel.tile_m, kernel.warps_m)
    axis, length, width, parts = own[problem.c_layout != Layout.ROW]
    tile_bytes, allowed = width * problem.c_bytes, f"allowed are multiples of {SECTOR_BYTES}"
    if width < length and tile_bytes % SECTOR_BYTES:
        raise UserError(
            f"kernel tile_{axis} = {width}: tiles would store {tile_bytes} adjacent bytes each and share sectors, and "
            f"updates could not be counted; {allowed}"
        )
    part_bytes = width // parts * problem.c_bytes
    if kernel.epilogue != Epilogue.STAGED and parts > 1 and part_bytes % SECTOR_BYTES:
        raise UserError(
            f"kernel warps_{axis} = {parts}: warps would store {part_bytes} adjacent bytes each and share sectors, and "
            f"updates could not be counted; {allowed}, or the epilogue staged"
        )


def _check_size(tiles: int, steps: int, kernel: GemmKernel) -> None:
    """Refuse more tiles, or longer workgroups, than the memory of this computer could hold."""
    if tiles > TILES_MAX:
        raise UserError(f"GEMM of {tiles:,} tiles of C: allowed are {TILES_MAX:,}; smaller m or n, or larger tiles")
    own = 1 if kernel.persistent is None else -(-tiles * kernel.split_k // kernel.persistent)
    own_steps = -(-steps // kernel.split_k)
    if own * own_steps * kernel.warps > WARP_STEPS_MAX:
        raise UserError(
            f"GEMM of {own_steps:,} K-steps x {own:,} tiles x {kernel.warps} warps in a workgroup, whose events are in "
            f"memory: allowed are {WARP_STEPS_MAX:,}; a smaller k, a larger split_k, or more workgroups"
        )
    if steps * tiles * kernel.warps > ALL_WARP_STEPS_MAX:
        raise UserError(
            f"GEMM of {steps:,} K-steps x {tiles:,} tiles x {kernel.warps} warps: allowed are {ALL_WARP_STEPS_MAX:,}, "
            "which are a few days of simulation; smaller m, n or k, or larger tiles"
        )


def _check_bulk(problem: GemmProblem, kernel: GemmKernel) -> None:
    """Refuse tiles of A and B that a bulk copy cannot copy."""
    if kernel.pipeline_depth > BARRIERS // 2:
        raise UserError(
            f"kernel pipeline_depth = {kernel.pipeline_depth}: with bulk copies at most {BARRIERS // 2}, a "
            f"cluster can signal {BARRIERS} transaction barriers of a workgroup"
        )
    extents = {
        "A": (kernel.tile_m // kernel.cluster_n, kernel.tile_k),
        "B": (kernel.tile_k, kernel.tile_n // kernel.cluster_m),
    }
    for matrix in (problem.a, problem.b):
        _check_box(matrix, "copy", *extents[matrix.name])


def _check_box(matrix: Matrix, field: str, rows: int, columns: int) -> None:
    """Refuse a part of a matrix that a bulk copy cannot copy. field: of the kernel, that asks for it."""
    where = f"kernel {field}: a bulk copy does not fit {matrix.name}"
    run_bytes = matrix.adjacent(rows, columns) * matrix.element_bytes
    for what, found in (("address", matrix.address), ("pitch", matrix.pitch_bytes), ("row of a tile", run_bytes)):
        if found % BULK_ALIGN:
            raise UserError(f"{where}: {what} of {found} bytes, allowed are multiples of {BULK_ALIGN}")
    part_bytes = rows * columns * matrix.element_bytes
    if part_bytes > BULK_BYTES:
        raise UserError(f"{where}: a tile of {part_bytes:,} bytes, allowed are {BULK_BYTES:,}")


def _check_cluster(problem: GemmProblem, kernel: GemmKernel) -> None:
    """Refuse clusters into which tiles, or the workgroups, cannot be divided."""
    tiles_m, tiles_n = tile_grid(problem, kernel)
    for what, found, parts in (
        ("rows of tiles", tiles_m, kernel.cluster_m),
        ("columns of tiles", tiles_n, kernel.cluster_n),
        ("tile_m", kernel.tile_m, kernel.cluster_n),
        ("tile_n", kernel.tile_n, kernel.cluster_m),
        ("start_tile", kernel.start_tile, kernel.cluster),
        ("persistent", kernel.persistent or 0, kernel.cluster),
    ):
        if found % parts:
            raise UserError(
                f"kernel cluster = {kernel.cluster_m}x{kernel.cluster_n}: {what} = {found}, allowed are multiples of "
                f"{parts}"
            )


def _check_vectors(problem: GemmProblem, kernel: GemmKernel) -> None:
    """Refuse a vector width that does not divide every row of every tile."""
    extents = {"A": (kernel.tile_m, kernel.tile_k), "B": (kernel.tile_k, kernel.tile_n)}
    if kernel.epilogue == Epilogue.STAGED:
        extents["C"] = (kernel.tile_m, kernel.tile_n)
    else:
        extents["C"] = (kernel.tile_m // kernel.warps_m, kernel.tile_n // kernel.warps_n)
    for matrix in (problem.a, problem.b, problem.c):
        run_bytes = matrix.adjacent(*extents[matrix.name]) * matrix.element_bytes
        if kernel.vector_bytes < matrix.element_bytes or run_bytes % kernel.vector_bytes:
            raise UserError(
                f"kernel vector_bytes = {kernel.vector_bytes} does not fit {matrix.name}: elements of "
                f"{matrix.element_bytes} bytes, {run_bytes} adjacent bytes per tile"
            )
    for matrix in (problem.a, problem.b):
        run_bytes = matrix.adjacent(*extents[matrix.name]) * matrix.element_bytes
        if kernel.lane_bytes and not kernel.bulk and run_bytes % kernel.lane_bytes:
            raise UserError(
                f"kernel lane_bytes = {kernel.lane_bytes} does not fit {matrix.name}: {run_bytes} adjacent bytes per "
                "tile, allowed are divisors of that"
            )
