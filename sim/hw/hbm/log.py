"""The command log of a channel. The independent constraint checker reads it."""

from enum import IntEnum

import numpy as np

from tracer.compile.jit import compiled


class Command(IntEnum):
    """DRAM commands. ACT, PRE, PREA and REF are row commands, RD, WR and UPD column commands."""

    ACT = 0
    PRE = 1
    PREA = 2  # all banks
    RD = 3
    WR = 4
    UPD = 5  # near-memory op-and-store
    REF = 6  # all banks


NONE = np.int64(-1)
"""Bank or row of a command that has none. It is typed: the functions below are then compiled for one signature."""

LOG = np.dtype(
    [
        ("time_ps", "i8"),  # clock edge of the command
        ("row", "i8"),  # -1 for PRE, PREA and REF
        ("line", "i8"),  # address of the request's line, -1 for row commands
        ("tag", "i4"),  # tag of the request, -1 for row commands
        ("bank", "i4"),  # group-major, -1 for PREA and REF
        ("column", "i4"),  # 32-byte column, -1 for row commands
        ("command", "u1"),  # Command
        ("stream", "u1"),  # Stream of the request
        ("pad", "u1", 2),
    ],
    align=True,
)


@compiled
def log_row_command(channel, log, now_ps, command, bank, row):
    """Append a row command. If the log is full, `channel.commands` still counts, so lost commands are visible.

    Writes: channel, log.
    """
    if channel.commands < log.size:
        entry = log[channel.commands]
        entry.time_ps = now_ps
        entry.command = command
        entry.bank = bank
        entry.row = row
        entry.line = -1
        entry.tag = -1
        entry.column = -1
        entry.stream = 0
    channel.commands += 1


@compiled
def log_column_command(channel, log, now_ps, command, atom, request):
    """Append a column command of `atom`, which belongs to `request`. Reads: atom, request. Writes: channel, log."""
    if channel.commands < log.size:
        entry = log[channel.commands]
        entry.time_ps = now_ps
        entry.command = command
        entry.bank = atom.bank
        entry.row = atom.row
        entry.line = request.line
        entry.tag = request.tag
        entry.column = atom.column
        entry.stream = request.stream
    channel.commands += 1
