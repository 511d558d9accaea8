"""Address-space configuration of tracked buffers (T3), and the state of each of their tiles.

It is plain data. A plan (`sim.collective`) writes it; the load/store units, the Tracker and the DMA engines read it. A
run has one or more *buffers*, each a range of addresses cut into tiles. The tiles of all buffers have consecutive
numbers. The tag of a request is the number of its tile. A tile gives the destination of kernels' stores into it (here,
other GPUs, or both), their operation (store, or add near memory), and the bytes that must come. When they have come,
there are three possible actions: none, DMA engines send the tile to other GPUs, or the tile counts for a gate.

Memory of another GPU is seen through a window: address + (1 + port) << PEER_BITS.
"""

import numpy as np

from sim.hw.bits import splitmix64
from sim.hw.request import LINE_BYTES, SECTOR_BYTES, SECTORS_PER_LINE
from tracer.compile.atomics import add_field
from tracer.compile.jit import compiled
from tracer.gemm.store_parts import PARTS

PEER_BITS = 46
"""Local addresses are smaller: an all-to-all of MAX_GPUS has 127 receive buffers. The bits above name the port to the
GPU that owns the memory."""
BUFFER_BITS = 38
"""Distance of a receive buffer from the output and from the next one. Receive buffers have the output's layout."""
BUFFER_SKEW_BYTES = 1 << 19
"""Added for each receive buffer, as in a heap: at equal offsets all buffers would start in the same DRAM banks."""
MAX_GPUS = 64
"""Each GPU is one bit in a set of contributors."""
MAX_PORTS = MAX_GPUS - 1


TILE = np.dtype(
    [
        # configuration
        ("address", "i8"),  # first byte
        ("runs", "i8"),  # rows
        ("run_bytes", "i8"),  # adjacent bytes of a row
        ("pitch_bytes", "i8"),  # from row to row
        ("bytes", "i8"),  # of all its sectors
        ("routed", "i8"),  # 1: a kernel's stores into it are not plain; the next four fields describe them
        ("op", "i8"),  # Op: WRITE, UPDATE or COMBINE
        ("stay", "i8"),  # 1: they are executed here
        ("stores", "i8"),  # number of GPUs that they go to: number of SEND records ...
        ("first_store", "i8"),  # ... and the first of them
        ("threshold_bytes", "i8"),  # bytes of contributions until the trigger, all wavefronts together; 0 = not tracked
        ("entry", "i8"),  # 1: its first local store needs an entry of the Tracker
        ("sends", "i8"),  # actions of DMA engines at the trigger: number of SEND records, in turn, ...
        ("first_send", "i8"),  # ... and the first of them
        ("own", "i8"),  # 1: the sent data include this GPU's contribution; 0: only if nothing has arrived
        ("alone", "i8"),  # 1: what a collective's kernel sends from it is this GPU's contribution only
        ("granularity", "i8"),  # Granularity: the unit in which it is sent
        ("parts", PARTS),  # the part of it that each wavefront stores
        ("chunk", "i8"),  # DmaPolicy.CHUNK: released with the other tiles of its chunk
        ("gate", "i8"),  # gate that the tile credits: at its trigger, or (not tracked) at each arrival; -1 = none
        # state of the Tracker
        ("begun", "i8"),  # 1: it has got its entry ...
        ("granted_ps", "i8"),  # ... and local stores may begin
        ("live", "i8"),  # 1: some updates have come, but not all
        ("counting", "i8"),  # wavefronts whose counters are below their thresholds
        # ledger
        ("local_bytes", "i8"),  # updates or final writes of this GPU
        ("local_sum", "i8"),  # sum of their line fingerprints, each times the weight of its share
        ("arrived_bytes", "i8"),
        ("arrived_sum", "i8"),  # the same for arrivals, times the weight of their contributors
        ("arrived", "i8"),  # set of GPUs whose contributions have arrived: bit k = the k-th before this one
        ("sent_bytes", "i8"),
        ("sent_sum", "i8"),
        ("triggers", "i8"),
        ("early", "i8"),  # lines sent before all their data had arrived
        ("done_ps", "i8"),  # time of the trigger, or of the last arrival
    ],
    align=True,
)

LOCAL_BYTES, LOCAL_SUM, EARLY = (dict(TILE.fields or {})[name][1] for name in ("local_bytes", "local_sum", "early"))
"""Places of fields to which several CUs, and so several threads, add at the same time."""

WAVEFRONT = np.dtype(
    [
        # its part of the tile; runs = 0 if the part is not a rectangle
        ("first_run", "i8"),
        ("runs", "i8"),
        ("first_byte", "i8"),  # within a row
        ("run_bytes", "i8"),
        ("bytes", "i8"),  # of all its sectors
        ("threshold_bytes", "i8"),  # bytes of updates until the trigger; 0 = not tracked, or beyond the output's edge
        # state
        ("counted_bytes", "i8"),
        ("triggers", "i8"),
        ("done_ps", "i8"),  # time of the trigger
        # ledger
        ("arrived_bytes", "i8"),
        ("arrived", "i8"),  # set of GPUs whose sums have arrived
    ],
    align=True,
)
"""A wavefront's counter in the Tracker's entry for a tile."""

