"""The memory columns of a line: width, address mode and the addresses of the lanes.

Every read function returns the position after the text that it read, or the negative number of a Trouble.
"""

import numpy as np

from tracer.accelsim.instruction import BULK_LANES_MAX, Trouble
from tracer.accelsim.lanes import find_pattern
from tracer.accelsim.text import LOWER_X, read_address, read_decimal, read_hex, skip_blanks
from tracer.accelsim.unusual import Unusual, count_unusual
from tracer.coalesce import active_lanes
from tracer.compile.jit import compiled
from traces.schema import EXPLICIT, PLAIN_STRIDE, SECTOR_BYTES

WIDTH_MAX = 1024
BULK_LANE_BYTES = 16
LIST, STRIDE, DELTA, BULK_LIST, BULK_DELTA = 0, 1, 2, 3, 4
BAD_WIDTH, BAD_MODE, BAD_ADDRESS = -int(Trouble.BAD_WIDTH), -int(Trouble.BAD_MODE), -int(Trouble.BAD_ADDRESS)
TOO_FEW_ADDRESSES = -int(Trouble.TOO_FEW_ADDRESSES)
BULK_BARRIER, BULK_MULTICAST, BULK_BYTES = (
    -int(Trouble[name]) for name in ("BULK_BARRIER", "BULK_MULTICAST", "BULK_BYTES")
)
BULK_MODE, BULK_COUNT, BULK_SIZE = (-int(Trouble[name]) for name in ("BULK_MODE", "BULK_COUNT", "BULK_SIZE"))


@compiled
def store_pattern(instruction, n, scan):
    """Store the pattern of the first n addresses of scan.lanes. The scanner stores explicit lists and their base."""
    inner, stride, row_stride = find_pattern(scan.lanes, n)
    instruction.inner = inner
    instruction.stride = stride
    instruction.row_stride = row_stride
    instruction.lanes = n
    instruction.base = scan.lanes[0]


@compiled
def is_contiguous(mask):
    """True if there is no gap between the active lanes."""
    mask = np.int64(mask)
    return mask & (mask + (mask & -mask)) == 0


@compiled
def read_stride(data, pos, end, instruction, n, scan):
    """Read base and stride."""
    base, pos = read_hex(data, pos, end)
    if pos < 0:
        return BAD_ADDRESS
    stride, pos = read_decimal(data, pos, end)
    if pos < 0 or stride >= 1 << 31 or stride < -(1 << 31):
        return BAD_ADDRESS
    instruction.base = np.uint64(base)
    instruction.stride = stride if n > 1 else 0
    instruction.row_stride = 0
    instruction.inner = PLAIN_STRIDE
    instruction.lanes = n
    if n > 1 and stride != 0 and not is_contiguous(instruction.mask):
        count_unusual(scan, Unusual.GAP_STRIDE, scan.line)
    return pos


@compiled
def read_list(data, pos, end, instruction, n, scan):
    """Read one address per active lane."""
    for k in range(n):
        address, pos = read_address(data, pos, end)
        if pos < 0:
            return TOO_FEW_ADDRESSES
        scan.lanes[k] = np.uint64(address)
    store_pattern(instruction, n, scan)
    return pos


@compiled
def read_deltas(data, pos, end, instruction, n, scan):
    """Read the base, then for each further active lane its distance from the lane before."""
    base, pos = read_hex(data, pos, end)
    if pos < 0:
        return BAD_ADDRESS
    scan.lanes[0] = np.uint64(base)
    for k in range(1, n):
        delta, pos = read_decimal(data, pos, end)
        if pos < 0:
            return TOO_FEW_ADDRESSES
        scan.lanes[k] = scan.lanes[k - 1] + np.uint64(delta)
    store_pattern(instruction, n, scan)
    return pos


@compiled
def read_addresses(data, pos, end, instruction, scan):
    """Read the memory width and, if it is not zero, the addresses of the lanes."""
    width, pos = read_decimal(data, pos, end)
    if pos < 0 or width < 0 or width > WIDTH_MAX:
        return BAD_WIDTH
    instruction.lanes = 0
    if width == 0:
        return pos
    mode, pos = read_decimal(data, pos, end)
    if pos < 0:
        return BAD_MODE
    n = active_lanes(np.uint64(instruction.mask))
    if mode == STRIDE:
        return read_stride(data, pos, end, instruction, n, scan)
    if mode == DELTA:
        return read_deltas(data, pos, end, instruction, n, scan)
    if mode == LIST:
        return read_list(data, pos, end, instruction, n, scan)
    return BAD_MODE


