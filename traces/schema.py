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
MAX_WARPS = 64
"""Largest number of warps of a workgroup."""
WIDTH_BYTES = 32
"""Largest number of bytes per lane of a memory event."""
ARRIVE_ONLY = 1
"""`space` of a BARRIER whose warp is counted and continues (BAR.ARV). With 0 the warp waits."""
LINE_BYTES = 128
SECTOR_BYTES = 32


class Kind(IntEnum):
    """Kind of an event."""

    LOAD = 0  # memory -> registers
    STORE = 1  # registers -> memory
    ATOMIC = 2  # read-modify-write at L2 that returns a value
    REDUCE = 3  # read-modify-write at L2 without a returned value
    ASYNC_COPY = 4  # global -> shared memory without registers (LDGSTS, TMA load)
    BARRIER = 5  # workgroup barrier; slot = its number, work = threads expected (0 = all), space: see ARRIVE_ONLY
    COMPUTE = 6  # `count` instructions of one pipe
    WAIT = 7  # only waits for its `wait` mask (DEPBAR, s_waitcnt)
    EXIT = 8  # last event of every warp


class Space(IntEnum):
    """Address space of a memory event."""

    GLOBAL = 0
    LOCAL = 1  # per-thread spill space in global memory
    SHARED = 2  # on-chip shared memory (LDS); makes no sector requests


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
    TENSOR = 4  # matrix unit; work = multiply-accumulates of the warp
    BRANCH = 5
    UNIFORM = 6  # scalar / uniform data path, constant loads


EVENT = np.dtype(
    [
        ("kind", "u1"),  # Kind
        ("space", "u1"),  # Space (memory events); ARRIVE_ONLY or 0 of a BARRIER
        ("cache", "u1"),  # Cache (memory events)
        ("pipe", "u1"),  # Pipe (COMPUTE)
        ("width_bytes", "u1"),  # bytes per lane: 1 to WIDTH_BYTES
        ("slot", "u1"),  # scoreboard slot, cleared by data or acknowledgement; NO_SLOT; or number of a BARRIER
        ("inner", "u1"),  # lane pattern, see above
        ("array", "u1"),  # 0 in files; in the simulator: events with one number move together between workgroups
        ("stride", "i4"),  # bytes between neighbouring active lanes of a row
        ("count", "u4"),  # warp instructions folded into this row
        ("cycles", "u4"),  # COMPUTE: least core clocks from first issue to the last result that a later event needs
        ("work", "u4"),  # COMPUTE on TENSOR: multiply-accumulates by the whole warp; BARRIER: threads expected
        ("pc", "u4"),  # program counter of the first instruction
        ("pad", "u4"),
        ("row_stride", "i8"),  # bytes between rows of a two-level pattern
        ("base", "u8"),  # address of the first active lane, or index into `addresses`
        ("mask", "u8"),  # active lanes
        ("wait", "u8"),  # slots that must be empty before this event issues
    ]
)
"""One warp-level event: 64 bytes in memory, stored column by column in files."""

assert EVENT.itemsize == 64
