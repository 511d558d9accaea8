"""Address-space configuration of tracked buffers (T3), and what is known of each of their tiles.

Plain data, written by a plan (`sim.collective`), read by the load/store units, the Tracker and the DMA engines. A run
has one or more *buffers*, each a range of addresses cut into tiles; the tiles of all buffers are numbered in one row,
and the tag of a request is the number of its tile. A tile says where the stores of kernels into it go (here, to other
GPUs, or both), with which operation (store, or add near memory), how many bytes must come, and what happens then:
nothing, DMA engines send it to other GPUs, or it counts for a gate.

Memory of another GPU is seen through a window: address + (1 + port) << PEER_BITS.
"""

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


TILE = np.dtype(
    [
        # configuration
        ("address", "i8"),  # first byte
        ("runs", "i8"),  # rows
        ("run_bytes", "i8"),  # adjacent bytes of a row
        ("pitch_bytes", "i8"),  # from row to row
        ("bytes", "i8"),  # of all its sectors
        ("routed", "i8"),  # 1: a kernel's stores into it are not plain ones; the next four say what they are
        ("op", "i8"),  # Op: WRITE or UPDATE
        ("stay", "i8"),  # 1: they are done here
        ("stores", "i8"),  # GPUs that they go to: so many SEND records ...
        ("first_store", "i8"),  # ... from this one on
        ("threshold_bytes", "i8"),  # contributions until the trigger, all wavefronts together; 0 = not tracked
        ("entry", "i8"),  # 1: its first local store needs an entry of the Tracker
        ("sends", "i8"),  # what DMA engines do then: so many SEND records, in turn, ...
        ("first_send", "i8"),  # ... from this one on
        ("own", "i8"),  # 1: what is sent on holds this GPU's contribution, 0: only where nothing has arrived
        ("granularity", "i8"),  # Granularity: what is sent on at once
        ("parts", PARTS),  # which wavefront stores which part of it
        ("chunk", "i8"),  # DmaPolicy.CHUNK: released with the others of its chunk
        ("gate", "i8"),  # credited by the tile: at its trigger, or (not tracked) by what arrives; -1 = none
        # state of the Tracker
        ("begun", "i8"),  # 1: local stores have begun, it holds an entry
        ("live", "i8"),  # 1: some updates have come, not all
        ("counting", "i8"),  # wavefronts whose counters have not reached their thresholds
        # ledger
        ("local_bytes", "i8"),  # updates or final writes from here
        ("local_sum", "i8"),  # of their line fingerprints, each times the weight of its share
        ("arrived_bytes", "i8"),
        ("arrived_sum", "i8"),  # likewise, times the weight of the contributors in them
        ("arrived", "i8"),  # set of GPUs whose contributions have arrived: bit k = the k-th before this one
        ("sent_bytes", "i8"),
        ("sent_sum", "i8"),
        ("triggers", "i8"),
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

SEND = np.dtype(
    [
        ("port", "i8"),  # over which it leaves
        ("op", "i8"),  # Op at the receiver: WRITE or UPDATE
        ("tag", "i8"),  # tile that it is for there
        ("shift_bytes", "i8"),  # from the address here to that there: whole lines
    ]
)
"""Where a tile goes: what stores into it become at another GPU, or what a DMA engine does when it is complete."""

SPACE = np.dtype(
    [
        ("first_byte", "i8"),  # a buffer
        ("end_byte", "i8"),
        ("first_tag", "i8"),  # of its tiles
        ("tiles", "i8"),  # workgroup w of the kernel that stores into it makes tile w % tiles, share w // tiles of it
        # the same in all of them
        ("gpus", "i8"),
        ("set_mask", "i8"),  # all contributors
        ("mirrored", "i8"),  # 1: what leaves over a port comes back as if from the GPU at its other end
    ]
)

MIRROR = np.dtype([("tag", "i8"), ("shift_bytes", "i8")])
"""The tile that arrives, mirrored, when a tile leaves over a port; and how much its address differs."""


@compiled(inline=True)
def space_of(spaces, address):
    """Number of the buffer that an address lies in, -1 where it lies in none."""
    for number in range(len(spaces)):
        if spaces[number].first_byte <= address < spaces[number].end_byte:
            return number
    return -1


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
            total += _mix(place + sector)
    return np.int64(total)


@compiled
def _mix(number):
    """A number of 64 bits that looks random (splitmix64)."""
    z = np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def contributor_weight(contributors):
    """Sum of an odd random number for each GPU of a set: sums of such sums tell who came and how often."""
    total = np.uint64(0)
    for place in range(MAX_GPUS):
        if (contributors >> place) & 1:
            total += _mix(1000 + place) | np.uint64(1)
    return np.int64(total)


@compiled
def share_weight(share):
    """The same for one share of a tile's sum (split-K)."""
    return 2 * share + 1


@compiled
def rotated(contributors, places, gpus, set_mask):
    """A set as a GPU `places` further on sees it."""
    wide = np.int64(contributors) & set_mask
    return ((wide << places) | (wide >> (gpus - places))) & set_mask


@compiled
def held(tile):
    """Contributors of what this GPU sends on of a tile: all that arrived, with its own where it adds one.

    Returns 0, which no ledger accepts, where a part is still on its way.
    """
    if tile.arrived_bytes % tile.bytes != 0:
        tile.early += 1
        return np.int64(0)
    if tile.own == 0 and tile.arrived != 0:
        return tile.arrived
    return np.int64(1) | tile.arrived


@compiled
def held_by_wavefront(tile, wavefront):
    """The same for the part of one wavefront of a tile that the Tracker follows."""
    if wavefront.arrived_bytes % wavefront.bytes != 0:
        tile.early += 1
        return np.int64(0)
    if tile.own == 0 and wavefront.arrived != 0:
        return wavefront.arrived
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
