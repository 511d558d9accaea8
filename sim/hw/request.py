"""The request: one 128-byte line of one warp event (or DMA burst), with a 4-bit mask of its 32-byte sectors.

Fifos carry requests, never sectors. A request keeps its stream and kind from the CU (or DMA engine) that issued it to
the DRAM bank that serves it. So every queue on its path can arbitrate and count by stream.

Some fields mean different things at different places:

| field | place | meaning |
|---|---|---|
| `load` | request or packet of a CU, and its answer | L1's miss entry that waits for the answer |
| `load` | store that leaves the GPU, until a port puts it on its wire | its SEND record |
| `load` | read of a DMA engine, and its data, until a port puts them on its wire | their SEND record |
| `load` | store that nobody awaits, also on the wire | -1 |
| `load` | request of L2 to memory | that of the request which caused it |
| `tag` | kernel's request | its workgroup; of a store into tracked output, the tile |
| `tag` | read of a DMA engine, and its data | the tile here |
| `tag` | store or DMA data on the wire, and as it arrives | the tile at the receiver |
| `share` | store into tracked output | share of the tile's sum (split-K), 0 = the first or only one (ledger) |
| `share` | multicast load, its answer, packet to a CU of the cluster | what it brings to transaction barriers |
| `contributors` | packet to a CU of the cluster | number of the cluster |
| `bank` | packet to a CU of the cluster | that CU |
| `line`, `tag` | packet to a CU without sectors: an arrival at a barrier | arrivals of a phase, bytes that it expects |
| `need` | atomic or reduction on its way to L2 | lanes at one address (D12), if the machine counts them |
| `need` | request that waits in L2 or in the memory-side cache | its sectors that are still missing |
| `next` | first place of a free miss entry of L2 | first place of the next free miss entry, -1 = none |
| `next` | free waiting place of the memory-side cache | next free place, -1 = none |
| `next` | waiting place of the memory-side cache in use | next request that waits for the line, -1 = none |
| `next` | read of L2 towards memory, and its data | first waiting place of its miss entry: a hint (`l2_expect_data`) |
"""

from enum import IntEnum

import numpy as np

from sim.hw.tags import sectors_in
from tracer.compile.jit import compiled
from traces.schema import LINE_BYTES, SECTOR_BYTES

SECTORS_PER_LINE = LINE_BYTES // SECTOR_BYTES
NEVER = (1 << 62) - 1
"""Wake time of a unit that waits for another unit (picoseconds)."""


class Op(IntEnum):
    """Operation of the memory system for a request."""

    READ = 0
    WRITE = 1
    UPDATE = 2  # near-memory op-and-store at the DRAM bank (T3, NMC); no answer
    ATOMIC = 3  # read-modify-write at L2 with an answer
    REDUCE = 4  # read-modify-write at L2 without an answer
    COMBINE = 5  # the switch adds it to what the other GPUs send to the line; the sum arrives as a write
    REMOTE = 6  # of the load/store unit: its lines go to another CU of the cluster (`sim.hw.peers`)
    DATA = 7  # on a link: what a load from another GPU brings back


class Stream(IntEnum):
    """Origin and kind of a request. Arbiters and counters use it."""

    COMPUTE_READ = 0
    COMPUTE_WRITE = 1  # a kernel's stores and updates, L2 write-backs
    COMM_READ = 2  # collective or DMA reads
    COMM_WRITE = 3  # arriving writes or updates of a collective


STREAMS = len(Stream)

# Small fields are signed: in numba, unsigned and signed integers together give float64.
REQUEST = np.dtype(
    [
        ("line", "i8"),  # byte address of the line, a multiple of 128; of an arrival, see above
        ("ready_ps", "i8"),  # the consumer may see the request from this time on
        ("born_ps", "i8"),  # when the CU or DMA engine issued it
        ("tag", "i4"),  # its workgroup or tile (table above), -1 = none; the Tracker's key
        ("load", "i4"),  # who waits for the answer, or where it goes (table above), -1 = neither
        ("contributors", "i8"),  # GPUs whose partial sums are in the data: bit k = the k-th before the sender (ledger)
        ("source", "i2"),  # requester: CU index within the GPU, or -1 - DMA engine
        ("bank", "i2"),  # L2 bank of the line (set by the NoC)
        ("cache_set", "i4"),  # its set in that bank
        ("sectors", "i1"),  # sectors touched, bit 0 = lowest address
        ("full", "i1"),  # sectors whose 32 bytes are all written (WRITE); equals `sectors` otherwise
        ("op", "i1"),  # Op
        ("stream", "i1"),  # Stream
        ("cache", "i1"),  # traces.schema.Cache
        ("link", "i1"),  # 1 + port over which it leaves the GPU, or has come; of a read that has come, over which its
        # data leave; 0 = it stays here
        ("wavefront", "i1"),  # of the workgroup, that stored the data; -1 = several: see the plan of the tile
        ("need", "i1"),  # sectors or lanes (table above)
        ("next", "i4"),  # another place for requests that wait (table above)
        ("share", "i4"),  # of the tile's sum, or what it brings to transaction barriers (table above), 0 = nothing
    ],
    align=True,
)


@compiled(inline=True)
def is_store(request):
    """A write or a reduction: an answer to it has no data. Reads: request."""
    return request.op == Op.WRITE or request.op == Op.REDUCE


@compiled(inline=True)
def is_awaited(request):
    """Does a warp wait for the acknowledgement of this store, behind a fence? Reads: request."""
    return request.load >= 0 and request.link == 0 and is_store(request)


@compiled(inline=True)
def data_bytes(request):
    """Bytes of data in a packet to a bank or to another GPU: a read has none yet. Reads: request."""
    return 0 if request.op == Op.READ else sectors_in(request.sectors) * SECTOR_BYTES
