"""Places, boxes and values of the transaction barriers in texts of pipelines, and what their warps wait for."""

from traces.schema import PHASE_WAIT, Kind

FULL, EMPTY = 0x400, 0x500
"""Places of the barriers of the first stage in shared memory."""
MATRIX = 0x7F4000000000
ROWS, ROW_BYTES, PITCH = 4, 64, 4096
"""Of a box."""
EXIT = "0090 ffffffff 0 EXIT 0 0 0 0 NoVal "


def coded(count):
    """The value that makes a barrier of `count` arrivals."""
    return f"{(2 * (0x100000 - count)) & 0xFFFFFFFF:x}"


def box_columns(tile):
    """Columns of a TMA load from the address mode on: a box of ROWS rows in transfers of 16 bytes."""
    row = ROW_BYTES // 16
    deltas = ["16"] * (row - 1)
    steps = " ".join([*deltas, *([str(PITCH - ROW_BYTES + 16), *deltas] * (ROWS - 1))])
    return f"4 {MATRIX + tile * ROW_BYTES:#x} {ROWS * row} {steps} 0 0 NoVal "


def waits_of(events):
    """(barrier, phases) of each wait."""
    chosen = events[(events["kind"] == Kind.BARRIER) & (events["space"] == PHASE_WAIT)]
    return [(int(event["slot"]), int(event["work"])) for event in chosen]
