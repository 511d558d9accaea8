"""Addresses of local memory (LDL, STL). Tracers write the offset in the memory of a thread, the same for all lanes.

As in GPGPU-Sim, each word of 4 bytes of all threads of the grid lies together. From high to low, the parts of an
address are: 16 bytes of the offset, warp of the grid, word of the 16 bytes, lane, byte.

So accesses of 8 and 16 bytes touch 2 and 4 rows of 128 bytes, which are neighbours here. Their lanes are taken side by
side, since an event has one address per lane: the bytes of a full warp are the same (D58).
"""

import numpy as np

from tracer.accelsim.address_columns import store_pattern
from tracer.accelsim.instruction import LANES
from tracer.compile.jit import compiled
from traces.schema import LINE_BYTES, PLAIN_STRIDE

LOCAL_BASE = 1 << 50
"""Above all global addresses (49 bits)."""
WARPS_MAX = 1 << 27
"""Warps with a memory of their own. Addresses end below 2^52."""
WINDOW_BYTES = np.uint64(1 << 24)
"""Size of the windows of shared and of local memory in the generic address space. Offsets are smaller."""
THREAD_BYTES = 1 << 19
"""Most local memory of a thread (CUDA). Tracers count offsets down from the end of the window."""
WORD_BYTES, BLOCK_WORDS = 4, 4


@compiled
def spread_lanes(instruction, width, scan, warp_index):
    """Give each lane its address. Lanes that have their own addresses already keep them."""
    one_offset = instruction.inner == PLAIN_STRIDE and instruction.stride == 0
    if instruction.lanes == 0 or not one_offset or instruction.base >= np.uint64(WINDOW_BYTES):
        return
    offset = np.int64(instruction.base) % THREAD_BYTES
    warps = min(scan.grid_x * scan.grid_y * scan.grid_z * scan.warps, WARPS_MAX)
    warp = (scan.block * scan.warps + warp_index) % warps
    word = offset // WORD_BYTES
    row = (word // BLOCK_WORDS * warps + warp) * BLOCK_WORDS + word % BLOCK_WORDS
    first = LOCAL_BASE + row * LINE_BYTES + offset % WORD_BYTES
    n = 0
    for lane in range(LANES):
        if instruction.mask >> lane & 1:
            scan.lanes[n] = np.uint64(first + lane * max(width, WORD_BYTES))
            n += 1
    store_pattern(instruction, n, scan)
