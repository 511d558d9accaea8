"""Phase of the CUs, each with its load/store unit and L1, and the workgroups that have ended.

A phase runs units alone through a time window: the units `first` to `last` - 1 of its kind. Requests to other units
lower their wake times. `sim.machine.build` has the order of the phases and the connections of the units. Each file of
phases imports only its units, so an edited unit is compiled again without the others (`compiled(apart=True)`).
"""

from sim.hw.cu import cu_expect, cu_expect_work, cu_step
from sim.hw.mca import stage_ended
from sim.hw.request import NEVER
from sim.hw.spans import SpanKind, write_span
from sim.machine.engine_record import PORT_WAITS, WORKGROUP_ASKS, grid_end_ps
from tracer.compile.jit import compiled


@compiled(apart=True)
def run_cus(node, first, last, end_ps):
    """Run CUs, each with its load/store unit and L1. Returns 1 if a workgroup has ended, else 0.

    Reads: node.addresses, node.events, node.mail. Writes: node.bulks, node.cu_told_ps, node.cu_wake_ps, node.cus,
    node.fifos, node.l1_sets, node.l1s, node.leaving, node.lsus, node.news, node.output, node.peers, node.pool,
    node.steps, node.warps.
    """
    ended = 0
    for c in range(first, last):
        _expect_cus(node, c, last, end_ps)
        now_ps = min(node.cu_wake_ps[c], node.cu_told_ps[c])
        if now_ps >= end_ps:
            continue
        node.cu_told_ps[c] = NEVER
        cu, lsu, l1, warps = node.cus[c], node.lsus[c], node.l1s[c], node.warps[c]
        bulk, leaving, peer = node.bulks[c], node.leaving[c], node.peers[c]
        steps = 0
        while now_ps < end_ps:
            steps += 1
            now_ps = cu_step(
                *(cu, lsu, bulk, leaving, l1, node.l1_sets, node.fifos, node.pool, warps, peer, node.mail),
                *(node.events, node.addresses, node.output, now_ps, end_ps),
            )
        node.steps[c] += steps
        node.cu_wake_ps[c] = now_ps
        if cu.collected < cu.ended:
            ended = 1
        waits = lsu.port_room_ps == NEVER or bulk.port_room_ps == NEVER
        waits |= bulk.leaving > 0 and leaving.port_room_ps == NEVER
        news = (WORKGROUP_ASKS if cu.asking > 0 else 0) | (PORT_WAITS if waits else 0)
        if node.news[c] != news:
            node.news[c] = news
    return ended


@compiled(inline=True)
def _expect_cus(node, c, last, end_ps):
    """Hint to the host: the CUs behind CU c act soon, those up to `last` - 1."""
    first_answers = node.noc[0].first_answer_fifo
    soon, later = c + 1, c + 2
    if later < last and node.cu_wake_ps[later] < end_ps:
        answers = node.fifos[first_answers + later]
        cu_expect(node.cus[later], node.lsus[later], node.l1s[later], node.warps[later], answers, node.pool)
    if soon < last and node.cu_wake_ps[soon] < end_ps:
        answers = node.fifos[first_answers + soon]
        cu_expect_work(node.lsus[soon], node.l1s[soon], node.l1_sets, node.warps[soon], answers, node.pool)


@compiled
def collect_ended(node):
    """Collect workgroups that have ended, in the order of time. The dispatcher sees it a lookahead later (D7).

    Writes: node.cus, node.dispatch, node.engine, node.freed, node.mca, node.spans.
    """
    while True:
        chosen, chosen_ps = -1, NEVER
        for c in range(len(node.cus)):
            cu = node.cus[c]
            if cu.collected < cu.ended and cu.ended_ps[cu.collected] < chosen_ps:
                chosen, chosen_ps = c, cu.ended_ps[cu.collected]
        if chosen < 0:
            return
        _collect(node, chosen, chosen_ps)


@compiled
def _collect(node, c, ended_ps):
    """Collect the workgroup of CU c that ended first."""
    engine, cu = node.engine[0], node.cus[c]
    i = cu.collected
    write_span(
        *(node.spans, engine, SpanKind.WORKGROUP, c, cu.ended_queue[i], cu.ended_tag[i]),
        *(cu.ended_started_ps[i], ended_ps),
    )
    node.freed[engine.freed] = cu.ended_slab[i]
    engine.freed += 1
    own = node.dispatch[cu.ended_queue[i]]
    own.finished += 1
    own.last_exit_ps = max(own.last_exit_ps, ended_ps)
    seen_ps = ended_ps + engine.lookahead_ps
    for queue in range(len(node.dispatch)):
        dispatch = node.dispatch[queue]
        if dispatch.first_cu <= c < dispatch.last_cu:
            dispatch.wake_ps = min(dispatch.wake_ps, seen_ps)
    if cu.ended_queue[i] == 0:
        stage_ended(node.mca[0], node.dispatch[0].finished, grid_end_ps(engine, seen_ps))
    cu.collected += 1
    if cu.collected == cu.ended:
        cu.collected = cu.ended = 0
