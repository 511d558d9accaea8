"""A GEMM kernel as one record for the tile writer: matrices, geometry, and a template of every instruction it issues.

Templates hold everything that is equal for all tiles. The compiled functions of `tracer.gemm.tiles` only order and
place them. The arithmetic covers the *whole* tile: the tensor unit also multiplies the zeros outside the matrix.
"""

from enum import IntEnum

import numpy as np

from tracer.events import access, compute, event, phase_barrier, shared_access
from tracer.gemm.kernel import Copy, Epilogue, GemmKernel, fragment_bytes, stage_bytes, staged_element, tile_grid
from tracer.gemm.problem import GemmProblem
from tracer.gemm.rectangles import MATRIX, make_matrix
from traces.schema import (
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    EVENT,
    NO_SLOT,
    PHASE_ARRIVE,
    PHASE_WAIT,
    Bulk,
    Kind,
    Pipe,
)

TENSOR_INSTRUCTION_MACS = 16 * 8 * 16
"""Multiply-accumulates of one warp instruction, m16n8k16 (assumed for every machine). The pipe's rate uses `work`."""
TENSOR_LATENCY_CLK = 33
FMA_LATENCY_CLK = 4
ALU_LATENCY_CLK = 4
"""Clocks to the last result (assumed; microbenchmarks of sm_70 and sm_80 report numbers of this order)."""
REDUCE_BYTES = 4
"""Bytes per lane of a reduction instruction. A larger element has its own size."""


class Slot(IntEnum):
    """Scoreboard slots. The stages of the pipeline use 0 .. pipeline_depth - 1."""

    FRAGMENTS = 32  # operands of the tensor instructions
    ACCUMULATORS = 33
    SOURCE = 34  # old C
    OUTPUT = 35  # converted results
    NEXT_FRAGMENTS = 36  # operands of the next piece, if a K-step has several pieces
    COPIED = 37  # bulk copies that store


PC_STEP = 16
"""From the program counter of a Site to that of the next."""


class Site(IntEnum):
    """Instructions in the order of the program. The program counter is PC_STEP times this number."""

    SETUP = 0
    LOAD_A = 1
    LOAD_B = 2
    SHARE = 3
    STAGE_BARRIER = 4
    FRAGMENTS = 5
    TENSOR = 6
    REUSE_BARRIER = 7
    LOAD_SOURCE = 8
    STAGE_OUT = 9
    STAGE_IN = 10
    CONVERT = 11
    STORE = 12
    EXIT = 13
    FILLED = 14  # of bulk copies: the producer's arrival, the wait for the data, and the same for the free stage
    AWAIT_DATA = 15
    RELEASED = 16
    AWAIT_STAGE = 17
    CLUSTER_HERE = 18  # of clusters: all workgroups are there
    CLUSTER_ALL = 19
    ADDRESSES = 20  # instructions beside accesses, and before a tile is stored


TEMPLATES = tuple(site.name.lower() for site in Site)

PLAN = np.dtype(
    [(name, MATRIX) for name in ("a", "b", "c", "source")]
    + [(name, EVENT) for name in TEMPLATES]
    + [
        (name, "i8")
        for name in (
            "tile_m",
            "tile_n",
            "tile_k",
            "tiles_m",  # rows of tiles
            "tiles_n",  # columns of tiles
            "order",  # TileOrder
            "group",
            "start_tile",
            "split_k",
            "workgroups",
            "steps",  # K-steps of a tile, sum over all splits
            "warps_m",
            "warps_n",
            "lanes",
            "depth",
            "pieces",  # pieces of the operands of a K-step
            "through_registers",  # operand tiles pass through registers to shared memory
            "single",  # one buffer in shared memory
            "bulk",  # operand tiles come by bulk copies
            "producer",  # of a warp of its own, not of the first one
            "cluster_m",
            "cluster_n",
            "pair_m",
            "pair_n",
            "readers",  # set of the workgroups of the cluster whose copies bring data of the current tile; 0 = its own
            "before",  # K-steps of the workgroup before the current tile, less the tile's first K-step
            "staged",  # epilogue through shared memory
            "boxes",  # epilogue by bulk copies
            "apart",  # they have shared memory of their own
            "with_c",
            "setup_out",  # instructions before a tile is stored
            "load_access",  # instructions beside a load of an operand ...
            "access",  # ... and beside an access to C
            "passes",  # of a staged epilogue
            "lane_bytes",  # of an operand that a lane loads one after the other; 0 = with one access
            "load_bytes",  # per lane
            "store_bytes",  # per lane
        )
    ]
)