GATE = np.dtype(
    [
        ("needed_bytes", "i8"),
        ("arrived_bytes", "i8"),
        ("open_ps", "i8"),  # when the last of them came, NEVER until then
        ("delay_ps", "i8"),  # software overhead before workgroups behind the gate start
    ]
)
"""A gate: workgroups wait until its bytes have arrived (D23). It models a flag that a kernel would poll."""

SEND = np.dtype(
    [
        ("port", "i8"),  # over which it leaves
        ("op", "i8"),  # Op at the receiver: WRITE or UPDATE; COMBINE: added in the switch
        ("tag", "i8"),  # its tile at the receiver
        ("shift_bytes", "i8"),  # address at the receiver - address here: whole lines
    ]
)
"""A destination of a tile, for stores into it or for a DMA engine when the tile is complete."""

SPACE = np.dtype(
    [
        ("first_byte", "i8"),  # of a buffer
        ("end_byte", "i8"),
        ("first_tag", "i8"),  # of its tiles
        ("tiles", "i8"),  # workgroup w of the kernel that stores into it makes tile w % tiles, share w // tiles of it
        # the same in all records
        ("gpus", "i8"),
        ("set_mask", "i8"),  # all contributors
        ("mirrored", "i8"),  # 1: packets that leave over a port come back as packets of the GPU at its other end
    ]
)

MIRROR = np.dtype([("tag", "i8"), ("shift_bytes", "i8")])
"""The tile that arrives, mirrored, when a tile leaves over a port, and the difference of their addresses."""


@compiled(inline=True)
def space_of(spaces, address):
    """Number of the buffer that contains an address, -1 if no buffer does. Reads: spaces."""
    for number in range(len(spaces)):
        if spaces[number].first_byte <= address < spaces[number].end_byte:
            return number
    return -1


@compiled(inline=True)
def tile_of(space, workgroup):
    """(tag of the tile that a workgroup stores into, share of its sum). Reads: space."""
    share = workgroup // space.tiles
    return space.first_tag + workgroup - share * space.tiles, share


@compiled
def fingerprint(tile, line, sectors):
    """Sum, over the sectors of a line, of a hash of their position in the tile (splitmix64).

    Sums of fingerprints show which sectors came and how often. They depend neither on the order of the sectors nor on
    how the sectors were packed into requests.

    Reads: tile.
    """
    offset = line - tile.address // LINE_BYTES * LINE_BYTES
    buffer = offset >> BUFFER_BITS
    place = (offset - (buffer << BUFFER_BITS) - buffer * BUFFER_SKEW_BYTES) // SECTOR_BYTES
    total = np.uint64(0)
    for sector in range(SECTORS_PER_LINE):
        if (sectors >> sector) & 1:
            total += splitmix64(place + sector, 0)
    return np.int64(total)


@compiled
def contributor_weight(contributors):
    """Sum of one odd random number per GPU of a set. Sums of weights show which GPUs contributed and how often."""
    total = np.uint64(0)
    for place in range(MAX_GPUS):
        if (contributors >> place) & 1:
            total += splitmix64(1000 + place, 0) | np.uint64(1)
    return np.int64(total)


def all_gpus(gpus):
    """The set of all GPUs as a signed number: -1 of 64."""
    return np.uint64((1 << int(gpus)) - 1).view(np.int64)


@compiled
def share_weight(share):
    """Weight of one share of a tile's sum (split-K)."""
    return 2 * share + 1


@compiled
def rotated(contributors, places, gpus, set_mask):
    """A set of GPUs as seen from the GPU `places` ahead."""
    wide = contributors & set_mask
    behind = (wide >> (gpus - places)) & ((np.int64(1) << places) - 1)  # of 64 GPUs the last one is the sign
    return ((wide << places) | behind) & set_mask


@compiled
def held(tile):
    """Contributors of a tile that this GPU sends: all arrived ones, and itself if it adds its own sum.

    Returns 0, which the ledger refuses, if a part has not arrived yet.

    Writes: tile.
    """
    if tile.arrived_bytes % tile.bytes != 0:
        add_field(tile, EARLY, 1)
        return np.int64(0)
    if tile.own == 0 and tile.arrived != 0:
        return tile.arrived
    return np.int64(1) | tile.arrived


@compiled
def held_by_wavefront(tile, wavefront):
    """Contributors of one wavefront's part of a tracked tile, like `held`. Reads: wavefront. Writes: tile."""
    if wavefront.arrived_bytes % wavefront.bytes != 0:
        tile.early += 1
        return np.int64(0)
    if tile.own == 0 and wavefront.arrived != 0:
        return wavefront.arrived
    return np.int64(1) | wavefront.arrived


@compiled
def wavefront_of(tile, address):
    """Wavefront that stores the sector at an address of the tile. Reads: tile."""
    parts = tile.parts
    run = (address - tile.address) // tile.pitch_bytes
    place = address - tile.address - run * tile.pitch_bytes
    return (run // parts.runs * parts.run_step + place // parts.bytes * parts.byte_step) % parts.warps


@compiled
def row_end(tile, run):
    """Address after the last byte of a row of a tile or of its part, rounded up to a sector. Reads: tile."""
    end = tile.address + run * tile.pitch_bytes + tile.run_bytes
    return (end + SECTOR_BYTES - 1) // SECTOR_BYTES * SECTOR_BYTES
