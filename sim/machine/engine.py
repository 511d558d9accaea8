"""The clock: begins and ends time windows, and returns to the host when the host must act.

A window is at most as long as the lookahead, the shortest latency between two units that act in turn. So within a
window no unit can affect a unit whose phase came before. Each unit runs alone through the window, at exactly the times
at which it can act. What it tells such a unit (room in a fifo, a free place, an open gate) arrives a lookahead later at
the earliest. So a run depends only on its input: windows may have any length up to the lookahead and may begin at any
clock of the crossbar, units may be called at any time, and any number of threads may share them (`sim.machine.shares`).

GPUs affect each other only over wires, whose latency is far longer than a window. `horizon_ps` ends a run before a
packet of another GPU that is not simulated yet could arrive (sim.host.cluster).
"""

from enum import IntEnum

from sim.hw.dispatcher import dispatch_step
from sim.hw.hbm.channel import channel_settle
from sim.hw.l2_expect import l2_prefill
from sim.hw.mca import choose_limit
from sim.hw.noc import home_place
from sim.hw.request import LINE_BYTES, NEVER
from sim.hw.tags import canonical
from sim.machine.engine_record import grid_end_ps
from sim.machine.phase_cus import collect_ended
from sim.machine.phase_dma import dmas_wake_ps
from sim.machine.phase_links import links_wake_ps
from sim.machine.phase_noc import retry_blocked
from sim.machine.series import close_interval
from sim.machine.shares import run_jobs, run_units
from sim.machine.team import DONE, ENDED, JOBS, TURN, WINDOW, meet, part
from tracer.compile.atomics import load
from tracer.compile.jit import compiled


class Status(IntEnum):
    """The reason why the engine returned to the host."""

    IDLE = 0  # no unit will ever act again without new work, or without another GPU
    UNTIL = 1  # reached the requested time
    NEEDS_WORKGROUPS = 2  # a dispatch queue waits for the host
    SERIES_FULL = 3  # the host must take the rows of the time series
    HORIZON = 4  # reached the time up to which the other GPUs are known
    OPEN = 5  # `open_window` only: a window has begun, its phases come next


@compiled
def next_act_ps(node):
    """The earliest time at which a unit can act, as far as known; NEVER if none can.

    Reads: all records of `node`. Writes: node.arriving, node.ports.
    """
    noc = node.noc[0]
    first_ps = min(noc.requests_ps, noc.answers_ps, node.mca[0].choose_ps, node.engine[0].peers_ps)
    for k in range(len(node.wake_ps)):
        first_ps = min(first_ps, node.wake_ps[k])
    for queue in range(len(node.dispatch)):
        first_ps = min(first_ps, node.dispatch[queue].wake_ps)
    if len(node.ports) > 0:
        first_ps = min(first_ps, links_wake_ps(node), dmas_wake_ps(node))
    return first_ps


@compiled(apart=True)
def run_dispatchers(node, end_ps):
    """Dispatch workgroups that are due before end_ps, in the order of time. Returns False if a queue needs the host.

    At equal times the queue goes first whose turn it is (`sim.hw.residency`), else the lower one.
    """
    while True:
        queue = 0
        for other in range(1, len(node.dispatch)):
            one, best = node.dispatch[other], node.dispatch[queue]
            if one.wake_ps < best.wake_ps or (one.wake_ps == best.wake_ps and one.turn < best.turn):
                queue = other
        if node.dispatch[queue].wake_ps >= end_ps:
            return True
        c, start_ps = dispatch_step(
            node.dispatch, queue, node.cus, node.warps, node.staged[queue], node.output.gates, end_ps
        )
        if node.dispatch[queue].needs == 1:
            return False
        if c >= 0:
            node.cu_wake_ps[c] = min(node.cu_wake_ps[c], start_ps)


