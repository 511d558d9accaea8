"""One HBM channel: stream fifos, arbiter, FR-FCFS queue, banks, data bus (JESD235; timing sets in hbm2.md).

    lanes[stream] -> arbiter -> queue -> banks -> out_fifo (answers to reads)

Time is int64 picoseconds. Commands issue on clock edges: at most one row and one column command per edge (HBM has two
command buses). The parts are `sim.hw.arbiter` (selects the stream that enters), and in `sim.hw.hbm`: `queue` and
`lists` (waiting atoms), `modes` (directions that may be served), `scheduler` (selects commands), `timing` (earliest
times), `refresh`, `nmc` (updates), `log`, `record` (state and counters), `setup`. Left out: auto-precharge, per-bank
refresh, temperature, power-down, ECC (D15). The latency of controller and PHY is two constants (D17).
"""

from sim.hw.address_map import channel_local
from sim.hw.arbiter import pick_stream
from sim.hw.bits import DIVIDED_BELOW, divided
from sim.hw.fifo import fifo_full, fifo_head, fifo_head_ps, fifo_push_copy, fifo_take
from sim.hw.hbm.modes import serve, watch_age
from sim.hw.hbm.queue import MAX_ATOMS, READS, WRITES, account_occupancy, conflicts, enqueue, entries_of, fits
from sim.hw.hbm.refresh import issue_refresh, refresh_ready_ps, settle_idle_refreshes, urgent_ps
from sim.hw.hbm.scheduler import issue_column, issue_row
from sim.hw.hbm.setup import make_hbm_channels
from sim.hw.lanes import lane_head_ps, partner
from sim.hw.mca import aged_ps, set_limits
from sim.hw.request import NEVER, STREAMS, Op
from sim.hw.stream_heads import take_turn
from sim.hw.tracker import counts
from sim.spec import CountAt, PagePolicy, Turn
from tracer.compile.jit import compiled


def make_channels(machine, in_fifos, out_fifos, joined_fifos):
    """One idle record of CHANNEL per channel of `machine` (see `make_hbm_channels`), with MCA's limits.

    Args:
        joined_fifos: fifo numbers of a machine with links: fabric (channels, STREAMS), note and data (channels,);
            -1 = none.
    """
    channels = make_hbm_channels(machine.hbm, in_fifos, out_fifos)
    fabric_fifos, note_fifos, data_fifos = joined_fifos
    channels["lanes"]["fabric_fifo"], channels["data_fifo"] = fabric_fifos, data_fifos
    stores = machine.msc.present and machine.msc.bytes > 0
    channels["dma_fifo"] = out_fifos if stores else data_fifos
    channels["note_fifo"] = note_fifos[: len(channels)]
    channels["count_served"] = machine.tracker.count_at == CountAt.SERVICE
    set_limits(channels, machine)
    return channels


@compiled(inline=True)
def note(channel, fifos, pool, request, now_ps):
    """Send the Tracker a copy of an update that was queued (or served)."""
    if channel.note_fifo >= 0 and counts(request):
        fifo_push_copy(fifos[channel.note_fifo], pool, request, now_ps)


@compiled(inline=True)
def clock_edge_ps(channel, time_ps):
    """The first clock edge at or after `time_ps`, which is never before that of an earlier call. Writes: channel."""
    if time_ps > channel.edge_ps:
        elapsed_ps = time_ps - channel.edge_ps + channel.period_ps - 1
        short = elapsed_ps < DIVIDED_BELOW
        clocks = divided(elapsed_ps, channel.clk_per_ps) if short else elapsed_ps // channel.period_ps
        channel.edge_ps += clocks * channel.period_ps
    return channel.edge_ps


@compiled(inline=True)
def _see_head(channel, stream, fifos, pool, now_ps):
    """Find the head of a stream and since when it waits.

    Returns:
        When the head becomes visible; NEVER if it is visible, or if there is none.
    """
    head_ps = lane_head_ps(channel.lanes, stream, fifos, pool)
    if head_ps > now_ps:
        channel.head_ps[stream] = NEVER
        return head_ps
    channel.head_ps[stream] = head_ps
    if channel.turn == Turn.ROW:
        line = fifo_head(fifos[channel.lanes.head_fifo[stream]], pool).line
        local = channel_local(line, channel.interleave_bytes, channel.channels)
        channel.head_row[stream] = local >> channel.row_shift
    return NEVER


