"""The content of a trace archive: the warp-level event, its enums, and the version of the format.

A row is one *warp-level event*: an action of one warp (32 lanes) or wavefront (64 lanes) at one point of its program.
Events of a warp are stored in program order. Consecutive arithmetic instructions of one pipe are folded into one
COMPUTE row, so there are far fewer rows than instructions (`count` keeps the number of warp instructions).

Lane addresses of a memory event; k = 0, 1, ... popcount(mask) - 1 counts the *active* lanes in lane order:

    inner > 0:   address(k) = base + (k % inner) * stride + (k // inner) * row_stride
    inner == 0:  address(k) = addresses[base + k]        (explicit list in the kernel's `addresses` dataset)

`inner` is the number of active lanes in one row of a two-level pattern (a GEMM tile load: 4 lanes x 16 B, then
the next matrix row). A plain base + stride access has inner = 255 and row_stride = 0 (a warp never has 255 lanes).

Dependences: each warp has 64 scoreboard *slots*. An event with a slot increments the slot's counter when it issues and
decrements it when its result has arrived. If bit s of an event's `wait` is set, the event can issue only while the
counter of slot s is zero. Several events may share a slot (for example the copies of one commit group).

Workgroups of a *cluster* (KernelInfo.cluster of them, next to each other in launch order) run at the same time on CUs
of one group. The rank of a workgroup is its place in its cluster. Bit r of a *set of workgroups* stands for rank r.
"""

from enum import IntEnum

import numpy as np

FORMAT_NAME = "t3sim-trace"
FORMAT_VERSION = 2
SEALED_FROM = 2
"""First version of the format with a seal (`traces.seal`)."""

NO_SLOT = 255
"""`slot` of an event for which no other event waits."""
PLAIN_STRIDE = 255
"""`inner` of a one-level base + k * stride pattern."""
EXPLICIT = 0
"""`inner` of an event whose lane addresses are listed in `addresses`."""
SLOTS = 64
"""Scoreboard slots of a warp; `wait` is a bit mask over them."""
BARRIERS = 16
"""Barriers of a workgroup."""
PHASE_BARRIERS = 32
"""Transaction barriers of a workgroup. Other workgroups of the cluster can signal the first BARRIERS of them."""
MAX_WARPS = 64
"""Largest number of warps of a workgroup."""
MAX_CLUSTER = 16
"""Largest number of workgroups of a cluster (CUDA: 8, and 16 if the program asks for more than is portable)."""
WIDTH_BYTES = 32
"""Largest number of bytes per lane of a memory event."""
LATER = 1
"""`space` of a COMPUTE whose result comes later: its warp continues when all instructions have issued, and the result
clears `slot`. So pipes work beside each other for one warp (WGMMA, tcgen05, independent instructions). With 0 the warp
waits for the result."""
ARRIVE_ONLY = 1
"""`space` of a BARRIER whose warp is counted and continues (BAR.ARV). With 0 the warp waits."""
PHASE_ARRIVE = 2
"""`space` of a BARRIER that arrives at a transaction barrier (mbarrier): `slot` = its number, `work` = arrivals of a
phase, `cycles` = the set of workgroups at whose barriers it arrives (0 = its own), `row_stride` = bytes that loads of
other workgroups and copies from shared memory (SEND) bring in this phase. A phase is complete when all arrivals have
come, all these bytes have come, and no bulk load of the workgroup to the barrier is under way."""
PHASE_WAIT = 3
"""`space` of a BARRIER that waits until transaction barrier `slot` has completed `work` phases."""
CLUSTER_ARRIVE = 4
"""`space` of a BARRIER that arrives at the barrier of the cluster. A phase is complete when all warps have arrived."""
CLUSTER_WAIT = 5
"""`space` of a BARRIER that waits until the barrier of the cluster has completed `work` phases."""
BULK_BYTES = (1 << 20) - 1
"""Largest number of bytes of a bulk copy (PTX: the range of the transaction count)."""
BULK_ALIGN = 16
"""Bulk copies begin at multiples of this, and so do their rows (PTX)."""
LINE_BYTES = 128
SECTOR_BYTES = 32


