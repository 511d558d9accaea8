"""FR-FCFS: selects the column command and the row command that a channel issues in this clock.

Column: the oldest atom among the row hits that may issue now. Row: for the oldest atom whose bank has no hits left in
the served directions: ACT if the bank is closed, PRE if another row is open. So a row with pending hits is never
closed. Both commands may issue in one clock. `sim.hw.hbm.modes` sets the served directions and the atom that goes
first because of its age.

`column_wake_ps` and `row_wake_ps` hold the earliest time at which a search may find a command. Every change that
allows an earlier command lowers them.
"""

import numpy as np

from sim.hw.fifo import fifo_full, fifo_push_copy
from sim.hw.hbm.bursts import keep_burst
from sim.hw.hbm.lists import HITS, MISSES, row_closed, row_opened
from sim.hw.hbm.log import NONE, Command, log_column_command, log_row_command
from sim.hw.hbm.modes import direction_of, keeps_for_aged, next_mode
from sim.hw.hbm.queue import MAX_ATOMS, READS, WRITES, column_moved, free_request, has_room
from sim.hw.hbm.timing import activate, activate_ready_ps, column_ready_ps, precharge, read_issued, write_issued
from sim.hw.request import NEVER, Op
from sim.spec import PagePolicy
from tracer.compile.jit import compiled


@compiled(inline=True)
def pick_column(channel, now_ps):
    """(slot of the oldest row hit that may issue now, or -1; earliest time of any other hit)."""
    chosen = -1
    order = NEVER
    wake_ps = NEVER
    for direction in range(2):
        if (channel.served >> direction) & 1 == 0:
            continue
        for place in range(channel.listed[HITS + direction]):
            bank_index = np.int64(channel.listed_bank[HITS + direction, place])
            bank = channel.bank[bank_index]
            slot = bank.head[HITS + direction]
            atom = channel.atom[slot]
            if atom.order > order or keeps_for_aged(channel, bank_index):
                continue
            ready_ps = column_ready_ps(channel, bank, np.int64(atom.op))
            if ready_ps > now_ps:
                wake_ps = min(wake_ps, ready_ps)
            else:
                chosen = slot
                order = atom.order
    return chosen, wake_ps


@compiled(inline=True)
def issue_column(channel, fifos, pool, now_ps, log):
    """Issue at most one column command. Answer a read after its last column.

    Returns:
        Slot of the request that this command completes (its content stays until the next is accepted), or -1.

    Writes: channel, fifos, pool, log.
    """
    if now_ps < channel.column_wake_ps:
        return -1
    slot, wake_ps = pick_column(channel, now_ps)
    if slot < 0:
        channel.column_wake_ps = wake_ps
        return -1
    atom = channel.atom[slot]
    stream = atom.stream
    direction = direction_of(atom)
    end_ps = _move_column(channel, atom, now_ps, log)
    channel.bus_end_ps = max(channel.bus_end_ps, end_ps)
    channel.bus_busy_ps += channel.tBURST_ps
    keep_burst(channel, stream, end_ps)
    channel.phase_left -= channel.column_entries
    channel.age_max_ps[stream] = max(channel.age_max_ps[stream], now_ps - channel.accepted_ps[atom.request])
    finished = column_moved(channel, slot, direction)
    if finished >= 0:
        if direction == READS:
            _answer(channel, fifos, pool, finished, end_ps + channel.extra_latency_ps)
        free_request(channel, finished)
    acts_next = _acts_next(channel, fifo_full(fifos[channel.out_fifo]))
    channel.column_wake_ps = now_ps + channel.period_ps if acts_next else min(channel.read_ps, channel.write_ps)
    return finished


@compiled(inline=True)
def _acts_next(channel, reads_blocked):
    """After a column command: may a request enter, or the served directions change, at the next clock?

    If not, nothing happens before the data bus is free again, an earlier row command or a new request.
    """
    if channel.free_atoms == MAX_ATOMS or channel.refused == 1 or reads_blocked:
        return True
    if has_room(channel, READS, channel.smallest[READS]) or has_room(channel, WRITES, channel.smallest[WRITES]):
        return True
    if channel.split == 0:
        return False
    return channel.read_held == 1 or next_mode(channel, channel.queued[READS]) != channel.mode


