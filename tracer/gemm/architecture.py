"""Architectures whose GEMM libraries are known: their tables in `library.toml`, and what a choice asks of a machine."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from itertools import product
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from tracer.data_type import DataType
from tracer.gemm.kernel import Copy, Epilogue, GemmKernel, registers_per_thread, shared_bytes
from tracer.gemm.problem import GemmProblem
from traces.toml_file import read_toml

TABLE = Path(__file__).parent / "library.toml"
STEP_CLK = 200
"""Clocks of a K-step without arithmetic, if the table has no `step_clk`: two barriers, latency of the first fragments
(read off our simulated kernels of 128 x 128 and 256 x 128 tiles on a100_80g, not off measurements)."""

PROGRAM = ("lane_bytes", "setup", "setup_out", "access", "registers")
"""Fields of `GemmKernel` that a table may give for all its kernels, beside `epilogue`."""

WITHOUT_WARPGROUPS = (DataType.FP32, DataType.FP64)
"""Types that have the same instructions with and without warpgroups."""


class GemmLibrary(IntEnum):
    """The architectures of `library.toml`."""

    T3 = 0
    SM70 = 1
    SM80 = 2
    SM90 = 3
    CDNA2 = 4
    CDNA3 = 5
    SM100 = 6
    SM75 = 7
    SM103 = 8


class GpuFacts(NamedTuple):
    """What the choice needs to know of a machine.

    Attributes:
        library: its table.
        lanes: of a warp.
        cus, clock_MHz, macs_per_clk: number and clock of CUs, fp16 multiply-accumulates of one CU per clock.
        l2_bytes_per_clk: share of one CU in the bandwidth of L2, per clock of the CU.
        port_bytes_per_clk: data that its port takes from the crossbar.
        l2_bytes: capacity.
        l2_parts: L2s that do not share lines; workgroup i uses number i % l2_parts.
        bulk, clusters: has it bulk copies, and clusters of workgroups?
        by_wavefront: does its Tracker follow the part of each warp? A staged epilogue has none.
        dram_bytes_per_s: peak.
        latency_ps: of a read from DRAM.
        resident: (threads, registers per thread, shared bytes) -> workgroups that fit on a CU, 0 = none.
    """

    library: GemmLibrary
    lanes: int
    cus: int
    clock_MHz: float
    macs_per_clk: float
    l2_bytes_per_clk: float
    l2_bytes: int
    dram_bytes_per_s: float
    latency_ps: int
    resident: Callable[[int, int, int], int]
    l2_parts: int = 1
    bulk: bool = False
    clusters: bool = False
    by_wavefront: bool = False
    port_bytes_per_clk: float = inf

    def workgroups(self, problem: GemmProblem, kernel: GemmKernel) -> int:
        """Workgroups of a kernel that run at once on a CU, 0 = its CUs are too small."""
        return self.resident(kernel.threads, registers_per_thread(problem, kernel), shared_bytes(problem, kernel))


@dataclass(frozen=True)
class Architecture:
    """A table of `library.toml`.

    Attributes:
        types: type -> time of a multiply-accumulate, relative to fp16.
        kernels: their order of tiles is chosen.
        step_clk: clocks of a K-step without arithmetic.
        clusters: tiles (m, n) of a cluster that each kernel may have. It has the one with which a CU loads least.
        copy, piece_k, warpgroup: of its kernels: how they load; depth of a piece; warps that multiply together.
        program: other fields of its kernels.
        older: time of a multiply-accumulate of kernels without warpgroups, relative to those of the table.
        otherwise: the library whose kernels run what none of these can (operands that no bulk copy can load).
        by_rows_or_columns: the order is by rows or by columns; False = in bands.
        splits: it has kernels with split-K.
        tuned: m, n, k of the sizes for which the library was tuned; () = for every size.
    """

    name: str
    types: dict[DataType, float]
    kernels: tuple[GemmKernel, ...]
    copy: Copy
    piece_k: int
    warpgroup: int
    program: dict[str, Any]
    older: float
    step_clk: int
    clusters: tuple[tuple[int, int], ...]
    otherwise: GemmLibrary | None
    by_rows_or_columns: bool
    splits: bool
    tuned: tuple[tuple[int, int, int], ...]

    def cost(self, dtype: DataType, warpgroup: int) -> float:
        """Time of a multiply-accumulate on a machine with this library, relative to its fp16, for a kernel whose warps
        multiply so."""
        older = warpgroup < self.warpgroup and dtype not in WITHOUT_WARPGROUPS
        return self.types.get(dtype, 1.0) * (self.older if older else 1.0)


def _table(tables: dict[str, Any], name: str) -> dict[str, Any]:
    """A table with what it has from the one that it is like."""
    like = tables[name].get("like")
    return (_table(tables, like) if like else {}) | tables[name]


@cache
def architecture(library: GemmLibrary) -> Architecture:
    """Read a table."""
    name = library.name.lower()
    table = _table(read_toml(TABLE), name)
    copy, piece_k, warpgroup = Copy[table["copy"].upper()], table["piece_k"], table.get("warpgroup", 1)
    program: dict[str, Any] = {name: table[name] for name in PROGRAM if name in table}
    if "epilogue" in table:
        program["epilogue"] = Epilogue[table["epilogue"].upper()]
    shapes = [((1, 1), shape) for shape in table["kernels"]]
    for m, n, k, warps_m, warps_n, depth in table.get("pairs", ()):
        shapes += [((2, 1), [m, n, k, warps_m, warps_n, depth]), ((1, 2), [n, m, k, warps_n, warps_m, depth])]
    kernels = tuple(
        GemmKernel(
            tile_m=tile_m,
            tile_n=tile_n,
            tile_k=tile_k,
            warps_m=warps_m,
            warps_n=warps_n,
            pipeline_depth=depth,
            fragment_pieces=tile_k // piece_k,
            copy=copy,
            warpgroup=warpgroup,
            cluster_m=pair_m,
            cluster_n=pair_n,
            pair_m=pair_m,
            pair_n=pair_n,
            **program,
        )
        for (pair_m, pair_n), (tile_m, tile_n, tile_k, warps_m, warps_n, depth) in shapes
    )
    types = {DataType(key): cost for key, cost in table["types"].items()}
    sides, depths = table.get("tuned_sides", ()), table.get("tuned_depths", ())
    tuned = *product(sides, sides, depths), *map(tuple, table.get("tuned", ()))
    clusters = tuple((m, n) for m, n in table.get("clusters", ((1, 1),)))
    otherwise = GemmLibrary[table["otherwise"].upper()] if "otherwise" in table else None
    orders = table.get("by_rows_or_columns", False), table.get("splits", True)
    step_clk = table.get("step_clk", STEP_CLK)
    family = copy, piece_k, warpgroup, program, table.get("older", 1.0)
    return Architecture(name, types, kernels, *family, step_clk, clusters, otherwise, *orders, tuned)
