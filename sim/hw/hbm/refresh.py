"""All-bank refresh of one channel.

One REF is due every tREFI. While requests wait, at most `refresh_postpone` refreshes are postponed. Then a refresh is
urgent: no column command or activate issues until all banks are precharged (PREA), tRP has passed and REF is issued. An
idle channel refreshes as soon as a refresh is due. Idle time needs no wake-ups: refreshes of idle time are added at the
next call, each at the time at which it was due.
"""

from sim.hw.hbm.lists import row_closed
from sim.hw.hbm.log import NONE, Command, log_row_command
from sim.hw.hbm.timing import precharge
from sim.hw.request import NEVER
from tracer.compile.jit import compiled


@compiled
def urgent_ps(channel):
    """When a refresh becomes urgent, NEVER without refresh. Reads: channel."""
    if channel.tREFI_ps == 0:
        return NEVER
    return channel.refresh_due_ps + channel.refresh_postpone * channel.tREFI_ps


@compiled
def refresh_ready_ps(channel, from_ps):
    """Earliest time, not before `from_ps`, of the next command of a refresh: PREA while a bank is open, then REF.

    Reads: channel.
    """
    ready_ps = max(from_ps, channel.row_ps)
    for bank_index in range(channel.banks):
        bank = channel.bank[bank_index]
        if channel.open_banks == 0:
            ready_ps = max(ready_ps, bank.activate_ps)
        elif bank.open_row >= 0:
            ready_ps = max(ready_ps, bank.precharge_ps)
    return ready_ps


@compiled
def issue_refresh(channel, now_ps, log):
    """PREA while a bank is open, else REF. It must be legal now. Writes: channel, log."""
    if channel.open_banks > 0:
        for bank_index in range(channel.banks):
            if channel.bank[bank_index].open_row >= 0:
                precharge(channel, channel.bank[bank_index], now_ps)
                row_closed(channel, bank_index)
        log_row_command(channel, log, now_ps, Command.PREA, NONE, NONE)
        channel.column_wake_ps = 0
        channel.row_wake_ps = 0
        return
    for bank_index in range(channel.banks):
        channel.bank[bank_index].activate_ps = now_ps + channel.tRFC_ps
    channel.row_ps = now_ps + channel.period_ps
    channel.refreshes += 1
    channel.refresh_due_ps += channel.tREFI_ps
    log_row_command(channel, log, now_ps, Command.REF, NONE, NONE)


@compiled
def settle_idle_refreshes(channel, now_ps, log):
    """Issue the refreshes that an empty channel made before `now_ps`. Writes: channel, log."""
    while channel.refresh_due_ps < now_ps:
        ready_ps = refresh_ready_ps(channel, channel.refresh_due_ps)
        if ready_ps >= now_ps:
            return
        issue_refresh(channel, ready_ps, log)
