"""The records of a workgroup dispatcher: a dispatch queue, which is one kernel in progress, and the trace window."""

import numpy as np

from sim.hw.cu_record import ARRAYS
from sim.hw.residency import RESOURCES
from sim.hw.warp import MAX_WARPS
from traces.schema import MAX_CLUSTER

QUEUES = 4
"""Dispatch queues of a GPU: the number of kernels in progress at once."""

STAGED = np.dtype(
    [
        ("tag", "i8"),  # workgroup number in the grid, or the output tile it makes
        ("gate", "i8"),  # 1 + gate that must be open before it starts, 0 = none
        ("slab", "i4"),
        ("warps", "i4"),
        ("warp", "u2", MAX_WARPS),  # number of each warp within the workgroup
        ("first_event", "i8", MAX_WARPS),  # of each warp, in the slab; a program ends with EXIT
        ("shift_bytes", "i8", ARRAYS),  # its address - the address in the slab, per array
    ],
    align=True,
)
"""A workgroup in the trace window, ready to be dispatched."""

DISPATCH = np.dtype(
    [
        # constants of the machine
        ("lookahead_ps", "i8"),
        ("cus", "i8"),
        ("groups", "i8"),  # of CUs
        # constants of the kernel in progress
        ("first_cu", "i8"),
        ("last_cu", "i8"),  # one past
        ("places", "i8"),  # workgroups per CU
        ("warps", "i8"),  # per workgroup
        ("order", "i8"),  # WorkgroupOrder
        ("partitions", "i8"),  # among which workgroups take turns (BY_PARTITION)
        ("interval_ps", "i8"),
        ("jitter_ps", "i8"),
        ("seed", "i8"),
        ("comm", "i8"),
        ("shares", "i8"),  # 1: other kernels may run on its CUs
        ("kernels", "i8"),  # KernelOrder
        ("cluster", "i8"),  # workgroups of a cluster
        ("takes", "i8", len(RESOURCES)),  # by a workgroup
        ("holds", "i8", len(RESOURCES)),  # a CU
        # state
        ("wake_ps", "i8"),  # when it can place a workgroup, NEVER = it waits for a free place
        ("next_ps", "i8"),  # no dispatch before
        ("staged", "i8"),  # workgroups put into the window so far
        ("taken", "i8"),  # dispatched so far
        ("finished", "i8"),
        ("ended", "i8"),  # 1: the host has staged the last one
        ("needs", "i8"),  # 1: waits for the host
        ("gated", "i8"),  # 1: the next workgroup waits for its gate
        ("last_exit_ps", "i8"),  # when its last workgroup so far ended
        ("placed", "i8"),  # 1: all its workgroups have got places
        ("keeps", "i8"),  # places that it keeps, 0 = none: each workgroup takes one and leaves it
        ("kept", "i8"),  # of them, those that it has ...
        ("kept_ps", "i8"),  # ... the last one at this time
        ("turn", "i8"),  # of the kernels that take turns: grows with each place, the lowest one is next
        ("start_ps", "i8"),  # of the cluster that is being dispatched ...
        ("members", "i2", MAX_CLUSTER),  # ... and the places of its workgroups
    ],
    align=True,
)
