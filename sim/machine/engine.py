"""The clock: begins and ends time windows, and returns to the host when the host must act.

A window is at most as long as the shortest latency between two units. So within a window no unit can affect another.
Each unit runs alone through the window, at exactly the times at which it can act. Its packets arrive in a later window.
Only back-pressure is coarser: a producer sees new room in a fifo in the next window (D6). The order of the units is
fixed (`sim.machine.build.PHASES`), so a run depends only on its input.

GPUs affect each other only over wires, whose latency is far longer than a window. `horizon_ps` ends a run before a
packet of another GPU that is not simulated yet could arrive (sim.host.cluster).
"""

from enum import IntEnum

from sim.hw.dispatcher import dispatch_step
from sim.hw.hbm.channel import channel_settle
from sim.hw.l2 import l2_prefill
from sim.hw.noc import home_bank, home_set
from sim.hw.request import LINE_BYTES, NEVER
from sim.machine.build import retry_blocked, run_phases
from sim.machine.fabric import fabric_moves, next_arrival_ps
from sim.machine.phases import memory_moves
from sim.machine.series import close_interval
from tracer.compile.jit import compiled

IDLE_WINDOWS = 2
"""Consecutive windows in which nothing moves and nothing comes. One more is a deadlock."""


class Status(IntEnum):
    """The reason why the engine returned to the host."""

    IDLE = 0  # no unit will ever act again without new work
    UNTIL = 1  # reached the requested time
    NEEDS_WORKGROUPS = 2  # a dispatch queue waits for the host
    SERIES_FULL = 3  # the host must take the rows of the time series
    STUCK = 4  # requests wait for each other, or for another GPU
    HORIZON = 5  # reached the time up to which the other GPUs are known
    OPEN = 6  # `open_window` only: a window has begun, its phases come next


@compiled(inline=True)
def _unit_wake_ps(node):
    """When a unit or a dispatcher can act without input from another unit."""
    first_ps = node.engine[0].fabric_ps
    for k in range(len(node.wake_ps)):
        first_ps = min(first_ps, node.wake_ps[k])
    for queue in range(len(node.dispatch)):
        first_ps = min(first_ps, node.dispatch[queue].wake_ps)
    return first_ps


@compiled(inline=True)
def _next_begin_ps(node):
    """Begin of the next window: the earliest time at which a unit can act."""
    noc = node.noc[0]
    begin_ps = min(_unit_wake_ps(node), noc.requests_ps, noc.answers_ps, next_arrival_ps(node))
    return max(begin_ps, node.engine[0].now_ps) if begin_ps < NEVER else NEVER


@compiled
def _run_dispatchers(node, end_ps):
    """Dispatch workgroups that are due before end_ps. Returns False if a queue waits for the host."""
    for queue in range(len(node.dispatch)):
        dispatch = node.dispatch[queue]
        while dispatch.wake_ps < end_ps:
            c, start_ps = dispatch_step(dispatch, queue, node.cus, 0, node.warps, node.staged[queue], node.output.gates)
            if dispatch.needs == 1:
                return False
            if c >= 0:
                node.cu_wake_ps[c] = min(node.cu_wake_ps[c], start_ps)
    return True


@compiled(inline=True)
def open_window(node):
    """Begin the next time window: set its times, close the interval of the time series before it, dispatch workgroups.

    Returns:
        (Status, begin_ps, end_ps): OPEN and the window, or the reason why none begins. `engine.now_ps` is the end of
        the window.
    """
    engine = node.engine[0]
    while True:
        begin_ps = engine.resume_ps if engine.resume_ps >= 0 else _next_begin_ps(node)
        engine.resume_ps = -1
        if begin_ps == NEVER:
            return Status.IDLE, begin_ps, begin_ps
        if begin_ps >= engine.horizon_ps:
            return Status.HORIZON, begin_ps, begin_ps
        if engine.interval_ps == 0 or begin_ps < engine.next_sample_ps:
            break
        if not close_interval(node):
            return Status.SERIES_FULL, begin_ps, begin_ps
    end_ps = min(begin_ps + engine.window_ps, engine.horizon_ps)
    if not _run_dispatchers(node, end_ps):
        engine.resume_ps = begin_ps  # after a request to the host the same window begins again
        return Status.NEEDS_WORKGROUPS, begin_ps, end_ps
    engine.now_ps = end_ps
    return Status.OPEN, begin_ps, end_ps


@compiled(inline=True)
def close_window(node, end_ps):
    """End a time window whose phases have run.

    Returns:
        False if no packet moved and no unit can act without input from another unit. Requests that wait for room (in a
        port, a bank, L1) would then wait for ever.
    """
    engine, noc = node.engine[0], node.noc[0]
    engine.windows += 1
    moves = noc.request_packets + noc.answer_packets + fabric_moves(node) + memory_moves(node)
    before, engine.moves = engine.moves, moves
    coming_ps = min(_unit_wake_ps(node), next_arrival_ps(node), noc.answers_ps)
    coming = coming_ps < NEVER or end_ps < noc.requests_ps < NEVER
    retry_blocked(node, end_ps)
    return coming or engine.moves != before


@compiled
def run_engine(node, until_ps):
    """Advance the machine until no work is left, or a window ends after until_ps, or the host must act.

    Returns:
        A Status. `engine.now_ps` is the end of the last window.

    Reads and writes: all records of `node`.
    """
    engine = node.engine[0]
    idle_windows, engine.idle_windows = engine.idle_windows, 0
    while True:
        status, begin_ps, end_ps = open_window(node)
        if status != Status.OPEN:
            return status
        run_phases(node, begin_ps, end_ps)
        if close_window(node, end_ps):
            idle_windows = 0
        else:
            idle_windows += 1
            if idle_windows > IDLE_WINDOWS:
                return Status.STUCK
        if end_ps > until_ps:
            engine.idle_windows = idle_windows  # with a line trace the engine returns after each window
            return Status.UNTIL


@compiled
def settle(node):
    """Update counters that are integrals over time to the current time. Writes: node.channels, node.log."""
    for h in range(len(node.channels)):
        channel_settle(node.channels[h], node.engine[0].now_ps, node.log)


@compiled
def prefill_l2(node, first_line, end):
    """Put the lines from first_line up to the address `end` into L2 as clean lines.

    Reads: node.banks, node.noc. Writes: node.l2_sets.
    """
    noc = node.noc[0]
    for number in range((end - first_line + LINE_BYTES - 1) // LINE_BYTES):
        line = first_line + number * LINE_BYTES
        l2_prefill(node.banks[home_bank(noc, line)], node.l2_sets, home_set(noc, line), line)
