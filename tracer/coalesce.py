"""The coalescer: turns the lane addresses of one warp event into line requests. No other file does this.

A memory event touches bytes. The memory system sees 128-byte lines with a mask of 32-byte sectors. Lanes are read in
lane order, so the lines are in the order in which the hardware's coalescer first touches them.

Addresses are 64 bits wide and wrap around. A line is an int64 with the same bits, a multiple of 128.
"""

import numpy as np

from tracer.compile.jit import compiled
from tracer.compile.ones import ones
from traces.schema import EXPLICIT, LINE_BYTES, SECTOR_BYTES, Kind, Space

LINES_PER_EVENT = 128
"""Most lines of one event: 64 lanes, each of which may touch two lines. The size of the output arrays."""

LOWEST = -(1 << 63)
SECTOR_SHIFT = 5
WHOLE_SECTOR = (1 << SECTOR_BYTES) - 1
STORE = int(Kind.STORE)
LAST_MEMORY_KIND = int(Kind.ASYNC_COPY)
SHARED = int(Space.SHARED)


@compiled
def active_lanes(mask):
    """Number of set bits of a lane mask."""
    return ones(mask)


@compiled
def makes_requests(event):
    """True for events that go to the memory system: global or local accesses with at least one active lane."""
    return event.kind <= LAST_MEMORY_KIND and event.space < SHARED and event.mask != 0


@compiled
def coalesce(event, addresses, line_out, sectors_out, full_out):
    """`coalesce_at` with the event's own base."""
    return coalesce_at(event, np.int64(event.base), addresses, line_out, sectors_out, full_out)


@compiled
def coalesce_at(event, base, addresses, line_out, sectors_out, full_out):
    """Line requests of one memory event.

    The function reads runs of adjacent bytes (a row of neighbouring lanes, or one lane). It passes the arrays to few
    functions on purpose: passing an array costs more than the arithmetic here.

    Args:
        event: record of `traces.schema.EVENT`, a memory event (any number of active lanes, 0 included).
        base: used instead of the event's own base.
        addresses: u8[:], explicit lane addresses of the workgroup.
        line_out: i8[LINES_PER_EVENT], receives the distinct lines in order of the first lane that touches them.
        sectors_out: u1[LINES_PER_EVENT], receives the touched sectors of each line, bit 0 = lowest address.
        full_out: u1[LINES_PER_EVENT], receives for a STORE the sectors of which all 32 bytes are written; else the same
            as `sectors_out`.

    Returns:
        Number of lines.
    """
    lanes = active_lanes(event.mask)
    lane, n, highest = 0, 0, LOWEST
    while lane < lanes:
        line, low, end, run_lanes = next_run(event, base, addresses, lane, lanes)
        lane += run_lanes
        while end > 0:
            sectors, full = sector_masks(low, min(end, LINE_BYTES))
            i = n if line > highest else find_line(line, n, line_out)
            if i == n:
                line_out[n], sectors_out[n], full_out[n] = line, sectors, full
                n += 1
                highest = max(highest, line)
            else:
                sectors_out[i] |= sectors
                full_out[i] |= full
            line, low, end = line + LINE_BYTES, 0, end - LINE_BYTES
    if event.kind == STORE:
        complete_full_sectors(event, base, addresses, n, line_out, sectors_out, full_out)
    else:
        for i in range(n):
            full_out[i] = sectors_out[i]
    return n


@compiled
def most_lanes_at_one_address(event, base, addresses, line):
    """Largest number of active lanes that access one address of `line`; 1 if no lane begins in the line.

    Args: as `coalesce_at`; line: one of its lines.
    """
    lanes = active_lanes(event.mask)
    most = 1
    for lane in range(lanes):
        address = lane_address(event, base, addresses, lane)
        if address & -LINE_BYTES == line:
            same = 0
            for other in range(lanes):
                same += lane_address(event, base, addresses, other) == address
            most = max(most, same)
    return most


@compiled
def next_run(event, base, addresses, lane, lanes):
    """The run of adjacent bytes that begins with active lane number `lane`.

    Returns:
        (line, first byte, end, lanes in the run): first and end are offsets from the line. The end may be beyond it.
    """
    if event.inner == EXPLICIT:
        start = np.int64(addresses[base + lane])
        taken, run_bytes = listed_run(addresses, base + lane, lanes - lane, event.width_bytes)
    else:
        row = np.int64(np.uint32(lane) // np.uint32(event.inner))
        column = lane - row * event.inner
        start = base + column * event.stride + row * event.row_stride
        row_left = min(lanes - lane, event.inner - column)
        if event.stride == event.width_bytes:
            taken, run_bytes = row_left, row_left * event.width_bytes
        else:
            taken, run_bytes = (row_left if event.stride == 0 else 1), np.int64(event.width_bytes)
    line = start & -LINE_BYTES
    return line, start - line, start - line + run_bytes, taken


@compiled
def listed_run(addresses, first, lanes, width_bytes):
    """Number of listed lanes, from `first`, that are adjacent in memory: (lanes, bytes)."""
    k = 1
    while k < lanes and np.int64(addresses[first + k]) == np.int64(addresses[first]) + k * width_bytes:
        k += 1
    return k, np.int64(k * width_bytes)


@compiled
def sector_masks(low, high):
    """Masks of the sectors of a line that bytes [low, high) touch, and that they fill completely."""
    touched = (2 << (high - 1 >> SECTOR_SHIFT)) - (1 << (low >> SECTOR_SHIFT))
    first_full, end_full = low + SECTOR_BYTES - 1 >> SECTOR_SHIFT, high >> SECTOR_SHIFT
    return touched, (1 << end_full) - (1 << first_full) if end_full > first_full else 0


@compiled
def find_line(line, n, line_out):
    """Index of `line` in the first n entries, searched from the newest; n if it is not there."""
    for i in range(n - 1, -1, -1):
        if line_out[i] == line:
            return i
    return n


@compiled
def complete_full_sectors(event, base, addresses, n, line_out, sectors_out, full_out):
    """Add the sectors that several runs fill only together."""
    for i in range(n):
        for s in range(LINE_BYTES // SECTOR_BYTES):
            bit = 1 << s
            if not (sectors_out[i] & ~full_out[i]) & bit:
                continue
            if touched_bytes(event, base, addresses, line_out[i] + s * SECTOR_BYTES) == WHOLE_SECTOR:
                full_out[i] |= bit


@compiled
def touched_bytes(event, base, addresses, sector):
    """Bit mask of the bytes that lanes touch, of the 32 bytes at address `sector`."""
    touched = 0
    width_bytes = np.int64(event.width_bytes)
    span = (1 << width_bytes) - 1
    for k in range(active_lanes(event.mask)):
        offset = lane_address(event, base, addresses, k) - sector
        if offset > -width_bytes and offset < SECTOR_BYTES:
            touched |= span << offset if offset >= 0 else span >> -offset
    return touched & WHOLE_SECTOR


@compiled
def lane_address(event, base, addresses, k):
    """Byte address (int64, wrapping) of the k-th active lane."""
    if event.inner == EXPLICIT:
        return np.int64(addresses[base + k])
    row = np.int64(np.uint32(k) // np.uint32(event.inner))
    return base + (k - row * event.inner) * event.stride + row * event.row_stride