class Kind(IntEnum):
    """Kind of an event."""

    LOAD = 0  # memory -> registers
    STORE = 1  # registers -> memory
    ATOMIC = 2  # read-modify-write at L2 that returns a value
    REDUCE = 3  # read-modify-write at L2 without a returned value
    ASYNC_COPY = 4  # global -> shared memory without registers (LDGSTS)
    BARRIER = 5  # workgroup barrier; slot = its number, work = threads expected (0 = all); see PHASE_ARRIVE
    COMPUTE = 6  # `count` instructions of one pipe
    WAIT = 7  # only waits for its `wait` mask (DEPBAR, s_waitcnt)
    EXIT = 8  # last event of every warp, after all its slots but its `slot`, which the next warp in its place inherits
    BULK = 9  # one instruction copies a box of rows between global and shared memory (TMA); see Bulk


class Bulk(IntEnum):
    """`space` of a BULK. Rows: `work`, of `stride` bytes, `row_stride` bytes apart, from `base` on.

    `slot` (required) is cleared when all data have arrived, or all stored lines are acknowledged. `inner` of a LOAD:
    transaction barrier whose phase ends only after the copy; NO_SLOT = none. `cycles` of a LOAD: set of workgroups that
    get the data (multicast), each at its own transaction barrier `inner`; 0 = its own workgroup.
    """

    LOAD = 0  # global -> shared memory, past L1
    STORE = 1  # shared -> global memory
    REDUCE = 2  # shared memory is added to global memory at L2
    SEND = 3  # shared memory -> shared memory of the one workgroup in `cycles`, at its transaction barrier `inner`


class Space(IntEnum):
    """Address space of a memory event."""

    GLOBAL = 0
    LOCAL = 1  # per-thread spill space in global memory
    SHARED = 2  # on-chip shared memory (LDS); makes no sector requests
    REMOTE = 3  # shared memory of the one workgroup in `cycles`; makes no sector requests


class Cache(IntEnum):
    """Cache policy of a global access."""

    DEFAULT = 0  # L1 and L2
    BYPASS_L1 = 1  # .CG, STRONG.GPU, volatile
    STREAM = 2  # evict first (.CS, .EF)
    UNCACHED = 3  # neither L1 nor L2 (system-scope, T3 output stores)


class Pipe(IntEnum):
    """Execution pipe of a COMPUTE event."""

    ALU = 0  # integer, logic, conversion, move, special registers
    FMA = 1  # fp32 and packed fp16
    FP64 = 2
    SFU = 3  # transcendental
    TENSOR = 4  # matrix unit; work = multiply-accumulates of fp16 that take as long; row_stride = real number, 0 = work
    BRANCH = 5
    UNIFORM = 6  # scalar / uniform data path, constant loads


EVENT = np.dtype(
    [
        ("kind", "u1"),  # Kind
        (
            "space",
            "u1",
        ),  # Space (memory events); of a BARRIER: 0 or ARRIVE_ONLY to CLUSTER_WAIT; Bulk; COMPUTE: 0, LATER
        ("cache", "u1"),  # Cache (memory events)
        ("pipe", "u1"),  # Pipe (COMPUTE)
        ("width_bytes", "u1"),  # bytes per lane: 1 to WIDTH_BYTES
        ("slot", "u1"),  # scoreboard slot, cleared by data or acknowledgement; NO_SLOT; or number of a BARRIER
        ("inner", "u1"),  # lane pattern, see above
        ("array", "u1"),  # 0 in files; in the simulator: events with one number move together between workgroups
        ("stride", "i4"),  # bytes between neighbouring active lanes of a row
        ("count", "u4"),  # warp instructions folded into this row
        (
            "cycles",
            "u4",
        ),  # COMPUTE: least core clocks from first issue to the last result that a later event needs; a set, see above
        (
            "work",
            "u4",
        ),  # TENSOR: multiply-accumulates of the warp, see Pipe; BARRIER: threads expected, see above; BULK: rows
        ("pc", "u4"),  # program counter of the first instruction
        ("pad", "u4"),
        ("row_stride", "i8"),  # bytes between rows of a two-level pattern; TENSOR: see Pipe
        ("base", "u8"),  # address of the first active lane, or index into `addresses`
        ("mask", "u8"),  # active lanes
        ("wait", "u8"),  # slots that must be empty before this event issues
    ]
)
"""One warp-level event: 64 bytes in memory, stored column by column in files."""

assert EVENT.itemsize == 64