@compiled(inline=True)
def accept(channel, fifos, pool, now_ps):
    """Take requests from the stream fifos, in the arbiter's order, while they fit.

    If a head does not fit, the other streams of the same queue wait too. So small requests cannot pass a large request
    for ever. Returns the earliest time at which a head becomes visible.
    """
    arrival_ps = NEVER
    waiting = 0
    channel.refused = 0
    channel.smallest[READS] = channel.smallest[WRITES] = NEVER
    for stream in range(STREAMS):
        arrival_ps = min(arrival_ps, _see_head(channel, stream, fifos, pool, now_ps))
        waiting += channel.head_ps[stream] < NEVER
    while waiting > 0:
        stream = pick_stream(channel, now_ps)
        if stream < 0:
            for other in range(STREAMS):
                if channel.head_ps[other] < NEVER:
                    channel.refused = 1
            return min(arrival_ps, aged_ps(channel, now_ps))
        fifo = fifos[channel.lanes.head_fifo[stream]]
        request = fifo_head(fifo, pool)
        if not fits(channel, request):
            _hold_back(channel, fifos, pool, request.op)
        elif conflicts(channel, request):
            channel.head_ps[stream] = NEVER
            channel.refused = 1
        else:
            enqueue(channel, request, now_ps)
            if channel.count_served == 0:
                note(channel, fifos, pool, request, now_ps)
            fifo_take(fifo, pool, now_ps)
            take_turn(channel, stream)
            arrival_ps = min(arrival_ps, _see_head(channel, stream, fifos, pool, now_ps))
            if channel.lanes.shared == 1:
                arrival_ps = min(arrival_ps, _see_head(channel, partner(stream), fifos, pool, now_ps))
    return arrival_ps


@compiled(inline=True)
def read_held(channel, fifos, pool, now_ps):
    """1 if a read waits in front of the queue for a queued write to its address, else 0."""
    if channel.queued[WRITES] == 0:
        return 0
    for stream in range(STREAMS):
        fifo = fifos[channel.lanes.head_fifo[stream]]
        if fifo_head_ps(fifo, pool) <= now_ps:
            request = fifo_head(fifo, pool)
            if request.op == Op.READ and conflicts(channel, request):
                return 1
    return 0


@compiled(inline=True)
def _hold_back(channel, fifos, pool, op):
    """A request of kind `op` did not fit: hold back all streams whose head needs the same queue."""
    for stream in range(STREAMS):
        if channel.head_ps[stream] < NEVER:
            other = fifo_head(fifos[channel.lanes.head_fifo[stream]], pool)
            if channel.split == 0 or (other.op == Op.READ) == (op == Op.READ):
                channel.head_ps[stream] = NEVER
                direction = READS if other.op == Op.READ else WRITES
                channel.smallest[direction] = min(channel.smallest[direction], entries_of(channel, other.sectors))


@compiled(inline=True)
def channel_step(channel, fifos, pool, now_ps, log):
    """Do all actions that are legal at `now_ps`.

    Args:
        channel: a record of CHANNEL.
        fifos, pool: the machine's fifos and their request slots.
        now_ps: current time, never before that of an earlier call.
        log: array of `hbm_log.LOG` for the commands; of length zero for none.

    Returns:
        When to call again. NEVER if the channel waits for a new request (or for room in a full `out_fifo`). Earlier or
        additional calls are harmless.

    Writes: channel, fifos, pool, log.
    """
    edge_ps = clock_edge_ps(channel, now_ps)
    if edge_ps > now_ps:
        return edge_ps
    account_occupancy(channel, now_ps)
    if channel.tREFI_ps > 0 and channel.free_atoms == MAX_ATOMS:
        settle_idle_refreshes(channel, now_ps, log)
    wake_ps = accept(channel, fifos, pool, now_ps)
    if channel.free_atoms == MAX_ATOMS:
        return min(wake_ps, _close_rows_when_idle(channel, now_ps, log))
    watch_age(channel, now_ps)
    if channel.split == 1:
        channel.read_held = read_held(channel, fifos, pool, now_ps)
    serve(channel, fifo_full(fifos[channel.out_fifo]))
    if now_ps >= urgent_ps(channel):
        return min(wake_ps, _refresh_now(channel, now_ps, log))
    served = issue_column(channel, fifos, pool, now_ps, log)
    if served >= 0 and channel.count_served == 1:
        note(channel, fifos, pool, channel.request[served], now_ps)
    issue_row(channel, now_ps, log)
    wake_ps = min(wake_ps, channel.column_wake_ps, channel.row_wake_ps, channel.age_check_ps, urgent_ps(channel))
    return max(now_ps + channel.period_ps, wake_ps)


@compiled
def _close_rows_when_idle(channel, now_ps, log):
    """CLOSED page policy without requests: close a row. A due refresh closes the rows. Returns the next time."""
    if channel.page == PagePolicy.OPEN or channel.open_banks == 0:
        return NEVER
    if channel.tREFI_ps > 0 and now_ps >= channel.refresh_due_ps:
        return NEVER
    issue_row(channel, now_ps, log)
    return channel.row_wake_ps


@compiled
def _refresh_now(channel, now_ps, log):
    """Continue an urgent refresh. Returns the time of its next command."""
    ready_ps = refresh_ready_ps(channel, now_ps)
    if ready_ps > now_ps:
        return ready_ps
    issue_refresh(channel, now_ps, log)
    return now_ps + channel.period_ps


@compiled
def channel_settle(channel, now_ps, log):
    """Bring counters up to `now_ps`, the end of a run or sample: occupancy, and refreshes of idle time.

    Writes: channel, log.
    """
    account_occupancy(channel, now_ps)
    if channel.tREFI_ps > 0 and channel.free_atoms == MAX_ATOMS:
        settle_idle_refreshes(channel, now_ps, log)
