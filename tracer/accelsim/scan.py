"""The line scanner. It reads the bytes of a grouped trace into the instruction tables, one workgroup after the other.

`scan_lines` is called again with more data until it reports that a workgroup is complete. It never reads data before
the current line, so the caller can discard earlier data.
"""

import numpy as np

from tracer.accelsim.instruction import BULK_LANES_MAX, Outcome, Trouble
from tracer.accelsim.line import read_instruction
from tracer.accelsim.text import RETURN, find_line_end, read_after, read_decimal, skip_blanks
from tracer.accelsim.unusual import Unusual, count_unusual
from tracer.compile.jit import compiled
from traces.schema import EXPLICIT

BEGIN = np.frombuffer(b"#BEGIN_TB", np.uint8)
END = np.frombuffer(b"#END_TB", np.uint8)
THREAD_BLOCK = np.frombuffer(b"thread block =", np.uint8)
WARP_WORD = np.frombuffer(b"warp =", np.uint8)
INSTS = np.frombuffer(b"insts =", np.uint8)
CLUSTER = np.frombuffer(b"cluster ", np.uint8)
RANK = np.frombuffer(b"cluster rank =", np.uint8)
HASH, COMMA, BLANK, LOWER_C, LOWER_I, LOWER_T, LOWER_W, LOWER_L = (ord(letter) for letter in "#, citwl")

MORE, WORKGROUP, GROW, ERROR = (int(outcome) for outcome in Outcome)
NOT_A_LINE, OUTSIDE_BLOCK, NO_WARP = int(Trouble.NOT_A_LINE), int(Trouble.OUTSIDE_BLOCK), int(Trouble.NO_WARP)
BEGIN_IN_BLOCK, END_OUTSIDE, NO_BLOCK = int(Trouble.BEGIN_IN_BLOCK), int(Trouble.END_OUTSIDE), int(Trouble.NO_BLOCK)
BAD_BLOCK, BLOCK_OUTSIDE_GRID = int(Trouble.BAD_BLOCK), int(Trouble.BLOCK_OUTSIDE_GRID)
BAD_WARP, WARP_TOO_HIGH, WARP_TWICE = int(Trouble.BAD_WARP), int(Trouble.WARP_TOO_HIGH), int(Trouble.WARP_TWICE)
BAD_COUNT, WRONG_COUNT = int(Trouble.BAD_COUNT), int(Trouble.WRONG_COUNT)
SECOND_BLOCK = int(Trouble.SECOND_BLOCK)
FINE, DONE = 0, -1


@compiled
def fail(scan, trouble, pos):
    """Store the trouble of the current line, which begins at `pos`."""
    scan.error = trouble
    scan.error_line = scan.line
    scan.error_pos = pos
    return ERROR


@compiled
def close_warp(scan, warps):
    """End the current warp. False if its number of instructions is not the declared number."""
    if not scan.open_warp:
        return True
    scan.open_warp = 0
    warp = warps[scan.n_warps - 1]
    if warp.declared < 0 or scan.n_instructions - warp.first == warp.declared:
        return True
    scan.error = WRONG_COUNT
    scan.error_line = warp.line
    return False


@compiled
def start_block(data, pos, end, scan):
    """Read `thread block = x,y,z`."""
    if scan.block >= 0:
        return SECOND_BLOCK
    index, weight = 0, 1
    for axis in range(3):
        comma = pos
        while axis < 2 and comma < end and data[comma] != COMMA:
            comma += 1
        number, after = read_decimal(data, pos, comma if axis < 2 else end)
        if after < 0 or number < 0:
            return BAD_BLOCK
        size = scan.grid_x if axis == 0 else (scan.grid_y if axis == 1 else scan.grid_z)
        if number >= size:
            return BLOCK_OUTSIDE_GRID
        index += weight * number
        weight *= size
        pos = comma + 1
    scan.block = index
    scan.block_line = scan.line
    scan.rank = -1
    return FINE


@compiled
def start_warp(data, pos, end, scan, warps):
    """Read `warp = n`."""
    if scan.block < 0:
        return NO_BLOCK
    index, after = read_decimal(data, pos, end)
    if after < 0 or index < 0:
        return BAD_WARP
    if index >= scan.warps:
        return WARP_TOO_HIGH
    for k in range(scan.n_warps):
        if warps[k].index == index:
            return WARP_TWICE
    warp = warps[scan.n_warps]
    warp.index = index
    warp.first = scan.n_instructions
    warp.declared = -1
    warp.line = scan.line
    scan.n_warps += 1
    scan.open_warp = 1
    return FINE


