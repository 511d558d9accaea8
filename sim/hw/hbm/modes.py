"""Modes of a channel's scheduler: it serves reads, writes or both; an old atom may go before all others.

A unified queue serves both directions at once. Split queues are served one at a time: reads first. Writes are drained
when many wait or when no read waits. An atom older than the age limit takes its bank and, once its row is open, the
data bus.
"""

from sim.hw.hbm.queue import READS, WRITES, oldest_atom
from sim.hw.request import NEVER, Op
from tracer.compile.jit import compiled


@compiled
def search_again(channel):
    """Reset the known earliest times of the next commands: search at the next call."""
    channel.column_wake_ps = 0
    channel.row_wake_ps = 0


@compiled
def watch_age(channel, now_ps):
    """Look for the oldest atom if it may be over the age limit. Writes: channel."""
    if channel.age_limit_ps == 0 or now_ps < channel.age_check_ps:
        return
    slot = oldest_atom(channel)
    if slot < 0:
        channel.age_check_ps = now_ps + channel.age_limit_ps
    else:
        channel.age_check_ps = channel.accepted_ps[channel.atom[slot].request] + channel.age_limit_ps
        if channel.age_check_ps <= now_ps:
            channel.aged = slot
            channel.age_check_ps = NEVER
            search_again(channel)


@compiled
def direction_of(atom):
    """READS or WRITES, the data-bus direction of an atom. Reads: atom."""
    return READS if atom.op == Op.READ else WRITES


@compiled(inline=True)
def serve(channel, reads_blocked):
    """Set `channel.mode` (split queues) and `channel.served`, the mask of directions whose columns may issue.

    Writes: channel.
    """
    aged = channel.aged
    if aged >= 0 and reads_blocked and channel.atom[aged].op == Op.READ:
        aged = -1
    if channel.split == 0:
        served = 3
        if aged >= 0 and channel.bank[channel.atom[aged].bank].open_row == channel.atom[aged].row:
            served = 1 << direction_of(channel.atom[aged])
    else:
        if aged >= 0:
            mode = direction_of(channel.atom[aged])
        else:
            mode = next_mode(channel, 0 if reads_blocked else channel.queued[READS])
        if mode != channel.mode:
            _switch(channel, mode)
        served = 1 << mode
    if reads_blocked:
        served &= ~(1 << READS)
    if served != channel.served:
        channel.served = served
        search_again(channel)


@compiled
def next_mode(channel, reads):
    """The next mode: writes above the high mark or without reads; reads below the low mark if reads wait.

    A drain serves at most as many writes as waited when it began. Reads that wait at its end are served before the next
    drain. So a steady flow of writes cannot starve reads. A read that waits outside for a queued write starts a drain.
    """
    writes = channel.queued[WRITES]
    if channel.mode == READS:
        pressing = (writes > channel.write_high or channel.read_held == 1) and channel.phase_left <= 0
        return WRITES if writes > 0 and (reads == 0 or pressing) else READS
    return READS if reads > 0 and (_drained(channel) or channel.phase_left <= 0) else WRITES


@compiled
def _drained(channel):
    """Is the drain finished?"""
    writes = channel.queued[WRITES]
    return writes == 0 or (writes < channel.write_low and channel.read_held == 0)


@compiled
def _switch(channel, mode):
    channel.mode = mode
    if mode == WRITES:
        channel.phase_left = channel.queued[WRITES]
        channel.drains += 1
    else:
        channel.phase_left = 0 if _drained(channel) else channel.queued[READS]
    search_again(channel)


@compiled
def keeps_for_aged(channel, bank_index):
    """Must the bank stop serving its open row, because the aged atom needs another row? Reads: channel."""
    if channel.aged < 0:
        return False
    aged = channel.atom[channel.aged]
    return aged.bank == bank_index and channel.bank[bank_index].open_row != aged.row
