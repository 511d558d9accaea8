"""What each thread of a team does in a time window. The window has two halves with a meeting between them.

First half, unit by unit: the memory channels, each with its L2 banks and its memory-side cache, and the CUs. Second
half, three jobs: requests cross the NoC, answers cross the NoC, and the traffic between GPUs. In one half no two
threads write the same fifo or wake time. What crosses in the second half takes a lookahead or more, so it arrives in a
later window. So it does not matter which thread runs what.
"""

from sim.hw.msc import run_mscs
from sim.machine.fabric import run_arrivals, run_dmas, run_links
from sim.machine.phases import retry_memory, run_answers, run_banks, run_channels, run_cus, run_requests
from sim.machine.team import ENDED, JOBS, SENT, THREADS, first_of, give_back, next_part, wait_until
from sim.machine.tracking import run_tracker
from tracer.compile.atomics import add, store
from tracer.compile.jit import compiled

REQUESTS, FABRIC, ANSWERS, ALL_JOBS = range(4)
"""Jobs of the second half; the longer ones first."""


@compiled(inline=True)
def run_units(node, team, me, end_ps):
    """The first half of a window on thread `me`."""
    channels, cus, threads = len(node.channels), len(node.cus), team[THREADS]
    first, last = first_of(channels, team, me), first_of(channels, team, me + 1)
    run_banks(node, first, last, end_ps)
    if len(node.mscs) > 0:
        run_mscs(node, first, last, end_ps)
    run_channels(node, first, last, end_ps)
    retry_memory(node, first, last, end_ps)
    for k in range(threads):
        owner = me + k if me + k < threads else me + k - threads
        first, last = next_part(cus, team, owner)
        while first < last:
            if run_cus(node, first, last, end_ps) == 1:
                store(team, ENDED, 1)
            first, last = next_part(cus, team, owner)


@compiled(inline=True)
def run_jobs(node, team, me, turn, begin_ps, end_ps):
    """The second half of a window on thread `me`. turn: number of meetings before it.

    Returns False if another thread has failed: then the caller must return.
    """
    give_back(team, me)
    joined = len(node.ports) > 0
    while True:
        job = add(team, JOBS, 1)
        if job == REQUESTS:
            run_requests(node, begin_ps, end_ps)
            store(team, SENT, turn)
        elif job == FABRIC and joined:
            run_arrivals(node, begin_ps, end_ps)
            run_tracker(node, begin_ps, end_ps)
            run_dmas(node, begin_ps, end_ps)
            if not wait_until(team, SENT, turn):  # requests that leave the GPU go into fifos of the links
                return False
            run_links(node, begin_ps, end_ps)
        elif job == ANSWERS:
            run_answers(node, begin_ps, end_ps)
        elif job >= ALL_JOBS:
            return True