@compiled
def header_line(data, pos, end, scan, warps):
    """Read a line that is no instruction. Returns FINE, DONE at the end of a workgroup, or a Trouble."""
    first = data[pos]
    if first == HASH:
        if read_after(data, pos, end, BEGIN) >= 0:
            if scan.in_block:
                return BEGIN_IN_BLOCK
            scan.in_block = 1
            scan.block = -1
            scan.block_line = scan.line
            return FINE
        if read_after(data, pos, end, END) >= 0:
            return DONE if scan.in_block else END_OUTSIDE
        return FINE  # a remark
    if first == LOWER_C and read_after(data, pos, end, CLUSTER) >= 0:
        rank = read_after(data, pos, end, RANK)
        if rank >= 0:
            scan.rank, _ = read_decimal(data, rank, end)
        return FINE
    block = read_after(data, pos, end, THREAD_BLOCK) if first == LOWER_T else -1
    warp = read_after(data, pos, end, WARP_WORD) if first == LOWER_W else -1
    count = read_after(data, pos, end, INSTS) if first == LOWER_I else -1
    if block < 0 and warp < 0 and count < 0:
        return NOT_A_LINE
    if not scan.in_block:
        return OUTSIDE_BLOCK
    if block >= 0:
        return start_block(data, block, end, scan)
    if warp >= 0:
        return start_warp(data, warp, end, scan, warps)
    if not scan.open_warp:
        return NO_WARP
    declared, after = read_decimal(data, count, end)
    if after < 0 or declared < 0 or warps[scan.n_warps - 1].declared >= 0:
        return BAD_COUNT
    warps[scan.n_warps - 1].declared = declared
    return FINE


@compiled
def ends_warp(data, pos, end):
    """True for a line that may end a warp: #BEGIN_TB, #END_TB, thread block, warp."""
    if data[pos] == HASH:
        return read_after(data, pos, end, BEGIN) >= 0 or read_after(data, pos, end, END) >= 0
    return data[pos] in (LOWER_T, LOWER_W)


@compiled
def is_header(data, pos, end):
    """True unless the line begins like an instruction (a hexadecimal number)."""
    first = data[pos]
    if first == LOWER_C:
        return pos + 1 < end and data[pos + 1] == LOWER_L
    return first in (HASH, LOWER_T, LOWER_W, LOWER_I)


@compiled
def scan_header(data, pos, last, scan, warps):
    """Read one header line. Returns an Outcome; MORE = continue."""
    if ends_warp(data, pos, last) and not close_warp(scan, warps):
        scan.error_pos = pos
        return ERROR
    trouble = header_line(data, pos, last, scan, warps)
    if trouble == FINE:
        return MORE
    if trouble == DONE:
        scan.in_block = 0
        return WORKGROUP
    return fail(scan, trouble, pos)


@compiled
def store_addresses(instruction, scan, addresses):
    """Store the lane addresses of an instruction without a pattern."""
    instruction.base = np.uint64(scan.n_addresses)
    for k in range(instruction.lanes):
        addresses[scan.n_addresses + k] = scan.lanes[k]
    scan.n_addresses += instruction.lanes


@compiled
def scan_instruction(data, pos, last, scan, tables):
    """Read one instruction line. Returns MORE or ERROR."""
    if not scan.in_block:
        return fail(scan, OUTSIDE_BLOCK, pos)
    if not scan.open_warp or tables.warps[scan.n_warps - 1].declared < 0:
        return fail(scan, NO_WARP, pos)
    instruction = tables.instructions[scan.n_instructions]
    after = read_instruction(data, pos, last, instruction, scan, tables.warps[scan.n_warps - 1].index)
    if after < 0:
        return fail(scan, -after, pos)
    if instruction.lanes > 0 and instruction.inner == EXPLICIT:
        store_addresses(instruction, scan, tables.addresses)
    scan.n_instructions += 1
    return MORE


@compiled
def is_full(scan, tables):
    """True if the next line might not fit the tables."""
    return scan.n_instructions >= len(tables.instructions) or scan.n_addresses + BULK_LANES_MAX >= len(tables.addresses)


@compiled
def scan_line(data, newline, scan, tables):
    """Read the line data[scan.pos:newline]. Returns an Outcome; MORE = continue."""
    pos = skip_blanks(data, scan.pos, newline)
    last = newline
    while last > pos and (data[last - 1] == RETURN or data[last - 1] == BLANK):
        last -= 1
    scan.line += 1
    if newline > scan.pos and data[newline - 1] == RETURN:
        count_unusual(scan, Unusual.RETURN, scan.line)
    if last == pos:
        return MORE
    if is_header(data, pos, last):
        return scan_header(data, pos, last, scan, tables.warps)
    return scan_instruction(data, pos, last, scan, tables)


@compiled
def scan_lines(data, end, scan, tables):
    """Read lines of data[scan.pos:end] until the caller must act. Returns an Outcome.

    Args:
        data: u1[:], text that ends with a newline.
        scan: SCAN record, changed.
        tables: Tables, filled.
    """
    while scan.pos < end:
        if is_full(scan, tables):
            return GROW
        newline = find_line_end(data, scan.pos)
        outcome = scan_line(data, newline, scan, tables)
        if outcome == ERROR and scan.error in (WRONG_COUNT, SECOND_BLOCK):
            scan.line -= 1  # the line is correct: if the caller continues, it is read again
            return ERROR
        scan.pos = newline + 1
        if outcome != MORE:
            return outcome
    return MORE
