"""Events of the load/store unit that go to other CUs of the cluster: distributed shared memory, remote arrivals.

Their lines leave through the port towards the other CUs (`sim.hw.peers`), past L1. Each holds an entry of L1 until it
is answered. A remote access is cut into lines as one to global memory (CUDA: it should be as coalesced as that).
"""

import numpy as np

from sim.hw.l1 import BYPASS, l1_miss
from sim.hw.lsu_lines import op_of, open_load, send_to_peer
from sim.hw.request import Op, Stream
from sim.hw.signals import pack_signal
from tracer.coalesce import coalesce_at
from tracer.compile.jit import compiled
from traces.schema import NO_SLOT, Kind


@compiled
def lsu_start_remote(lsu, warps, w, event, addresses, resident, now_ps):
    """Start an event of warp w that goes to other CUs of its cluster: an access to remote shared memory, or an arrival
    at transaction barriers. `lsu_advance` sends its lines.

    Reads: event, addresses, resident. Writes: lsu, warps.
    """
    lsu.port, lsu.op = lsu.peer_port, Op.REMOTE
    lsu.next_line = lsu.lines = lsu.signal = 0
    lsu.cache = lsu.link = lsu.contributors = lsu.share = lsu.stores = lsu.store = 0
    lsu.cluster, lsu.stream, lsu.tag = resident.cluster, Stream.COMPUTE_READ, 0
    ranks = np.int64(event.cycles)
    if event.kind == Kind.BARRIER:
        lsu.remote_op, lsu.signal = Op.WRITE, 1 + event.slot
        lsu.arrivals, lsu.expected_bytes = np.int64(event.work), event.row_stride
        for rank in range(resident.size):
            if (ranks >> rank) & 1 == 1 and rank != resident.rank:
                _add_peer(lsu, lsu.lines, resident, rank)
                lsu.line[lsu.lines] = lsu.sectors[lsu.lines] = lsu.full[lsu.lines] = 0
                lsu.lines += 1
        lsu.load = open_load(lsu, warps, w, NO_SLOT, now_ps)
    else:
        lsu.remote_op = op_of(event.kind)
        lsu.lines = coalesce_at(event, np.int64(event.base), addresses, lsu.line, lsu.sectors, lsu.full)
        rank = 0
        while ranks >> (rank + 1) != 0:
            rank += 1
        for i in range(lsu.lines):
            _add_peer(lsu, i, resident, rank)
        lsu.load = open_load(lsu, warps, w, event.slot, now_ps)
    lsu.free_ps = now_ps


@compiled(inline=True)
def _add_peer(lsu, i, resident, rank):
    """Line i goes to the workgroup of this rank."""
    lsu.peer[i], lsu.peer_rank[i] = resident.members[rank], rank


@compiled
def send_remote(lsu, l1, fifos, pool, i, now_ps):
    """Send a line to another CU of the cluster. It holds an entry of L1 until it is answered."""
    lsu.load_table[lsu.load].answers += 1
    entry = l1_miss(l1, lsu.line[i], lsu.sectors[i], lsu.load, BYPASS)
    share = pack_signal(1 << np.int64(lsu.peer_rank[i]), 0, lsu.signal - 1, 1) if lsu.signal > 0 else 0
    packet = send_to_peer(
        lsu, fifos, pool, entry, lsu.remote_op, lsu.sectors[i], lsu.peer[i], share, lsu.free_ps, now_ps
    )
    packet.contributors = lsu.cluster
    if lsu.signal > 0:
        packet.line, packet.tag = lsu.arrivals, lsu.expected_bytes
