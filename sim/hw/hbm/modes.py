"""Whom a channel's scheduler may serve now: reads, writes or both, and whether an old atom goes before all others.

One queue serves both directions at once. Of split queues one is served at a time: reads, until writes are many or
alone; then writes are drained. An atom older than the age limit takes its bank and, once its row is open, the data bus.
"""

from sim.hw.hbm.queue import READS, WRITES, oldest_atom
from sim.hw.request import NEVER, Op
from tracer.compile.jit import compiled


@compiled
def search_again(channel):
    """Forget what is known about the next command."""
    channel.column_wake_ps = 0
    channel.row_wake_ps = 0


@compiled
def watch_age(channel, now_ps):
    """Find the oldest atom if it may have passed the age limit."""
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
    return READS if atom.op == Op.READ else WRITES


@compiled(inline=True)
def serve(channel, reads_blocked):
    """Set `channel.mode` (split queues) and `channel.served`, the mask of directions whose columns may issue."""
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
            mode = _next_mode(channel, 0 if reads_blocked else channel.queued[READS])
        if mode != channel.mode:
            _switch(channel, mode)
        served = 1 << mode
    if reads_blocked:
        served &= ~(1 << READS)
    if served != channel.served:
        channel.served = served
        search_again(channel)


@compiled
def _next_mode(channel, reads):
    """Write mode above the high mark or without reads; back below the low mark with reads waiting.

    A drain serves at most what waited when it began, and the reads that wait at the end of such a drain are served
    before the next: writes that keep coming cannot starve reads. A read held outside for a queued write starts a drain.
    """
    writes = channel.queued[WRITES]
    if channel.mode == READS:
        pressing = (writes > channel.write_high or channel.read_held == 1) and channel.phase_left <= 0
        return WRITES if writes > 0 and (reads == 0 or pressing) else READS
    return READS if reads > 0 and (_drained(channel) or channel.phase_left <= 0) else WRITES


@compiled
def _drained(channel):
    """Whether a drain has done its work."""
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
    """Whether the bank must not serve its open row, because the aged atom wants another."""
    if channel.aged < 0:
        return False
    aged = channel.atom[channel.aged]
    return aged.bank == bank_index and channel.bank[bank_index].open_row != aged.row
