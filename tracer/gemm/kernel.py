"""Parameters of a tiled GEMM kernel (tile, warps, pipeline, copies, epilogue, order) and the resources it needs."""

from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from tracer.gemm.problem import GemmProblem
from tracer.gemm.raster import TileOrder
from traces.bounds import Bound, check_whole_numbers
from traces.errors import UserError
from traces.schema import MAX_CLUSTER, Cache

VECTOR_BYTES = (1, 2, 4, 8, 16)
THREADS_MAX = 1024
REGISTERS_MAX = {32: 255, 64: 512}
"""Registers that an instruction can name, by lanes per warp (CUDA; CDNA2, accumulation registers included)."""
SHARED_BYTES_MAX = 227 << 10
"""Shared memory of one workgroup on the largest machine known here (sm_90)."""
PIPELINE_DEPTH_MAX = 32
MAC_COST_MAX = 64.0
INSTRUCTIONS_MAX, ACCESS_MAX = 10_000, 100
ADDRESS_REGISTERS = 24
"""Registers for addresses, loop counters and predicates (assumed)."""
SETUP_INSTRUCTIONS = 40
"""Address arithmetic before the first load (assumed)."""
PASS_ROWS = 8
"""Rows of the part of a warp that a staged epilogue moves at a time: those that matrix instructions give to a register
(CUTLASS 3.5, epilogue/warp/tensor_op_policy.h)."""
FRAGMENT_K = 16
"""Depth in k of the operand fragments in registers: one tensor instruction (assumed)."""


TILE = Bound(1, 1024, "a larger tile fits no register file")
PAIR = Bound(1, 2, "workgroups that multiply together")
WARPS = Bound(1, 32, f"a workgroup has at most {THREADS_MAX} threads")
BOUNDS = {
    "tile_m": TILE,
    "tile_n": TILE,
    "tile_k": TILE,
    "warps_m": WARPS,
    "warps_n": WARPS,
    "pipeline_depth": Bound(1, PIPELINE_DEPTH_MAX, "a K-step in flight has a slot of the scoreboard"),
    "fragment_pieces": Bound(1, 1024, "pieces of a K-step"),
    "group": Bound(1, 1 << 24, "tiles of a column"),
    "split_k": Bound(1, 1 << 24, "K-steps"),
    "start_tile": Bound(0, 1 << 24, "tiles"),
    "persistent": Bound(1, 1 << 24, "workgroups"),
    "cluster_m": Bound(1, MAX_CLUSTER, "workgroups of a cluster"),
    "cluster_n": Bound(1, MAX_CLUSTER, "workgroups of a cluster"),
    "pair_m": PAIR,
    "pair_n": PAIR,
    "setup": Bound(0, INSTRUCTIONS_MAX, "instructions of an event"),
    "setup_out": Bound(0, INSTRUCTIONS_MAX, "instructions of an event"),
    "access": Bound(0, ACCESS_MAX, "instructions beside an access"),
    "warpgroup": Bound(1, 4, "warps that multiply together"),
    "registers": Bound(1, max(REGISTERS_MAX.values()), "registers that an instruction can name"),
    "shared_bytes": Bound(0, SHARED_BYTES_MAX, "shared memory of the largest machine"),
}
"""Fields of GemmKernel that are numbers."""


class Copy(IntEnum):
    """How operand tiles move from global to shared memory."""

    LDG = 0  # loads into registers, then stores to shared memory
    ASYNC = 1  # copies that need no registers (LDGSTS)
    LDG_SINGLE = 2  # as LDG, with one buffer in shared memory: a second barrier in every K-step
    BULK = 3  # one instruction of the first warp for a whole tile (TMA), with transaction barriers
    PRODUCER = 4  # as BULK, by one more warp that does nothing else


