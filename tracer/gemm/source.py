"""A tiled GEMM as a kernel trace. It makes workgroups of warp events from problem and kernel shape, on demand."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256

import numpy as np

from tracer.events import NO_ADDRESSES
from tracer.gemm.check import check_kernel
from tracer.gemm.kernel import (
    Copy,
    Epilogue,
    GemmKernel,
    kernel_fields,
    registers_per_thread,
    shared_bytes,
    tile_grid,
)
from tracer.gemm.plan import PLAN, make_plan
from tracer.gemm.problem import GemmProblem, Layout, Matrix, padded_leading_dimension
from tracer.gemm.raster import TileOrder, walk
from tracer.gemm.store_parts import PARTS, store_parts
from tracer.gemm.tiles import write_workgroup
from traces.schema import EVENT
from traces.source import KernelInfo, Moved, Workgroup

__all__ = [
    "OUTPUT_TILE",
    "PARTS",
    "Copy",
    "Epilogue",
    "GemmKernel",
    "GemmProblem",
    "GemmSource",
    "Layout",
    "Matrix",
    "TileOrder",
    "padded_leading_dimension",
]

SYNTHESIS_VERSION = 1
"""Raised when the same problem and kernel give other events. It is part of the fingerprint."""

OUTPUT_TILE = np.dtype(
    [
        ("address", "i8"),  # first byte
        ("runs", "i8"),  # rows of a row-major C, columns of a column-major one
        ("run_bytes", "i8"),  # adjacent bytes of a run
        ("pitch_bytes", "i8"),  # from run to run
        ("row", "i8"),  # tile row in the grid of tiles
        ("column", "i8"),  # tile column
        ("parts", PARTS),
    ]
)
"""Addresses of an output tile, and the warp that stores each part of it."""


class GemmSource:
    """The kernel trace (`traces.source.KernelSource`) of a GEMM.

    In a kernel with one tile per workgroup, workgroup i computes the tile at position (i + start_tile) % tiles of the
    walk. With split-K it computes share i // tiles of the K-steps.

    Raises:
        UserError: the kernel cannot run the problem.
    """

    def __init__(self, problem: GemmProblem, kernel: GemmKernel | None = None, name: str | None = None):
        kernel = GemmKernel() if kernel is None else kernel
        check_kernel(problem, kernel)
        self.problem = problem
        self.kernel = kernel
        self.tiles_m, self.tiles_n = tile_grid(problem, kernel)
        plan = make_plan(problem, kernel).reshape(1)
        self._plan_bytes = plan.view(np.uint8)
        self._workgroups = int(plan[0]["workgroups"])
        self._events_expected = 1
        self.info = self._make_info(name or f"gemm_{problem.m}x{problem.n}x{problem.k}")

    @property
    def flops(self) -> int:
        """Two for each multiply-accumulate."""
        return 2 * self.problem.macs

    @property
    def moved_bytes(self) -> Moved:
        """Size of the matrices that are read and written."""
        return self.problem.moved_bytes

    @property
    def tiles(self) -> int:
        """Number of output tiles."""
        return self.tiles_m * self.tiles_n

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups in launch order, starting at number `start`."""
        for index in range(start, self.info.workgroups):
            yield self.workgroup(index)

    def workgroup(self, index: int) -> Workgroup:
        """One workgroup."""
        plan = self._plan_bytes.copy().view(PLAN)  # templates are changed; a copy by field takes 100 us
        first_event = np.empty(self.kernel.all_warps + 1, np.int64)
        while True:
            events = np.empty(self._events_expected, EVENT)
            n = write_workgroup(plan, index, events, first_event)
            if n <= events.size:
                break
            self._events_expected = n
        warp = np.arange(self.kernel.all_warps, dtype=np.uint16)
        return Workgroup(index, warp, first_event, events[:n], NO_ADDRESSES)

    def fingerprint(self) -> str:
        """SHA-256 of problem, kernel and SYNTHESIS_VERSION."""
        fields = {"problem": asdict(self.problem), "kernel": kernel_fields(self.kernel)}
        content = {"synthesis": SYNTHESIS_VERSION, **fields}
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def output_tiles(self) -> np.ndarray:
        """OUTPUT_TILE[tiles]: the tile at each position of the (staggered) walk, in walk order."""
        kernel, c = self.kernel, self.problem.c
        cluster = kernel.cluster_m, kernel.cluster_n
        grid = walk(int(kernel.order), kernel.group, self.tiles_m, self.tiles_n, kernel.start_tile, *cluster)
        row, column = grid[:, 0] * kernel.tile_m, grid[:, 1] * kernel.tile_n
        rows = np.minimum(kernel.tile_m, c.rows - row)
        columns = np.minimum(kernel.tile_n, c.columns - column)
        across, run, runs, elements = (row, column, rows, columns)
        if c.layout == Layout.COLUMN:
            across, run, runs, elements = (column, row, columns, rows)
        tiles = np.zeros(self.tiles, OUTPUT_TILE)
        tiles["address"] = c.address + across * c.pitch_bytes + run * c.element_bytes
        tiles["runs"], tiles["run_bytes"] = runs, elements * c.element_bytes
        tiles["pitch_bytes"] = c.pitch_bytes
        tiles["row"], tiles["column"] = grid[:, 0], grid[:, 1]
        tiles["parts"] = store_parts(kernel, c, tiles, int(self._plan_bytes.view(PLAN)[0]["store_bytes"]))
        return tiles

    def _make_info(self, name: str) -> KernelInfo:
        kernel = self.kernel
        grid = (self.tiles, 1, kernel.split_k) if kernel.persistent is None else (kernel.persistent, 1, 1)
        return KernelInfo(
            name=name,
            grid=grid,
            block=(kernel.threads, 1, 1),
            lanes_per_warp=kernel.lanes,
            registers=registers_per_thread(self.problem, kernel),
            shared_bytes=shared_bytes(self.problem, kernel),
            stream=0,
            warps_per_workgroup=kernel.all_warps,
            workgroups=self._workgroups,
            attributes={
                "source": "tracer.gemm",
                "synthesis": SYNTHESIS_VERSION,
                "problem": asdict(self.problem),
                "kernel": kernel_fields(kernel),
            },
            cluster=kernel.cluster,
        )