@compiled(inline=True)
def open_window(node, until_ps):
    """Begin the next time window: set its times, close the interval of the time series before it, dispatch workgroups.

    Args:
        until_ps: see `run_engine`.

    Returns:
        (Status, begin_ps, end_ps): OPEN and the window, or the reason why none begins. `engine.now_ps` is the end of
        the window.
    """
    engine = node.engine[0]
    while True:
        first_ps = engine.resume_ps if engine.resume_ps >= 0 else next_act_ps(node)
        engine.resume_ps = -1
        if first_ps == NEVER:
            return Status.IDLE, first_ps, first_ps
        begin_ps = max(first_ps // engine.grid_ps * engine.grid_ps, engine.now_ps)
        if begin_ps >= engine.horizon_ps:
            return Status.HORIZON, begin_ps, begin_ps
        if 0 <= until_ps <= begin_ps:
            engine.now_ps = max(engine.now_ps, grid_end_ps(engine, until_ps))
            return Status.UNTIL, begin_ps, begin_ps
        if engine.interval_ps == 0 or begin_ps < engine.next_sample_ps:
            break
        if not close_interval(node):
            return Status.SERIES_FULL, begin_ps, begin_ps
    end_ps = _end_ps(node, begin_ps, until_ps)
    if not run_dispatchers(node, end_ps):
        engine.resume_ps = begin_ps  # after a request to the host the same window begins again
        return Status.NEEDS_WORKGROUPS, begin_ps, end_ps
    engine.now_ps = end_ps
    return Status.OPEN, begin_ps, end_ps


@compiled(inline=True)
def _end_ps(node, begin_ps, until_ps):
    """End of the window. It passes neither until_ps nor the horizon, nor a sample, nor the choice of MCA's limit."""
    engine = node.engine[0]
    if node.mca[0].choose_ps <= begin_ps:
        choose_limit(node)
    end_ps = min(begin_ps + engine.window_ps, engine.horizon_ps, node.mca[0].choose_ps)
    if engine.interval_ps > 0:
        end_ps = min(end_ps, grid_end_ps(engine, engine.next_sample_ps))
    return min(end_ps, grid_end_ps(engine, until_ps)) if until_ps >= 0 else end_ps


@compiled(inline=True)
def close_window(node, ended):
    """End a time window whose phases have run: tell blocked units and the dispatchers what has happened.

    ended: 1 if a workgroup has ended in the window.
    """
    node.engine[0].windows += 1
    if ended == 1:
        collect_ended(node)
    retry_blocked(node)


@compiled(inline=True)
def _next_window(node, team, until_ps):
    """Close the window that has run, if there is one, and open the next one, while all other threads wait.

    Returns:
        (Status, begin_ps, end_ps): OPEN and the window, or the reason why the engine returns to the host.
    """
    begin_ps, end_ps = team[WINDOW + 1], team[WINDOW + 2]
    if team[WINDOW] == Status.OPEN:
        close_window(node, team[ENDED])
        team[ENDED] = team[JOBS] = team[DONE] = 0
        if until_ps < 0:
            return Status.UNTIL, begin_ps, end_ps
    return open_window(node, until_ps)


@compiled
def run_engine(node, team, me, until_ps):
    """Advance the machine until no work is left, or to until_ps, or until the host must act.

    Args:
        team: the words that its threads share (`sim.machine.team.make_team`); each thread calls this function.
        me: number of this thread.
        until_ps: nothing after this time (rounded up to a clock of the crossbar) has been simulated; negative: the end
            of one window.

    Returns:
        A Status, the same for all threads. `engine.now_ps` is the end of the last window.

    Reads and writes: all records of `node`.
    """
    turn = load(team, TURN)
    while True:
        found = meet(team, turn)
        if found == 1:
            team[WINDOW], team[WINDOW + 1], team[WINDOW + 2] = _next_window(node, team, until_ps)
            part(team, turn)
        status, begin_ps, end_ps = team[WINDOW], team[WINDOW + 1], team[WINDOW + 2]
        if found < 0 or status != Status.OPEN:
            return status
        run_units(node, team, me, end_ps)
        found = meet(team, turn + 1)
        if found == 1:
            part(team, turn + 1)
        turn += 2
        if found < 0 or not run_jobs(node, team, me, turn, begin_ps, end_ps):
            return status


@compiled
def rest_ps(node):
    """A time after all time windows of an idle machine: the last act of a unit, the time of data, two lookaheads.

    Data of a reduction can reach L2 after the last burst on a bus. Data of a load can reach a CU, or leave the
    memory-side cache, after the warp that asked for them has ended. The dispatchers look for work a lookahead after the
    last workgroup has ended.

    Reads: node.banks, node.channels, node.cus, node.engine, node.mscs, node.noc.
    """
    last_ps = node.noc[0].last_ack_ps
    for c in range(len(node.cus)):
        last_ps = max(last_ps, node.cus[c].last_exit_ps, node.noc[0].cu_in_ps[c] + node.noc[0].latency_ps)
    for b in range(len(node.banks)):
        last_ps = max(last_ps, node.banks[b].next_ps)
    for h in range(len(node.mscs)):
        last_ps = max(last_ps, node.mscs[h].next_ps, node.mscs[h].answered_ps)
    for h in range(len(node.channels)):
        last_ps = max(last_ps, node.channels[h].bus_end_ps, node.channels[h].row_ps)
    engine = node.engine[0]
    return grid_end_ps(engine, last_ps + engine.data_ps + 2 * engine.lookahead_ps)


@compiled
def settle(node, now_ps):
    """Update counters that are integrals over time to now_ps. Writes: node.channels, node.log."""
    for h in range(len(node.channels)):
        channel_settle(node.channels[h], now_ps, node.log)


@compiled
def prefill_l2(node, first_line, end):
    """Put the lines from first_line up to the address `end` into L2 as clean lines.

    Reads: node.banks, node.noc. Writes: node.l2_sets.
    """
    noc = node.noc[0]
    for number in range((end - first_line + LINE_BYTES - 1) // LINE_BYTES):
        line = canonical(first_line + number * LINE_BYTES)
        bank, cache_set = home_place(noc, line)
        l2_prefill(node.banks[bank], node.l2_sets, cache_set, line)
