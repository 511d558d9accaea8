"""Memory-side cache of one memory channel: between L2 (and links and DMA engines) and the HBM channel.

It does not store data yet. Every request passes it, at most one per `line_ps`, and reaches the channel `latency_ps`
after it was taken. There are fifos before it (`sim.hw.lanes`) and one per stream behind it. The order within a fifo
stays. Among them, the head that has waited longest goes first. A stream whose fifo to the channel is full waits. It
does not block the others. Data of reads bypass the unit. Without `msc.present`
there is no such unit, and requests go directly to the channel.
"""

import numpy as np

from sim.hw.fifo import fifo_head, fifo_head_ps, fifo_push_copy, fifo_room_ps, fifo_take
from sim.hw.lanes import LANES, lane_head
from sim.hw.request import NEVER, SECTOR_BYTES, STREAMS
from sim.hw.tags import sectors_in
from tracer.compile.jit import compiled
from traces.units import whole_period_ps

COUNTERS = {
    "requests": "requests passed on, per stream",
    "bytes": "bytes that the requests read or write, whole sectors, per stream",
    "blocked_ps": "time in which the oldest request waited for room at the channel, per stream",
}
"""Counter fields of MSC and their meaning."""

MSC = np.dtype(
    [
        # constants
        ("line_ps", "i8"),  # from request to request
        ("latency_ps", "i8"),
        ("lanes", LANES),  # fifos from which requests come
        ("out_fifo", "i8", STREAMS),  # fifos of the channel
        # state
        ("next_ps", "i8"),  # it takes no request before this time
        ("sent_ps", "i8"),  # when the channel sees the oldest request sent in this window; NEVER = none
        ("room_ps", "i8"),  # a stream waits for room: when it comes, NEVER = not known yet
        ("blocked", "i8"),  # 1: a stream waits for room
        ("blocked_since_ps", "i8", STREAMS),  # -1 = it does not wait
        # counters
        ("requests", "i8", STREAMS),
        ("bytes", "i8", STREAMS),
        ("blocked_ps", "i8", STREAMS),
    ],
    align=True,
)


def make_mscs(spec, in_fifos, fabric_fifos, out_fifos):
    """One record per memory channel; no record if the machine has no such unit.

    Args:
        spec: sim.spec.MSC.
        in_fifos, fabric_fifos, out_fifos: (channels, STREAMS) fifo numbers (see `sim.hw.lanes`).
    """
    mscs = np.zeros(len(in_fifos) if spec.present else 0, MSC)
    if spec.present:
        period_ps = whole_period_ps(spec.clock_MHz)
        mscs["line_ps"] = max(1, round(period_ps / spec.lines_per_clk))
        mscs["latency_ps"] = spec.latency_clk * period_ps
        mscs["lanes"]["in_fifo"], mscs["lanes"]["fabric_fifo"], mscs["out_fifo"] = in_fifos, fabric_fifos, out_fifos
        mscs["sent_ps"], mscs["blocked_since_ps"] = NEVER, -1
    return mscs


@compiled
def msc_step(msc, fifos, pool, now_ps):
    """Pass on at most one request.

    Reads and writes a record of MSC, its fifos and their pool.

    Returns:
        When it can act next, as far as known. NEVER if it is empty or waits for credits of unknown time.
    """
    if now_ps < msc.next_ps:
        return msc.next_ps
    msc.blocked = 0
    msc.room_ps = NEVER
    chosen = -1
    chosen_ps = wake_ps = NEVER
    for stream in range(STREAMS):
        head_ps = fifo_head_ps(fifos[lane_head(msc.lanes, stream, fifos, pool)], pool)
        room_ps = fifo_room_ps(fifos[msc.out_fifo[stream]], pool, fifos[msc.out_fifo[stream]].tail)
        if head_ps > now_ps:
            wake_ps = min(wake_ps, head_ps)
        elif room_ps > now_ps:
            msc.blocked = 1
            msc.room_ps = min(msc.room_ps, room_ps)
            if msc.blocked_since_ps[stream] < 0:
                msc.blocked_since_ps[stream] = now_ps
        elif head_ps < chosen_ps:
            chosen, chosen_ps = stream, head_ps
    if chosen < 0:
        return min(wake_ps, msc.room_ps)
    _pass_on(msc, fifos, pool, chosen, now_ps)
    return msc.next_ps


@compiled
def _pass_on(msc, fifos, pool, stream, now_ps):
    """Pass the oldest request of a stream to the channel."""
    fifo = fifos[msc.lanes.head_fifo[stream]]
    request = fifo_head(fifo, pool)
    fifo_push_copy(fifos[msc.out_fifo[stream]], pool, request, now_ps + msc.latency_ps)
    fifo_take(fifo, pool, now_ps)
    msc.requests[stream] += 1
    msc.bytes[stream] += sectors_in(request.sectors) * SECTOR_BYTES
    if msc.blocked_since_ps[stream] >= 0:
        msc.blocked_ps[stream] += now_ps - msc.blocked_since_ps[stream]
        msc.blocked_since_ps[stream] = -1
    msc.next_ps = now_ps + msc.line_ps
    msc.sent_ps = min(msc.sent_ps, now_ps + msc.latency_ps)


@compiled
def run_mscs(node, first, last, end_ps):
    """Phase of the engine: run units through a time window. Wakes channels.

    Writes: node.channel_wake_ps, node.fifos, node.msc_wake_ps, node.mscs, node.pool.
    """
    for h in range(first, last):
        now_ps = node.msc_wake_ps[h]
        if now_ps >= end_ps:
            continue
        msc = node.mscs[h]
        while now_ps < end_ps:
            now_ps = msc_step(msc, node.fifos, node.pool, now_ps)
        node.msc_wake_ps[h] = now_ps
        if msc.sent_ps < NEVER:
            node.channel_wake_ps[h] = min(node.channel_wake_ps[h], msc.sent_ps)
            msc.sent_ps = NEVER


@compiled(inline=True)
def retry_mscs(node, first, last):
    """Units that wait for room at their channel continue when it comes.

    Reads: node.fifos, node.mscs, node.pool. Writes: node.msc_wake_ps.
    """
    for h in range(first, last):
        msc = node.mscs[h]
        if msc.blocked == 1:
            for stream in range(STREAMS):
                if msc.blocked_since_ps[stream] >= 0:
                    fifo = node.fifos[msc.out_fifo[stream]]
                    node.msc_wake_ps[h] = min(node.msc_wake_ps[h], fifo_room_ps(fifo, node.pool, fifo.tail))
