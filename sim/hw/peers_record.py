"""The records of the way between CUs of a group: the ports of a CU, and a message in its mail."""

from enum import IntEnum
from itertools import pairwise

import numpy as np

from sim.hw.cu_record import MAX_WORKGROUPS
from tracer.compile.jit import compiled
from traces.units import whole_period_ps


class News(IntEnum):
    """What a message tells its CU."""

    ANSWER = 0  # the packet with L1 entry `entry` has been answered
    ARRIVAL = 1  # a warp arrives at a transaction barrier of the workgroups `ranks`
    BYTES = 2  # bytes came for a transaction barrier of the workgroups `ranks`
    OPEN = 3  # the barrier of the cluster is open for the workgroups `ranks`


MESSAGE = np.dtype(
    [
        ("ready_ps", "i8"),
        ("cluster", "i8"),  # which cluster is meant
        ("entry", "i4"),
        ("ranks", "i4"),  # set of workgroups
        ("number", "i4"),  # bytes, or arrivals of a phase
        ("bytes", "i4"),  # of an arrival: bytes that other workgroups bring
        ("barrier", "i2"),
        ("news", "i2"),
    ],
    align=True,
)

COUNTERS = {
    "packets": "packets to other CUs of the cluster, with those to the own CU",
    "packet_bytes": "bytes of these packets, header and data",
    "answer_bytes": "bytes of their answers, header and data",
    "multicast_lines": "lines from L2 that came for the copy of another workgroup",
    "multicast_bytes": "bytes of them",
    "cluster_barriers": "times that the barrier of the cluster opened for a workgroup",
    "dropped": "messages for workgroups that had ended",
}
"""Counter fields of PEERS and their meaning."""

PEERS = np.dtype(
    [
        # constants
        ("cu", "i8"),
        ("port", "i8"),  # fifo of packets that leave the CU
        ("latency_ps", "i8"),
        ("period_ps", "i8"),  # of the CU
        ("slot_ps", "i8"),  # packets that leave in the same slot take turns: a clock of the crossbar
        ("bytes_per_clk", "i8"),
        ("header_bytes", "i8"),
        # state
        ("out_ps", "i8"),  # until when its ports are booked: packets that leave ...
        ("in_ps", "i8"),  # ... and come,
        ("answer_out_ps", "i8"),  # answers that leave ...
        ("answer_in_ps", "i8"),  # ... and come
        ("head", "i8"),  # the first message of the ring ...
        ("tail", "i8"),  # ... and one past the last
        ("waiting", "i8"),  # tail - head
        # counters
        ("packets", "i8"),
        ("packet_bytes", "i8"),
        ("answer_bytes", "i8"),
        ("multicast_lines", "i8"),
        ("multicast_bytes", "i8"),
        ("cluster_barriers", "i8"),
        ("dropped", "i8"),
    ],
    align=True,
)


def make_peers(machine, ports):
    """One PEERS per CU. ports: fifo number of each CU's port, empty without clusters."""
    cu, period_ps = machine.cu, whole_period_ps(machine.cu.clock_MHz)
    peers = np.zeros(cu.count, PEERS)
    peers["cu"], peers["port"] = np.arange(cu.count), ports if len(ports) else -1
    peers["latency_ps"], peers["period_ps"] = cu.peer_latency_clk * period_ps, period_ps
    peers["bytes_per_clk"], peers["header_bytes"] = cu.peer_bytes_per_clk, machine.noc.header_bytes
    peers["slot_ps"] = whole_period_ps(machine.noc.clock_MHz)
    return peers


@compiled(inline=True)
def first_cu(cus, groups, group):
    """The first CU of a group: pairs of CUs are divided as evenly as possible. With fewer pairs some groups are empty.

    cus, groups: their number in the GPU.
    """
    return cus if group == groups else cus // 2 * group // groups * 2


def groups_of(cu):
    """First CU and end of each group. cu: sim.spec.ComputeUnit."""
    edges = [first_cu(cu.count, cu.groups, group) for group in range(cu.groups + 1)]
    return list(pairwise(edges))


def mail_places(machine):
    """Places for messages of a CU, a power of two: each packet or line of the group holds an entry of L1 and gives one
    message, and those of the CU itself two."""
    widest = max(end - first for first, end in groups_of(machine.cu))
    return 1 << ((widest + 1) * machine.l1.mshrs + MAX_WORKGROUPS - 1).bit_length()
