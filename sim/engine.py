"""The clock: which unit acts when, and what that wakes. The only file that knows who is connected to whom.

The smallest key of the calendar says who acts next; the unit's step does all it can at that time and says when it can
do something again; then whatever it put into its fifos is carried to the neighbours, and those wake when they may see
it. Time never goes back, and units that act at the same time do so in the order of their numbers.
"""

from enum import IntEnum

from sim.calendar import IDLE_KEY, MAX_UNITS, UNIT_BITS, calendar_lower, calendar_next, calendar_set
from sim.hw.cu import cu_step
from sim.hw.dispatcher import dispatch_step
from sim.hw.fifo import fifo_head, fifo_pop, fifo_push_copy
from sim.hw.hbm import channel_step
from sim.hw.l2 import l2_step
from sim.hw.noc import home_bank, noc_admit, noc_answer, noc_send
from sim.hw.request import NEVER, SECTOR_BYTES, STREAMS
from tracer.jit import kernel

DISPATCHER = 0
FIRST_CU = 1


class Status(IntEnum):
    """Why the engine came back."""

    IDLE = 0  # nothing will ever happen again by itself
    UNTIL = 1  # reached the time that was asked for
    NEEDS_WORKGROUPS = 2  # a dispatch queue waits for the host
    SERIES_FULL = 3  # the host must take the rows of the time series


@kernel
def _send_requests(node, c):
    """Carry requests from the CU's port to the L2 banks until it is empty or must wait for a bank."""
    engine, noc = node.engine[0], node.noc[0]
    port = node.fifos[node.lsus[c].port]
    first_bank = FIRST_CU + engine.cus
    while port.head != port.tail and noc.stuck[c] == 0:
        bank, arrival_ps = noc_send(noc, c, port, node.fifos, node.pool)
        if bank >= 0:
            calendar_lower(node.calendar, first_bank + bank, arrival_ps)


@kernel
def _step_dispatcher(node, now_ps):
    """Every dispatch queue may place a workgroup. Returns False if one waits for the host."""
    wake_ps = NEVER
    for queue in range(len(node.dispatch)):
        dispatch = node.dispatch[queue]
        queue_ps, c, start_ps = dispatch_step(dispatch, queue, node.cus, 0, node.warps, node.staged[queue], now_ps)
        if c >= 0:
            calendar_lower(node.calendar, FIRST_CU + c, start_ps)
        if dispatch.needs == 1:
            calendar_set(node.calendar, DISPATCHER, now_ps)
            return False
        wake_ps = min(wake_ps, queue_ps)
    calendar_set(node.calendar, DISPATCHER, wake_ps)
    return True


@kernel
def _step_cu(node, c, now_ps):
    engine, cu = node.engine[0], node.cus[c]
    engine.cu_steps += 1
    wake_ps = cu_step(
        cu, node.lsus[c], node.l1s[c], node.l1_sets, node.fifos, node.pool, node.warps[c], node.events, node.addresses,
        now_ps,
    )  # fmt: skip
    calendar_set(node.calendar, FIRST_CU + c, wake_ps)
    _send_requests(node, c)
    if cu.ended > 0:
        for i in range(cu.ended):
            node.freed[engine.freed] = cu.ended_slab[i]
            engine.freed += 1
            node.dispatch[cu.ended_queue[i]].finished += 1
        cu.ended = 0
        calendar_lower(node.calendar, DISPATCHER, now_ps)


@kernel
def _step_bank(node, b, now_ps):
    engine, noc, bank = node.engine[0], node.noc[0], node.banks[b]
    engine.bank_steps += 1
    requests = node.fifos[bank.requests]
    head = requests.head
    wake_ps = l2_step(bank, node.l2_sets, node.waiters, node.fifos, node.pool, now_ps)
    calendar_set(node.calendar, FIRST_CU + engine.cus + b, wake_ps)
    if bank.sent_ps < NEVER:
        channel = b // (engine.banks // engine.channels)
        calendar_lower(node.calendar, FIRST_CU + engine.cus + engine.banks + channel, bank.sent_ps)
        bank.sent_ps = NEVER
    answers = node.fifos[bank.answers]
    while answers.head != answers.tail:
        c, arrival_ps = noc_answer(noc, b, answers, node.fifos, node.pool, now_ps)
        calendar_lower(node.calendar, FIRST_CU + c, arrival_ps)
    if requests.head != head:
        c = noc_admit(noc, b)
        if c >= 0:
            _send_requests(node, c)
            if node.lsus[c].blocked_since_ps >= 0:
                calendar_lower(node.calendar, FIRST_CU + c, now_ps)