class Epilogue(IntEnum):
    """How the output tile is stored."""

    DIRECT = 0  # each warp stores its own part from registers; rows have the width of the warp's part
    STAGED = 1  # through shared memory, PASS_ROWS of each warp at a time; rows have the width of the workgroup's tile
    BULK = 2  # each warp puts its own part into shared memory, from where one bulk copy (TMA) stores it
    DETACHED = 3  # as BULK, but the workgroup ends before its copies do: the next one of its place computes meanwhile.
    # Both stand for one persistent workgroup that takes the next tile (a counter, or cluster launch control).


@dataclass(frozen=True)
class GemmKernel:
    """Shape of a tiled GEMM kernel.

    Raises:
        UserError: the shape is impossible.
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 32
    warps_m: int = 4  # the output tile is cut into warps_m x warps_n equal parts
    warps_n: int = 2
    pipeline_depth: int = 2  # K-steps in flight: loads run pipeline_depth - 1 steps ahead of the arithmetic
    fragment_pieces: int = 1  # pieces in which a K-step reads shared memory; if > 1, one piece ahead
    vector_bytes: int = 16  # bytes per lane of a global access; narrower if that is not aligned
    lane_bytes: int = 0  # adjacent bytes of an operand that a lane loads, by several accesses if they are narrower
    copy: Copy = Copy.LDG
    epilogue: Epilogue = Epilogue.DIRECT
    order: TileOrder = TileOrder.ROW
    group: int = 8  # band height of TileOrder.GROUPED, in tiles
    split_k: int = 1  # workgroups that share the K-steps of one tile and add to C with reductions
    persistent: int | None = None  # workgroups that walk all tiles in strides; None: one tile per workgroup
    start_tile: int = 0  # position of the walk at which the first workgroup begins (stagger)
    lanes: int = 32
    load_cache: Cache = Cache.DEFAULT
    store_cache: Cache = Cache.DEFAULT
    registers: int | None = None  # per thread; None: derived
    shared_bytes: int | None = None  # per workgroup; None: derived
    cluster_m: int = 1  # tiles of a cluster of workgroups, which load A and B for each other (bulk copies only)
    cluster_n: int = 1
    pair_m: int = 1  # workgroups of a cluster, neighbours in m, that multiply together (2: tcgen05 with cta_group::2).
    # Each keeps its part of the columns of B in shared memory. All of them multiply with all parts.
    pair_n: int = 1  # the same for neighbours in n, with parts of the rows of A
    warpgroup: int = 1  # warps that multiply together, with operands in shared memory (4: WGMMA); 1: in registers
    setup: int = SETUP_INSTRUCTIONS  # instructions of a warp before its first load
    setup_out: int = 0  # the same before it stores a tile
    access: int = 0  # integer instructions of a warp beside each access to an operand or to C: address, limit, packing
    mac_cost: float = 1.0  # time of a multiply-accumulate of this type on the matrix units, relative to fp16

    def __post_init__(self):
        check_whole_numbers("kernel", self, BOUNDS)
        if self.tile_k % self.fragment_pieces:
            raise UserError(
                f"kernel fragment_pieces = {self.fragment_pieces}: must divide tile_k = {self.tile_k} evenly"
            )
        if self.fragment_pieces > 1 and self.pipeline_depth == 1:
            raise UserError(f"kernel fragment_pieces = {self.fragment_pieces}: needs a pipeline_depth of at least 2")
        if not 0 < self.mac_cost <= MAC_COST_MAX:
            raise UserError(f"kernel mac_cost = {self.mac_cost!r}: must be > 0 and <= {MAC_COST_MAX}")
        if self.lanes not in REGISTERS_MAX:
            raise UserError(f"kernel lanes = {self.lanes!r}: must be 32 or 64")
        if self.vector_bytes not in VECTOR_BYTES:
            raise UserError(f"kernel vector_bytes = {self.vector_bytes!r}: must be one of {VECTOR_BYTES}")
        if self.lane_bytes not in (0, *VECTOR_BYTES):
            raise UserError(f"kernel lane_bytes = {self.lane_bytes!r}: must be 0 or one of {VECTOR_BYTES}")
        for tile, warps in (("tile_m", "warps_m"), ("tile_n", "warps_n")):
            if getattr(self, tile) % getattr(self, warps):
                raise UserError(
                    f"kernel {tile} = {getattr(self, tile)} cannot be cut into equal parts by "
                    f"{warps} = {getattr(self, warps)}"
                )
        if self.warps_m % self.warpgroup and self.warps_n % self.warpgroup:
            raise UserError(
                f"kernel warpgroup = {self.warpgroup}: must divide warps_m = {self.warps_m} or warps_n = "
                f"{self.warps_n} evenly"
            )
        if self.threads > THREADS_MAX:
            raise UserError(f"kernel of {self.all_warps} warps x {self.lanes} lanes: at most {THREADS_MAX} threads")
        if self.cluster > MAX_CLUSTER:
            raise UserError(
                f"kernel cluster = {self.cluster_m}x{self.cluster_n}: at most {MAX_CLUSTER} workgroups in a cluster"
            )
        if self.cluster > 1 and not self.bulk:
            raise UserError(f"kernel cluster = {self.cluster_m}x{self.cluster_n}: needs copy = bulk or producer")
        for pair, cluster in (("pair_m", "cluster_m"), ("pair_n", "cluster_n")):
            if getattr(self, cluster) % getattr(self, pair):
                raise UserError(
                    f"kernel {pair} = {getattr(self, pair)}: must divide {cluster} = {getattr(self, cluster)} evenly"
                )
        if self.pair_m * self.pair_n > PAIR.most:
            raise UserError(f"kernel pair = {self.pair_m}x{self.pair_n}: allowed are 1x1, 2x1 and 1x2")
        if self.copy == Copy.PRODUCER and self.epilogue == Epilogue.STAGED:
            raise UserError("kernel copy = producer: found epilogue = staged, allowed are direct, bulk, detached")

    @property
    def warps(self) -> int:
        """Warps that compute."""
        return self.warps_m * self.warps_n

    @property
    def all_warps(self) -> int:
        """Warps of a workgroup, with the one that only copies."""
        return self.warps + (self.copy == Copy.PRODUCER)

    @property
    def threads(self) -> int:
        return self.all_warps * self.lanes

    @property
    def bulk(self) -> bool:
        """Do bulk copies load the operands?"""
        return self.copy in (Copy.BULK, Copy.PRODUCER)

    @property
    def cluster(self) -> int:
        """Workgroups of a cluster."""
        return self.cluster_m * self.cluster_n

    @property
    def boxes(self) -> bool:
        """Do bulk copies store the results?"""
        return self.epilogue in (Epilogue.BULK, Epilogue.DETACHED)

    @property
    def apart(self) -> bool:
        """Have the results a place of their own in shared memory, because the next operands come while copies wait?"""
        return self.epilogue == Epilogue.DETACHED or (self.boxes and self.persistent is not None)

    @property
    def passes(self) -> int:
        """Parts of the output tile that pass through shared memory one after the other (staged epilogue)."""
        return max(1, self.tile_m // self.warps_m // PASS_ROWS) if self.epilogue == Epilogue.STAGED else 1

    @property
    def shared_stages(self) -> int:
        """Operand tiles (of A and of B) held in shared memory at once."""
        return min({Copy.LDG: 2, Copy.LDG_SINGLE: 1}.get(self.copy, self.pipeline_depth), self.pipeline_depth)


def kernel_fields(kernel: GemmKernel) -> dict[str, Any]:
    """The fields of a kernel as plain values, some of them only if it has them."""
    values = asdict(kernel)
    for name, default in (("lane_bytes", 0), ("setup", SETUP_INSTRUCTIONS), ("setup_out", 0), ("access", 0)):
        if values[name] == default:
            del values[name]
    if kernel.cluster == 1:
        del values["cluster_m"], values["cluster_n"]
    for name in ("warpgroup", "pair_m", "pair_n"):
        if values[name] == 1:
            del values[name]
    return values


def tile_grid(problem: GemmProblem, kernel: GemmKernel) -> tuple[int, int]:
    """Rows and columns of output tiles."""
    return -(-problem.m // kernel.tile_m), -(-problem.n // kernel.tile_n)


def stage_bytes(problem: GemmProblem, kernel: GemmKernel) -> int:
    """Size of the tiles of A and B of one K-step in the shared memory of a workgroup."""
    of_a, of_b = kernel.tile_m // kernel.pair_n * problem.a_bytes, kernel.tile_n // kernel.pair_m * problem.b_bytes
    return kernel.tile_k * (of_a + of_b)


def fragment_bytes(problem: GemmProblem, kernel: GemmKernel, depth: int) -> int:
    """Bytes of a K of `depth` that a warp reads from shared memory: its rows of A and its columns of B.

    The warps of a warpgroup lie side by side in m, or else in n. They read the operand that they share once. Of a pair,
    each workgroup reads its own part of what they share for both.
    """
    rows = kernel.tile_m // kernel.warps_m // kernel.pair_n
    columns = kernel.tile_n // kernel.warps_n // kernel.pair_m
    of_a, of_b = rows * problem.a_bytes, columns * problem.b_bytes
    if kernel.warps_m % kernel.warpgroup == 0:
        return depth * of_a + -(-depth * of_b // kernel.warpgroup)
    return -(-depth * of_a // kernel.warpgroup) + depth * of_b


def registers_per_thread(problem: GemmProblem, kernel: GemmKernel) -> int:
    """The given number, or accumulators + operand fragments + loads in flight + addresses, rounded up to 8.

    A warp that only copies needs few and leaves the rest to the others (PTX: setmaxnreg): the mean of all warps counts.
    """
    if kernel.registers is not None:
        return kernel.registers
    copying = kernel.all_warps - kernel.warps
    words = computing_registers(problem, kernel) * kernel.warps + ADDRESS_REGISTERS * copying
    return -(-words // (8 * kernel.all_warps)) * 8


def computing_registers(problem: GemmProblem, kernel: GemmKernel) -> int:
    """Registers per thread of the warps that compute."""
    computing = kernel.warps * kernel.lanes
    accumulators = kernel.tile_m * kernel.tile_n * problem.accumulate_bytes / computing
    buffers = 0 if kernel.warpgroup > 1 else 1 if kernel.fragment_pieces == 1 else 2
    fragments = buffers * fragment_bytes(problem, kernel, min(kernel.tile_k, FRAGMENT_K)) / kernel.lanes
    steps = max(kernel.pipeline_depth - 1, 1) if kernel.copy in (Copy.LDG, Copy.LDG_SINGLE) else 0
    in_flight = steps * stage_bytes(problem, kernel) / computing
    return sum(-(-int(part) // 4) for part in (accumulators, fragments, in_flight)) + ADDRESS_REGISTERS


def staged_element(problem: GemmProblem, kernel: GemmKernel) -> int:
    """Bytes of an output in shared memory: a sum (staged), which is converted behind it, or a result (bulk copies)."""
    return {Epilogue.DIRECT: 0, Epilogue.STAGED: problem.accumulate_bytes}.get(kernel.epilogue, problem.c_bytes)


def shared_bytes(problem: GemmProblem, kernel: GemmKernel) -> int:
    """The given size, or that of the tiles in shared memory."""
    if kernel.shared_bytes is not None:
        return kernel.shared_bytes
    return shared_bytes_needed(problem, kernel)


def shared_bytes_needed(problem: GemmProblem, kernel: GemmKernel) -> int:
    """Size of the operand tiles, and of an output tile in the same place or apart."""
    staged = kernel.tile_m * kernel.tile_n * staged_element(problem, kernel) // kernel.passes
    operands = kernel.shared_stages * stage_bytes(problem, kernel)
    return operands + staged if kernel.apart else max(operands, staged)