@compiled
def add_bulk_row(instruction, address, row_bytes, scan):
    """Add contiguous bytes of a bulk copy as lanes of 16 bytes. False if there are too many lanes.

    A last lane of fewer bytes lies in their sector, if they are in one.
    """
    if instruction.lanes + (row_bytes + BULK_LANE_BYTES - 1) // BULK_LANE_BYTES > BULK_LANES_MAX:
        return False
    for offset in range(0, row_bytes, BULK_LANE_BYTES):
        lane = address + np.uint64(offset)
        place = np.int64(lane % np.uint64(SECTOR_BYTES))
        over = place + BULK_LANE_BYTES - SECTOR_BYTES
        if over > 0 and place + row_bytes - offset <= SECTOR_BYTES:
            lane -= np.uint64(over)
        scan.lanes[instruction.lanes] = lane
        instruction.lanes += 1
    return True


@compiled
def read_bulk(data, pos, end, instruction, scan):
    """Read a bulk copy: bytes of a transfer, barrier, multicast [CTAs], bytes, bytes outside, mode, transfers.

    Only transfers inside the tensor are listed. Earlier tracers write only a width of 0.
    """
    width, pos = read_decimal(data, pos, end)
    if pos < 0 or width < 0 or width > WIDTH_MAX:
        return BAD_WIDTH
    instruction.lanes = 0
    instruction.barrier = instruction.bytes = instruction.multicast = 0
    barrier_at = skip_blanks(data, pos, end)
    if width == 0 and (barrier_at + 1 >= end or data[barrier_at + 1] != LOWER_X):
        if instruction.mask:
            count_unusual(scan, Unusual.NO_TRANSFERS, scan.line)
        return pos
    pos = read_barrier(data, pos, end, instruction)
    if pos < 0:
        return pos
    _, pos = read_decimal(data, pos, end)
    outside, pos = read_decimal(data, pos, end)
    if pos < 0:
        return BULK_BYTES
    mode, pos = read_decimal(data, pos, end)
    if pos < 0 or mode not in (BULK_LIST, BULK_DELTA):
        return BULK_MODE
    base = 0
    if mode == BULK_DELTA:
        base, pos = read_hex(data, pos, end)
    count, pos = read_decimal(data, pos, end)
    if pos < 0 or count < 0:
        return BULK_COUNT
    instruction.bytes = count * width + outside
    if mode == BULK_DELTA and count == 1 and base == 0:
        count_unusual(scan, Unusual.LOST_BASE, scan.line)
        return pos
    return read_transfers(data, pos, end, instruction, scan, mode, base, count, width)


@compiled
def read_barrier(data, pos, end, instruction):
    """Read the barrier of a bulk copy, and the workgroups that get its data."""
    barrier, pos = read_hex(data, pos, end)
    if pos < 0:
        return BULK_BARRIER
    multicast, pos = read_decimal(data, pos, end)
    ranks = 0
    if multicast:
        ranks, pos = read_hex(data, pos, end)
    if pos < 0:
        return BULK_MULTICAST
    instruction.barrier = barrier & 0xFFFFFFFF
    instruction.multicast = ranks & 0xFFFFFFFF
    return pos


@compiled
def read_transfers(data, pos, end, instruction, scan, mode, base, count, width):
    """Read the addresses of a bulk copy's transfers. Those that follow each other in memory become one row."""
    instruction.inner = EXPLICIT
    instruction.stride = instruction.row_stride = 0
    address, first, row_bytes = base, base, 0
    for k in range(count):
        if mode == BULK_LIST:
            address, pos = read_address(data, pos, end)
        elif k > 0:
            delta, pos = read_decimal(data, pos, end)
            address += delta
        if pos < 0:
            return TOO_FEW_ADDRESSES
        if address != first + row_bytes:
            if not add_bulk_row(instruction, np.uint64(first), row_bytes, scan):
                return BULK_SIZE
            first, row_bytes = address, 0
        row_bytes += width
    if not add_bulk_row(instruction, np.uint64(first), row_bytes, scan):
        return BULK_SIZE
    return pos