@compiled(inline=True)
def _move_column(channel, atom, now_ps, log):
    """Issue a column command: timing, log, counters. Returns the end of its data on the bus."""
    bank = channel.bank[atom.bank]
    request = channel.request[atom.request]
    if atom.op == Op.READ:
        log_column_command(channel, log, now_ps, Command.RD, atom, request)
        channel.read_columns[atom.stream] += channel.column_entries
        return read_issued(channel, bank, now_ps)
    if atom.op == Op.UPDATE:
        log_column_command(channel, log, now_ps, Command.UPD, atom, request)
        channel.update_columns[atom.stream] += channel.column_entries
    else:
        log_column_command(channel, log, now_ps, Command.WR, atom, request)
        channel.write_columns[atom.stream] += channel.column_entries
    return write_issued(channel, bank, np.int64(atom.op), now_ps)


@compiled(inline=True)
def _answer(channel, fifos, pool, slot, answer_ps):
    """Answer a read whose last column has issued. The answer becomes visible at `answer_ps`."""
    channel.read_latency_ps += answer_ps - channel.accepted_ps[slot]
    channel.reads_answered += 1
    to_dma = channel.data_fifo >= 0 and channel.request[slot].source < 0
    number = channel.dma_fifo if to_dma else channel.out_fifo
    fifo_push_copy(fifos[number], pool, channel.request[slot], answer_ps)


@compiled(inline=True)
def pick_row(channel, now_ps):
    """(slot of the oldest atom whose bank may take its row command now, or -1; earliest time of any other atom)."""
    chosen = -1
    order = NEVER
    wake_ps = NEVER
    serves = 3 if channel.split == 0 else 1 << channel.mode
    for direction in range(2):
        if (serves >> direction) & 1 == 0:
            continue
        for place in range(channel.listed[MISSES + direction]):
            bank_index = np.int64(channel.listed_bank[MISSES + direction, place])
            bank = channel.bank[bank_index]
            slot = bank.head[MISSES + direction]
            if channel.atom[slot].order > order:
                continue
            if bank.open_row < 0:
                ready_ps = activate_ready_ps(channel, bank)
            elif _has_hits(bank, serves) and not keeps_for_aged(channel, bank_index):
                continue
            else:
                ready_ps = bank.precharge_ps
            if ready_ps > now_ps:
                wake_ps = min(wake_ps, ready_ps)
            else:
                chosen = slot
                order = channel.atom[slot].order
    return chosen, wake_ps


@compiled
def _has_hits(bank, serves):
    reads = serves & 1 and bank.head[HITS + READS] >= 0
    writes = serves & 2 and bank.head[HITS + WRITES] >= 0
    return reads or writes


@compiled(inline=True)
def issue_row(channel, now_ps, log):
    """Issue at most one row command. Writes: channel, log."""
    if now_ps < channel.row_wake_ps:
        return
    if now_ps < channel.row_ps:
        channel.row_wake_ps = channel.row_ps
        return
    slot, wake_ps = pick_row(channel, now_ps)
    if slot >= 0:
        atom = channel.atom[slot]
        bank_index = np.int64(atom.bank)
        bank = channel.bank[bank_index]
        if bank.open_row >= 0:
            close_bank(channel, bank_index, now_ps, log)
        else:
            atom.opened = 1
            activate(channel, bank, bank_index, atom.row, now_ps, log)
            row_opened(channel, bank_index, atom.row)
            channel.column_wake_ps = min(channel.column_wake_ps, bank.read_ps, bank.write_ps)
        channel.row_wake_ps = now_ps + channel.period_ps
    elif channel.page == PagePolicy.CLOSED:
        close_idle_bank(channel, now_ps, wake_ps, log)
    else:
        channel.row_wake_ps = wake_ps


@compiled
def close_bank(channel, bank_index, now_ps, log):
    precharge(channel, channel.bank[bank_index], now_ps)
    log_row_command(channel, log, now_ps, Command.PRE, bank_index, NONE)
    row_closed(channel, bank_index)


@compiled
def close_idle_bank(channel, now_ps, wake_ps, log):
    """CLOSED page policy: precharge the first bank whose open row no queued atom hits."""
    for bank_index in range(channel.banks):
        bank = channel.bank[bank_index]
        if bank.open_row >= 0 and bank.head[HITS + READS] < 0 and bank.head[HITS + WRITES] < 0:
            if bank.precharge_ps <= now_ps:
                close_bank(channel, bank_index, now_ps, log)
                channel.row_wake_ps = now_ps + channel.period_ps
                return
            wake_ps = min(wake_ps, bank.precharge_ps)
    channel.row_wake_ps = wake_ps
