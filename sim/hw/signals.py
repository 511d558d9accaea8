"""What a line brings to transaction barriers of a cluster, in the field `share` of its request."""

import numpy as np

from sim.hw.cu_record import MAX_WORKGROUPS
from tracer.compile.jit import compiled
from traces.schema import BARRIERS, LINE_BYTES, MAX_CLUSTER

BYTES_BITS, BARRIER_BITS, PLACE_BITS = 7, 4, 5
RANKS_FROM = BYTES_BITS + BARRIER_BITS + PLACE_BITS
ALL_RANKS = (1 << MAX_CLUSTER) - 1

assert LINE_BYTES == 1 << BYTES_BITS and BARRIERS == 1 << BARRIER_BITS and MAX_WORKGROUPS == 1 << PLACE_BITS
assert RANKS_FROM + MAX_CLUSTER == 32


@compiled(inline=True)
def pack_signal(ranks, place, barrier, data_bytes):
    """A signal as a number of 32 bits, not 0.

    Args:
        ranks: set of workgroups whose barriers get it, not empty. place: of the sender in its CU. data_bytes: 1 to 128.
    """
    packed = (np.int64(place) << (BYTES_BITS + BARRIER_BITS)) | (np.int64(barrier) << BYTES_BITS) | (data_bytes - 1)
    packed |= np.int64(ranks) << RANKS_FROM
    return packed - ((packed >> 31) << 32)


@compiled(inline=True)
def unpack_signal(packed):
    """(ranks, place, barrier, bytes) of `pack_signal`."""
    packed = np.int64(packed)
    place, barrier = packed >> (BYTES_BITS + BARRIER_BITS), packed >> BYTES_BITS
    data_bytes = (packed & (LINE_BYTES - 1)) + 1
    return (packed >> RANKS_FROM) & ALL_RANKS, place & (MAX_WORKGROUPS - 1), barrier & (BARRIERS - 1), data_bytes


@compiled(inline=True)
def member(cu, place):
    """A place of a CU as a number: how residents name the workgroups of their cluster."""
    return cu << PLACE_BITS | place


@compiled(inline=True)
def member_cu(number):
    """The CU of a `member`."""
    return np.int64(number) >> PLACE_BITS


@compiled(inline=True)
def member_place(number):
    """The place of a `member` in its CU."""
    return np.int64(number) & (MAX_WORKGROUPS - 1)
