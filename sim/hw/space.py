"""Address-space configuration of the output (T3), and what is known of each of its tiles.

Plain data, written by a plan (`sim.collective`), read by the load/store units, the Tracker and the DMA engines. A tile
is the output of one workgroup; the tag of a request is its tile. Stores of a kernel into the output range go where the
tile is mapped: they stay, they leave to a neighbour as updates, or they are updates here that the Tracker counts.

Memory of another GPU is seen through a window: address + (1 + port) << PEER_BITS.
"""

from enum import IntEnum

import numpy as np

from sim.hw.request import LINE_BYTES, SECTOR_BYTES, SECTORS_PER_LINE
from tracer.compile.jit import compiled
from tracer.gemm.store_parts import PARTS

PEER_BITS = 44
"""Local addresses are smaller; what is above names the port to the GPU that owns the memory."""
BUFFER_BITS = 38
"""Receive buffers lie this far apart from the output and from each other, and have its layout."""
BUFFER_SKEW_BYTES = 1 << 19
"""And so much more each, as buffers of one heap do: at equal offsets they would all lie in the same DRAM banks."""
MAX_GPUS = 32
"""One bit each in a set of contributors."""
MAX_PORTS = MAX_GPUS - 1


class Map(IntEnum):
    """Where the stores into an output tile go."""

    LOCAL = 0  # plain stores, through L2
    REMOTE = 1  # remote_map: to the neighbour's memory, as updates
    DMA = 2  # dma_map: updates here; when all have come a DMA engine sends the tile on
    FINAL = 3  # updates here, counted; this GPU owns the result
    SUM = 4  # of a collective kernel that adds: it sends what arrived and its own
    COPY = 5  # of a collective kernel that gathers: it sends what arrived, or its own


TILE = np.dtype(
    [
        # configuration
        ("address", "i8"),  # first byte
        ("runs", "i8"),  # rows
        ("run_bytes", "i8"),  # adjacent bytes of a row
        ("pitch_bytes", "i8"),  # from row to row
        ("bytes", "i8"),  # of all its sectors
        ("map", "i8"),  # Map
        ("port", "i8"),  # over which it leaves (REMOTE, DMA)
        ("op", "i8"),  # Op of the DMA engine at the receiver
        ("threshold_bytes", "i8"),  # updates until the trigger, all wavefronts together; 0 = not tracked
        ("granularity", "i8"),  # Granularity: what is sent on at once (DMA)
        ("parts", PARTS),  # which wavefront stores which part of it
        ("chunk", "i8"),  # DmaPolicy.CHUNK: released with the others of its chunk
        ("gate", "i8"),  # credited by what arrives for the tile, -1 = none
        # state of the Tracker
        ("begun", "i8"),  # 1: local stores have begun, it holds an entry
        ("live", "i8"),  # 1: some updates have come, not all
        ("counting", "i8"),  # wavefronts whose counters have not reached their thresholds
        # ledger
        ("local_bytes", "i8"),  # updates or final writes from here
        ("local_sum", "i8"),  # of their line fingerprints
        ("arrived_bytes", "i8"),
        ("arrived_sum", "i8"),
        ("port_bytes", "i4", MAX_PORTS + 1),  # arrived over each port
        ("arrived", "i8"),  # set of GPUs whose sums have arrived: bit k = the k-th before this one
        ("sent_bytes", "i8"),
        ("sent_sum", "i8"),
        ("triggers", "i8"),
        ("doubled", "i8"),  # lines with a contributor that was there already
        ("early", "i8"),  # lines sent on before everything they hold had arrived
        ("done_ps", "i8"),  # trigger, or the last arrival
    ],
    align=True,
)

WAVEFRONT = np.dtype(
    [
        # its part of the tile; where that is no rectangle, runs = 0
        ("first_run", "i8"),
        ("runs", "i8"),
        ("first_byte", "i8"),  # of a run
        ("run_bytes", "i8"),
        ("bytes", "i8"),  # of all its sectors
        ("threshold_bytes", "i8"),  # updates until the trigger, 0 = none: not tracked, or beyond the edge of the output
        # state
        ("counted_bytes", "i8"),
        ("triggers", "i8"),
        ("done_ps", "i8"),  # trigger
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
        ("open_ps", "i8"),  # when the last of them came, NEVER before
        ("delay_ps", "i8"),  # software overhead before workgroups behind the gate start
    ]
)
"""What workgroups wait for: bytes that must have arrived (D23): a flag that a kernel would poll."""

SPACE = np.dtype(
    [
        ("first_byte", "i8"),  # the output range
        ("end_byte", "i8"),
        ("gpus", "i8"),
        ("set_mask", "i8"),  # all contributors
        ("mirrored", "i8"),  # 1: what leaves over a port comes back as if from the GPU at its other end
    ]
)

MIRROR = np.dtype([("tag", "i8"), ("shift_bytes", "i8")])
"""The tile that arrives, mirrored, when a tile leaves over a port; and how much its address differs."""


@compiled
def in_output(space, line):
    return space.first_byte <= line < space.end_byte


@compiled
def fingerprint(tile, line, sectors):
    """Sum over the sectors of a line of a mix of their place in the tile (splitmix64).

    Sums of it tell which sectors came and how often, in any order and however they were packed into requests.
    """
    offset = line - tile.address // LINE_BYTES * LINE_BYTES
    buffer = offset >> BUFFER_BITS
    place = (offset - (buffer << BUFFER_BITS) - buffer * BUFFER_SKEW_BYTES) // SECTOR_BYTES
    total = np.uint64(0)
    for sector in range(SECTORS_PER_LINE):
        if (sectors >> sector) & 1:
            z = np.uint64(place + sector + 1) * np.uint64(0x9E3779B97F4A7C15)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            total += z ^ (z >> np.uint64(31))
    return np.int64(total)


@compiled
def rotated(contributors, places, gpus, set_mask):
    """A set as a GPU `places` further on sees it."""
    wide = np.int64(contributors) & set_mask
    return ((wide << places) | (wide >> (gpus - places))) & set_mask


@compiled
def held(tile):
    """Contributors of what this GPU sends on of a tile: all that arrived, with its own sum where it adds one.

    Returns 0, which no ledger accepts, where a part is still on its way.
    """
    if tile.arrived_bytes % tile.bytes != 0:
        tile.early += 1
        return np.int64(0)
    if tile.map == Map.COPY and tile.arrived != 0:
        return tile.arrived
    return np.int64(1) | tile.arrived


@compiled
def held_by_wavefront(tile, wavefront):
    """The same for the part of one wavefront of a tile that the Tracker follows."""
    if wavefront.arrived_bytes % wavefront.bytes != 0:
        tile.early += 1
        return np.int64(0)
    return np.int64(1) | wavefront.arrived


@compiled
def wavefront_of(tile, address):
    """Wavefront that stores the sector at an address of the tile."""
    parts = tile.parts
    run = (address - tile.address) // tile.pitch_bytes
    place = address - tile.address - run * tile.pitch_bytes
    return (run // parts.runs * parts.run_step + place // parts.bytes * parts.byte_step) % parts.warps


@compiled
def row_end(tile, run):
    """Address behind the last byte of a row of a tile, or of a part of one, rounded up to a sector."""
    end = tile.address + run * tile.pitch_bytes + tile.run_bytes
    return (end + SECTOR_BYTES - 1) // SECTOR_BYTES * SECTOR_BYTES
