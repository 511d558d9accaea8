"""DRAM timing of one channel: when a command may issue, and how long later commands must wait for it.

Each bank, bank group and channel stores the earliest time of the next command of each kind. A command raises these
times (JESD235: same bank, same group `_L`, anywhere `_S`). The rules are the rows of `tests/support/hbm_checker`. It
checks every log against them without this file.
"""

from sim.hw.hbm.log import Command, log_row_command
from sim.hw.hbm.nmc import update_issued, update_ready_ps
from sim.hw.request import Op
from tracer.compile.jit import compiled

FAW_ACTIVATES = 4
"""Activates that fit in one tFAW window."""


@compiled
def column_ready_ps(channel, bank, op):
    """Earliest column command for `op` on the open row of `bank`. Reads: channel, bank."""
    group = channel.group[bank.group]
    if op == Op.READ:
        return max(bank.read_ps, group.read_ps, channel.read_ps)
    ready_ps = max(bank.write_ps, group.write_ps, channel.write_ps)
    if op == Op.UPDATE:
        return max(ready_ps, update_ready_ps(channel, bank))
    return ready_ps


@compiled
def activate_ready_ps(channel, bank):
    """Earliest ACT on the closed `bank`. Reads: channel, bank."""
    window_ps = channel.activates_ps[channel.activate_next] + channel.tFAW_ps
    return max(bank.activate_ps, channel.group[bank.group].activate_ps, channel.activate_ps, window_ps)


@compiled
def read_issued(channel, bank, now_ps):
    """Record a read column issued at `now_ps`. Returns the end of its data on the bus. Writes: channel, bank."""
    group = channel.group[bank.group]
    bank.precharge_ps = max(bank.precharge_ps, now_ps + channel.tRTP_ps)
    group.read_ps = now_ps + channel.tCCD_L_ps
    channel.read_ps = max(channel.read_ps, now_ps + channel.tCCD_S_ps)
    channel.write_ps = max(channel.write_ps, now_ps + channel.tRTW_ps)
    return now_ps + channel.tCL_ps + channel.tBURST_ps


@compiled
def write_issued(channel, bank, op, now_ps):
    """Record a write or update column issued at `now_ps`. Returns the end of its data on the bus.

    Writes: channel, bank.
    """
    group = channel.group[bank.group]
    end_ps = now_ps + channel.tWL_ps + channel.tBURST_ps
    bank.precharge_ps = max(bank.precharge_ps, end_ps + channel.tWR_ps)
    group.write_ps = now_ps + channel.tCCD_L_ps
    group.read_ps = max(group.read_ps, end_ps + channel.tWTR_L_ps)
    channel.write_ps = max(channel.write_ps, now_ps + channel.tCCD_S_ps)
    channel.read_ps = max(channel.read_ps, end_ps + channel.tWTR_S_ps)
    if op == Op.UPDATE:
        update_issued(channel, bank, now_ps)
    return end_ps


@compiled
def activate(channel, bank, bank_index, row, now_ps, log):
    """Issue ACT: open `row`. Writes: channel, bank, log."""
    bank.open_row = row
    bank.read_ps = now_ps + channel.tRCD_rd_ps
    bank.write_ps = now_ps + channel.tRCD_wr_ps
    bank.precharge_ps = now_ps + channel.tRAS_ps
    bank.activate_ps = now_ps + channel.tRC_ps
    channel.group[bank.group].activate_ps = now_ps + channel.tRRD_L_ps
    channel.activate_ps = now_ps + channel.tRRD_S_ps
    channel.activates_ps[channel.activate_next] = now_ps
    channel.activate_next = (channel.activate_next + 1) % FAW_ACTIVATES
    channel.row_ps = now_ps + channel.period_ps
    channel.open_banks += 1
    channel.acts += 1
    log_row_command(channel, log, now_ps, Command.ACT, bank_index, row)


@compiled
def precharge(channel, bank, now_ps):
    """Close the row of one bank. The caller logs the command, PRE or PREA. Writes: channel, bank."""
    bank.open_row = -1
    bank.activate_ps = max(bank.activate_ps, now_ps + channel.tRP_ps)
    channel.row_ps = now_ps + channel.period_ps
    channel.open_banks -= 1
    channel.precharges += 1