def make_plan(problem: GemmProblem, kernel: GemmKernel) -> np.ndarray:
    """One PLAN record; `kernel` must have passed `check_kernel`."""
    plan = np.zeros((), PLAN)
    for field, matrix in (("a", problem.a), ("b", problem.b), ("c", problem.c), ("source", problem.c_source)):
        plan[field] = make_matrix(matrix)
    for field in (
        "tile_m",
        "tile_n",
        "tile_k",
        "group",
        "start_tile",
        "split_k",
        "warps_m",
        "warps_n",
        "lanes",
        "cluster_m",
        "cluster_n",
        "pair_m",
        "pair_n",
    ):
        plan[field] = getattr(kernel, field)
    tiles_m, tiles_n = tile_grid(problem, kernel)
    plan["tiles_m"], plan["tiles_n"] = tiles_m, tiles_n
    plan["steps"] = -(-problem.k // kernel.tile_k)
    plan["workgroups"] = tiles_m * tiles_n * kernel.split_k if kernel.persistent is None else kernel.persistent
    plan["order"], plan["depth"], plan["pieces"] = kernel.order, kernel.pipeline_depth, kernel.fragment_pieces
    plan["bulk"], plan["producer"] = kernel.bulk, kernel.copy == Copy.PRODUCER
    plan["through_registers"] = kernel.copy in (Copy.LDG, Copy.LDG_SINGLE)
    plan["single"] = kernel.shared_stages == 1 and not kernel.bulk
    plan["staged"], plan["with_c"] = kernel.epilogue == Epilogue.STAGED, problem.with_c
    plan["passes"] = kernel.passes
    plan["boxes"], plan["apart"] = kernel.boxes, kernel.apart
    plan["load_bytes"] = plan["store_bytes"] = kernel.vector_bytes
    for field in ("lane_bytes", "setup_out", "access"):
        plan[field] = getattr(kernel, field)
    plan["load_access"] = 0 if kernel.bulk else kernel.access
    if kernel.split_k > 1:
        plan["store_bytes"] = max(problem.c_bytes, min(kernel.vector_bytes, REDUCE_BYTES))
    for site, template in _templates(problem, kernel).items():
        template["pc"] = PC_STEP * site
        plan[site.name.lower()] = template[0]
    return plan


def _templates(problem: GemmProblem, kernel: GemmKernel) -> dict[Site, np.ndarray]:
    """EVENT[1] of every site. Compiled functions set addresses and lanes of global accesses."""
    load = Kind.BULK if kernel.bulk else Kind.ASYNC_COPY if kernel.copy == Copy.ASYNC else Kind.LOAD
    store = Kind.STORE if kernel.split_k == 1 else Kind.REDUCE
    part = (kernel.tile_m // kernel.warps_m) * (kernel.tile_n // kernel.warps_n)  # outputs of a warp
    piece_k = kernel.tile_k // kernel.fragment_pieces
    macs = part * piece_k
    outputs = -(-part // (kernel.lanes * kernel.passes))
    part_bytes = part * staged_element(problem, kernel) / kernel.passes
    output, sum_and_source = 1 << Slot.OUTPUT, 1 << Slot.ACCUMULATORS | 1 << Slot.SOURCE | 1 << Slot.FRAGMENTS
    readers = kernel.cluster_m // kernel.pair_m + kernel.cluster_n // kernel.pair_n - 1
    lanes = kernel.lanes
    stage_out = shared_access(Kind.STORE, lanes, part_bytes, wait=1 << Slot.ACCUMULATORS)
    save = access(store, lanes=lanes, cache=kernel.store_cache, wait=output)
    if kernel.boxes:
        stage_out = shared_access(Kind.STORE, lanes, part_bytes, slot=Slot.FRAGMENTS, wait=output | 1 << Slot.COPIED)
        save = event(Kind.BULK, slot=Slot.COPIED, wait=1 << Slot.FRAGMENTS)
        save["space"] = Bulk.STORE if kernel.split_k == 1 else Bulk.REDUCE
        save["cache"] = kernel.store_cache
    multiply = compute(Pipe.TENSOR, -(-macs // TENSOR_INSTRUCTION_MACS), TENSOR_LATENCY_CLK, wait=1 << Slot.FRAGMENTS)
    multiply["work"] = max(1, round(macs * kernel.mac_cost))
    multiply["row_stride"] = macs if kernel.mac_cost != 1 else 0
    return {
        Site.SETUP: compute(Pipe.ALU, kernel.setup, ALU_LATENCY_CLK),
        Site.LOAD_A: access(load, lanes=lanes, cache=kernel.load_cache),
        Site.LOAD_B: access(load, lanes=lanes, cache=kernel.load_cache),
        Site.SHARE: shared_access(Kind.STORE, lanes, stage_bytes(problem, kernel) / kernel.warps),
        Site.STAGE_BARRIER: event(Kind.BARRIER, slot=0),
        Site.FRAGMENTS: shared_access(Kind.LOAD, lanes, fragment_bytes(problem, kernel, piece_k), slot=Slot.FRAGMENTS),
        Site.TENSOR: multiply,
        Site.REUSE_BARRIER: event(Kind.BARRIER, slot=0),
        Site.LOAD_SOURCE: access(Kind.LOAD, lanes=lanes, cache=kernel.load_cache, slot=Slot.SOURCE),
        Site.STAGE_OUT: stage_out,
        Site.STAGE_IN: shared_access(Kind.LOAD, lanes, part_bytes, slot=Slot.FRAGMENTS),
        Site.CONVERT: compute(Pipe.FMA, outputs, FMA_LATENCY_CLK, slot=Slot.OUTPUT, wait=sum_and_source),
        Site.STORE: save,
        Site.EXIT: event(Kind.EXIT, slot=Slot.COPIED if kernel.epilogue == Epilogue.DETACHED else NO_SLOT),
        Site.FILLED: phase_barrier(PHASE_ARRIVE, 1),
        Site.AWAIT_DATA: phase_barrier(PHASE_WAIT),
        Site.RELEASED: phase_barrier(PHASE_ARRIVE, kernel.warps * readers),
        Site.AWAIT_STAGE: phase_barrier(PHASE_WAIT),
        Site.CLUSTER_HERE: phase_barrier(CLUSTER_ARRIVE),
        Site.CLUSTER_ALL: phase_barrier(CLUSTER_WAIT, 1),
        Site.ADDRESSES: compute(Pipe.ALU, 1, ALU_LATENCY_CLK),
    }
