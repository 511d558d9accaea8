"""Clusters in the workgroup dispatcher: a group of CUs with room for all workgroups of a cluster, and who they are."""

from sim.hw.dispatch_record import QUEUES
from sim.hw.peers_record import first_cu
from sim.hw.signals import member, member_cu, member_place
from sim.spec import WorkgroupOrder
from tracer.compile.jit import compiled


@compiled(inline=True)
def _group_edge(dispatch, group):
    """The first CU of a group that the queue may use."""
    return min(max(first_cu(dispatch.cus, dispatch.groups, group), dispatch.first_cu), dispatch.last_cu)


@compiled
def choose_group(dispatch, cus):
    """Group of CUs for the next cluster, -1 if none has room. Breadth-first: the one with most free places.

    Reads: dispatch, cus.
    """
    best, most = -1, dispatch.cluster - 1
    for group in range(dispatch.groups):
        room = 0
        for c in range(_group_edge(dispatch, group), _group_edge(dispatch, group + 1)):
            room += max(0, dispatch.places - cus[c].taken)
        if room > most:
            best, most = group, room
            if dispatch.order == WorkgroupOrder.DEPTH_FIRST:
                break
    return best


@compiled
def _choose_in_group(dispatch, cus, group):
    """CU for the next workgroup of a cluster in a group that has room for it."""
    best = -1
    for c in range(_group_edge(dispatch, group), _group_edge(dispatch, group + 1)):
        if cus[c].taken < dispatch.places and (best < 0 or cus[c].taken < cus[best].taken):
            best = c
            if dispatch.order == WorkgroupOrder.DEPTH_FIRST:
                break
    return best


@compiled
def cluster_cu(dispatch, cus):
    """CU for the next workgroup of a kernel with clusters, -1 if the group of the next cluster has no room.

    Reads: dispatch, cus.
    """
    rank = dispatch.taken % dispatch.cluster
    group = choose_group(dispatch, cus) if rank == 0 else 0
    if group < 0:
        return -1
    while rank > 0 and _group_edge(dispatch, group + 1) <= member_cu(dispatch.members[0]):
        group += 1
    return _choose_in_group(dispatch, cus, group)


@compiled
def join_cluster(dispatch, queue, cus, c, place):
    """The workgroup in this place of a CU is the next one of its cluster. The last one tells all who they are.

    Writes: dispatch, cus.
    """
    size, rank = dispatch.cluster, dispatch.taken % dispatch.cluster
    dispatch.members[rank] = member(c, place)
    resident = cus[c].resident[place]
    resident.cluster = (dispatch.taken - rank) * QUEUES + queue
    resident.rank, resident.size = rank, size
    if rank == size - 1:
        for one in range(size):
            resident = cus[member_cu(dispatch.members[one])].resident[member_place(dispatch.members[one])]
            for other in range(size):
                resident.members[other] = dispatch.members[other]