@kernel
def _taken(node, channel):
    """Requests that the channel has taken from its stream fifos so far."""
    taken = 0
    for stream in range(STREAMS):
        taken += node.fifos[channel.in_fifo[stream]].head
    return taken


@kernel
def _step_channel(node, h, now_ps):
    engine, noc, channel = node.engine[0], node.noc[0], node.channels[h]
    engine.channel_steps += 1
    taken = _taken(node, channel)
    wake_ps = channel_step(channel, node.fifos, node.pool, now_ps, node.log)
    first_bank = FIRST_CU + engine.cus
    calendar_set(node.calendar, first_bank + engine.banks + h, wake_ps)
    out = node.fifos[channel.out_fifo]
    while out.head != out.tail:
        data = fifo_head(out, node.pool)
        b = home_bank(noc, data.line)
        calendar_lower(node.calendar, first_bank + b, data.ready_ps)
        fifo_push_copy(node.fifos[node.banks[b].fills], node.pool, data, data.ready_ps)
        fifo_pop(out)
    if _taken(node, channel) != taken:
        slices = engine.banks // engine.channels
        for b in range(h * slices, (h + 1) * slices):
            if node.banks[b].blocked == 1:
                calendar_lower(node.calendar, first_bank + b, now_ps)


@kernel
def _levels(node, sums):
    """Current values behind the columns of the time series."""
    sums[:] = 0
    for h in range(len(node.channels)):
        channel = node.channels[h]
        for stream in range(STREAMS):
            columns = channel.read_columns[stream] + channel.write_columns[stream] + channel.update_columns[stream]
            sums[stream] += columns * SECTOR_BYTES
        sums[6] += channel.queue_columns
    for b in range(len(node.banks)):
        sums[4] += node.banks[b].read_sectors
        sums[5] += node.banks[b].read_hit_sectors
    for c in range(len(node.cus)):
        sums[7] += node.cus[c].residents


@kernel
def _sample(node):
    """One row of the time series: the interval that has just ended. Returns False if the table is full."""
    engine = node.engine[0]
    row = node.series[engine.samples]
    _levels(node, row)
    for k in range(6):
        total = row[k]
        row[k] -= node.totals[k]
        node.totals[k] = total
    engine.samples += 1
    engine.next_sample_ps += engine.interval_ps
    return engine.samples < len(node.series)


@kernel
def run_engine(node, until_ps):
    """Advance the machine until nothing is left to do, or past until_ps, or until the host must help.

    Returns:
        A Status. `engine.now_ps` is the time of the last thing that happened.
    """
    engine = node.engine[0]
    first_bank = FIRST_CU + engine.cus
    first_channel = first_bank + engine.banks
    while True:
        key = calendar_next(node.calendar)
        if key == IDLE_KEY:
            return Status.IDLE
        now_ps = key >> UNIT_BITS
        if engine.interval_ps > 0 and now_ps >= engine.next_sample_ps:
            if not _sample(node):
                return Status.SERIES_FULL
            continue
        if now_ps > until_ps:
            return Status.UNTIL
        engine.now_ps = now_ps
        engine.steps += 1
        unit = key & (MAX_UNITS - 1)
        if unit == DISPATCHER:
            if not _step_dispatcher(node, now_ps):
                return Status.NEEDS_WORKGROUPS
        elif unit < first_bank:
            _step_cu(node, unit - FIRST_CU, now_ps)
        elif unit < first_channel:
            _step_bank(node, unit - first_bank, now_ps)
        else:
            _step_channel(node, unit - first_channel, now_ps)
