"""What each thread of a team does in a time window. The window has two halves with a meeting between them.

First half: the L2 banks and the CUs. Second half: requests cross the NoC, answers cross the NoC and packets go from CU
to CU, the memory channels, each with its memory-side cache, and at last the traffic between GPUs. In one half no two
threads write the same fifo or wake time. What one half tells the other takes a lookahead or more, so it matters in a
later window only, or the other half comes later in the window. So it does not matter which thread runs what.
"""

from sim.machine.clusters import run_peers
from sim.machine.phase_banks import run_banks
from sim.machine.phase_cus import run_cus
from sim.machine.phase_dma import run_dmas
from sim.machine.phase_links import run_arrivals, run_links
from sim.machine.phase_memory import retry_memory, run_channels, run_mscs
from sim.machine.phase_noc import run_answers, run_requests
from sim.machine.team import (
    ANSWERED,
    CHANNELS,
    CUS,
    DONE,
    ENDED,
    JOBS,
    SENT,
    THREADS,
    first_of,
    next_part,
    take_again,
    wait_until,
)
from sim.machine.tracking import run_tracker
from tracer.compile.atomics import add, store
from tracer.compile.jit import compiled

REQUESTS, ANSWERS, ALL_JOBS = range(3)
"""Jobs of the second half that one thread does; the longer one first."""


@compiled(inline=True)
def run_units(node, team, me, end_ps):
    """The first half of a window on thread `me`."""
    take_again(team, CHANNELS, me)
    groups, cus, threads = node.noc[0].channel_groups, len(node.cus), team[THREADS]
    run_banks(node, first_of(groups, team, me), first_of(groups, team, me + 1), end_ps)
    for k in range(threads):
        owner = me + k if me + k < threads else me + k - threads
        first, last = next_part(cus, team, CUS, owner)
        while first < last:
            if run_cus(node, first, last, end_ps) == 1:
                store(team, ENDED, 1)
            first, last = next_part(cus, team, CUS, owner)


@compiled(inline=True)
def run_jobs(node, team, me, turn, begin_ps, end_ps):
    """The second half of a window on thread `me`. turn: number of meetings before it.

    Returns False if another thread has failed: then the caller must return.
    """
    take_again(team, CUS, me)
    job = add(team, JOBS, 1)
    while job < ALL_JOBS:
        if job == REQUESTS:
            run_requests(node, begin_ps, end_ps)
            store(team, SENT, turn)
        else:
            run_answers(node, begin_ps, end_ps)
            store(team, ANSWERED, turn)
            if len(node.peer_units) > 0:  # it wakes CUs too
                run_peers(node, begin_ps, end_ps)
        job = add(team, JOBS, 1)
    channels, threads = len(node.channels), team[THREADS]
    for k in range(threads):
        owner = me + k if me + k < threads else me + k - threads
        first, last = next_part(channels, team, CHANNELS, owner)
        while first < last:
            if len(node.mscs) > 0:
                run_mscs(node, first, last, end_ps)
            run_channels(node, first, last, end_ps)
            retry_memory(node, first, last, end_ps)
            done = add(team, DONE, last - first) + last - first
            if done == channels and len(node.ports) > 0 and not _run_fabric(node, team, turn, begin_ps, end_ps):
                return False
            first, last = next_part(channels, team, CHANNELS, owner)
    return True


@compiled
def _run_fabric(node, team, turn, begin_ps, end_ps):
    """The traffic between GPUs, on the thread that has run the last channel. Returns False if a thread has failed."""
    if not wait_until(team, ANSWERED, turn):  # loads of other GPUs are answered into fifos of the links
        return False
    run_arrivals(node, begin_ps, end_ps)
    run_tracker(node, begin_ps, end_ps)
    run_dmas(node, begin_ps, end_ps)
    if not wait_until(team, SENT, turn):  # requests that leave the GPU go into fifos of the links
        return False
    run_links(node, begin_ps, end_ps)
    return True
