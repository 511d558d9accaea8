"""Phase of the clusters of workgroups in a time window: the barrier of a cluster, and packets between CUs.

What it tells a CU comes a latency later at the earliest, which is no shorter than a time window.
"""

from sim.hw.cu_record import MAX_WORKGROUPS
from sim.hw.peers import carry_packets, post
from sim.hw.peers_record import News
from sim.hw.signals import member_cu, member_place
from tracer.compile.jit import compiled


@compiled(apart=True)
def run_peers(node, begin_ps, end_ps):
    """Open barriers of clusters and carry packets between CUs, if a kernel with clusters is in progress.

    Writes: node.cu_wake_ps, node.cus, node.engine, node.fifos, node.mail, node.peers, node.pool.
    """
    if node.engine[0].clustered == 0:
        return
    for c in range(len(node.cus)):
        if node.cus[c].tells > 0:
            node.cus[c].tells = 0
            for place in range(MAX_WORKGROUPS):
                resident = node.cus[c].resident[place]
                if resident.tag >= 0 and resident.told_ps >= begin_ps:
                    _open_cluster(node, resident)
    node.engine[0].peers_ps = carry_packets(
        node.peers, node.mail, node.fifos, node.pool, begin_ps, end_ps, node.cu_wake_ps
    )


@compiled
def _open_cluster(node, resident):
    """Open the barrier of a cluster if all its workgroups have arrived or ended. They see it a latency later."""
    last_ps = resident.told_ps
    for rank in range(resident.size):
        other = _workgroup(node, resident, rank)
        later = other.told_ps < 0 or other.told_ps > last_ps or (other.told_ps == last_ps and rank > resident.rank)
        if other.cluster == resident.cluster and later:
            return  # the last one opens it, of several the one of highest rank
    for rank in range(resident.size):
        other = _workgroup(node, resident, rank)
        if other.cluster == resident.cluster and other.alive > 0:
            c = member_cu(resident.members[rank])
            open_ps = last_ps + node.peers[c].latency_ps
            post(node.peers[c], node.mail, open_ps, News.OPEN, resident.cluster, 1 << rank)
            node.cu_wake_ps[c] = min(node.cu_wake_ps[c], open_ps)


@compiled(inline=True)
def _workgroup(node, resident, rank):
    """The record at the place of a workgroup of the cluster. If that has ended, the place may be another's."""
    return node.cus[member_cu(resident.members[rank])].resident[member_place(resident.members[rank])]
