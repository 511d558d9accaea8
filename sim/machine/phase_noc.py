"""Phases of the NoC, and what waits for room in it."""

from sim.hw.bulk import bulk_retry_ps
from sim.hw.lsu import lsu_retry_ps
from sim.hw.noc import noc_requests, noc_wake_ps
from sim.hw.noc_answers import noc_answers
from sim.hw.request import NEVER
from sim.machine.engine_record import PORT_WAITS
from tracer.compile.jit import compiled


@compiled(apart=True)
def run_requests(node, begin_ps, end_ps):
    """Carry requests over the NoC. Writes: node.bank_wake_ps, node.fifos, node.noc, node.pool."""
    noc = node.noc[0]
    noc.requests_ps = noc_requests(noc, node.fifos, node.pool, begin_ps, end_ps, node.bank_wake_ps)


@compiled(apart=True)
def run_answers(node, begin_ps, end_ps):
    """Carry answers over the NoC.

    Reads: node.cus. Writes: node.copy_told_ps, node.cu_wake_ps, node.fifos, node.mail, node.noc, node.peers, node.pool.
    """
    noc = node.noc[0]
    clusters = node.cus, node.peers, node.mail
    noc.answers_ps = noc_answers(
        noc, node.fifos, node.pool, begin_ps, end_ps, clusters, node.copy_told_ps, node.cu_wake_ps
    )


@compiled
def retry_blocked(node):
    """CUs and requests at the crossbar that wait for room continue when their credits come.

    Reads: node.fifos, node.news, node.pool. Writes: node.bulks, node.cu_wake_ps, node.leaving,
    node.lsus, node.noc.
    """
    for c in range(len(node.cus)):
        if node.news[c] & PORT_WAITS != 0:
            if node.lsus[c].port_room_ps == NEVER:
                retry_ps = lsu_retry_ps(node.lsus[c], node.fifos, node.pool)
                node.cu_wake_ps[c] = min(node.cu_wake_ps[c], retry_ps)
            if node.bulks[c].port_room_ps == NEVER:
                retry_ps = bulk_retry_ps(node.bulks[c], node.fifos, node.pool)
                node.cu_wake_ps[c] = min(node.cu_wake_ps[c], retry_ps)
            if node.bulks[c].leaving > 0 and node.leaving[c].port_room_ps == NEVER:
                retry_ps = bulk_retry_ps(node.leaving[c], node.fifos, node.pool)
                node.cu_wake_ps[c] = min(node.cu_wake_ps[c], retry_ps)
    noc = node.noc[0]
    noc.requests_ps = min(noc.requests_ps, noc_wake_ps(noc, node.fifos, node.pool))
