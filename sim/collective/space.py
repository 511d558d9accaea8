"""The language of plans: buffers, their regions, destinations of stores, expected contributions and actions.

A *buffer* is memory that every GPU has at the same address, cut into tiles. A *region* is a run of its tiles on one
GPU. A region is plain data. It gives the destination of kernels' stores into it, their operation, and the number of
contributions to each byte. When all contributions have come, there are three possible actions: none, DMA engines send
the tiles to other GPUs, or a gate opens. A plan for N GPUs is N lists of regions. `sim.collective.check` refuses a plan
in which a contribution is lost, doubled or never comes. This file writes regions into the machine's records
(`sim.hw.space`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.collective.topology import AddingSwitch, AnyTopology, port_to
from sim.hw.request import LINE_BYTES, NEVER, SECTOR_BYTES, Op
from sim.hw.space import BUFFER_BITS, BUFFER_SKEW_BYTES, GATE, SEND, SPACE, TILE, WAVEFRONT, all_gpus
from sim.spec import DmaPolicy, Granularity, Machine
from tracer.gemm.store_parts import PARTS
from traces.errors import UserError

OUTPUT = "output"
"""Name of the buffer in a plan with one buffer."""


@dataclass(frozen=True)
class Buffer:
    """Memory that every GPU has.

    Attributes:
        name: the name that regions use.
        tiles: OUTPUT_TILE [tiles] in global order.
        shares: number of workgroups that store each tile: 1, split_k, or 0 if no kernel stores it.
        queue: dispatch queue of the kernel that stores it.
    """

    name: str
    tiles: np.ndarray
    shares: int = 1
    queue: int = 0


@dataclass(frozen=True)
class Send:
    """A destination of a region's tiles on another GPU.

    Attributes:
        to: distance of the GPU ahead.
        op: operation at the receiver: UPDATE adds near memory, WRITE stores.
        buffer: buffer at the receiver, None = the same buffer.
        first: tile at the receiver for the region's first tile, the others follow; None = the same tile.
        slot: number of the receive buffer at the receiver; None = the tile itself. Receive buffers have the layout of
            the output, so a tile has a place in each.
    """

    to: int
    op: Op = Op.UPDATE
    buffer: str | None = None
    first: int | None = None
    slot: int | None = None

    @property
    def shift_bytes(self) -> int:
        """Distance from the tile to its place in the receive buffer."""
        return 0 if self.slot is None else slot_bytes(self.slot)


@dataclass(frozen=True)
class Region:
    """A run of tiles of a buffer on one GPU.

    Attributes:
        first, end: tiles of the run, in global order.
        to: destinations of kernels' stores into it: distances ahead, 0 = here; a Send if they are for other tiles.
            With several GPUs each gets a copy (D32).
        op: operation of these stores: WRITE, UPDATE to add near memory, or COMBINE to add in the switch. COMBINE: every
            GPU, also the one that keeps the sum, sends its contribution through the switch.
        expects: number of contributions to each byte here, from this GPU and others; 0 = nothing is counted.
        sends: actions of DMA engines, in turn, when all contributions have come; at the launch if none is expected.
        gate: gate that opens when this region and all others with the same gate are complete; None = none.
        buffer: name of the buffer.
        chunk: number of the chunk; DMA policy `chunk` releases all tiles with this number together.
        granularity: unit in which the region is sent: a tile, or each wavefront's part of it.
        polled: True: software counts arrivals, not the Tracker: a kernel polls the gate (collectives on CUs).
        adds: True: the sent data include this GPU's contribution, without local stores (collectives on CUs).
        alone: True: the sent data are this GPU's contribution only, whatever has arrived (collectives on CUs).
    """

    first: int
    end: int
    to: tuple[int | Send, ...] = (0,)
    op: Op = Op.WRITE
    expects: int = 0
    sends: tuple[Send, ...] = ()
    gate: int | None = None
    buffer: str = OUTPUT
    chunk: int = 0
    granularity: Granularity = Granularity.WORKGROUP
    polled: bool = False
    adds: bool = False
    alone: bool = False

    @property
    def comes(self) -> int:
        """How often each byte comes: the switch adds all contributions and delivers the sum."""
        return min(self.expects, 1) if self.op == Op.COMBINE else self.expects

    @property
    def stays(self) -> bool:
        """Are stores executed here?"""
        return 0 in self.to

    @property
    def plain(self) -> bool:
        """Are stores plain, the same as without a region?"""
        return self.to in ((0,), ()) and self.op == Op.WRITE and self.expects == 0

    @property
    def leaves(self) -> list[Send]:
        """Destinations of stores on other GPUs."""
        found = [Send(one) if isinstance(one, int) else one for one in self.to if one != 0]
        return [replace(one, op=self.op) for one in found]


def slot_bytes(number: int) -> int:
    """Distance from the output to a receive buffer."""
    return (1 + number) * ((1 << BUFFER_BITS) + BUFFER_SKEW_BYTES)


def first_tags(buffers: Sequence[Buffer]) -> dict[str, int]:
    """Number of each buffer's first tile when the tiles of all buffers have consecutive numbers."""
    edges = np.cumsum([0, *(len(buffer.tiles) for buffer in buffers)]).tolist()
    return {buffer.name: edge for buffer, edge in zip(buffers, edges, strict=False)}


def make_tiles(output: np.ndarray) -> np.ndarray:
    """TILE records with plain stores, from OUTPUT_TILE records in global order.

    Raises:
        UserError: tiles share a sector, so their bytes could not be counted.
    """
    tiles = np.zeros(len(output), TILE)
    for name in ("address", "runs", "run_bytes", "pitch_bytes", "parts"):
        tiles[name] = output[name]
    for name in ("address", "pitch_bytes"):
        ragged = tiles[name] % SECTOR_BYTES != 0
        if (ragged & ((name == "address") | (tiles["runs"] > 1))).any():
            found = int(tiles[name][np.argmax(ragged)])
            raise UserError(
                f"output tile {name}: found {found}, allowed are multiples of {SECTOR_BYTES}: tiles must not share "
                "sectors; pad the leading dimension of C"
            )
    tiles["bytes"] = tiles["runs"] * -(-tiles["run_bytes"] // SECTOR_BYTES) * SECTOR_BYTES
    tiles["gate"] = -1
    return tiles


def check_spans(buffers: Sequence[Buffer], regions: Sequence[Region]) -> None:
    """Refuse regions that overlap, leave their buffer, or name a buffer that does not exist.

    Raises:
        UserError: names the region and its tiles.
    """
    sizes = {buffer.name: len(buffer.tiles) for buffer in buffers}
    taken = {name: np.full(size, -1) for name, size in sizes.items()}
    for number, region in enumerate(regions):
        for name in (region.buffer, *(send.buffer or region.buffer for send in (*region.leaves, *region.sends))):
            if name not in sizes:
                raise UserError(f"region {number}: buffer {name}, allowed are {', '.join(sizes)}")
        if not 0 <= region.first <= region.end <= sizes[region.buffer]:
            raise UserError(
                f"region {number}: tiles {region.first} to {region.end}, allowed are 0 to {sizes[region.buffer]}"
            )
        span = taken[region.buffer][region.first : region.end]
        if (span >= 0).any():
            raise UserError(f"region {number}: tiles {region.first} to {region.end} overlap region {int(span.max())}")
        span[:] = number
        for send in (*region.leaves, *region.sends):
            first, size = region.first if send.first is None else send.first, sizes[send.buffer or region.buffer]
            if not 0 <= first <= first + region.end - region.first <= size:
                raise UserError(
                    f"region {number}: it goes to tiles {first} to {first + region.end - region.first} of "
                    f"{send.buffer or region.buffer}, allowed are 0 to {size}"
                )


def _check_operations(regions: Sequence[Region], topology: AnyTopology) -> None:
    """Refuse operations that no store has. COMBINE needs a switch that adds: only it has sums."""
    allowed = [Op.WRITE, Op.UPDATE, *([Op.COMBINE] if isinstance(topology, AddingSwitch) else [])]
    for number, region in enumerate(regions):
        for op in (region.op, *(send.op for send in region.sends)):
            if op not in allowed:
                names = ", ".join(f"Op.{one.name}" for one in allowed)
                raise UserError(
                    f"region {number}: op: found {op!r}, allowed are {names}; Op.COMBINE needs a switch that adds "
                    "(sim.collective.topology.AddingSwitch)"
                )


def map_regions(
    buffers: Sequence[Buffer], regions: Sequence[Region], topology: AnyTopology, gpus: int
) -> tuple[np.ndarray, np.ndarray]:
    """Records of one GPU: TILE of all buffers, SEND.

    Raises:
        UserError: regions overlap or leave their buffer, an operation that no store has on these links, no link to a
            receiver, or tiles that do not fit the tiles that they are sent to.
    """
    check_spans(buffers, regions)
    _check_operations(regions, topology)
    tiles = np.concatenate([make_tiles(buffer.tiles) for buffer in buffers])
    first_tag, shares = first_tags(buffers), {buffer.name: buffer.shares for buffer in buffers}
    sends: list[np.ndarray] = []
    for region in regions:
        base = first_tag[region.buffer]
        span = slice(base + region.first, base + region.end)
        stays = region.stays and shares[region.buffer] > 0
        tiles["routed"][span], tiles["op"][span] = not (region.plain or region.to == ()), region.op
        tiles["stay"][span], tiles["own"][span] = region.stays, stays or region.adds
        tiles["alone"][span] = region.alone
        tiles["threshold_bytes"][span] = 0 if region.polled else tiles["bytes"][span] * region.comes
        tiles["entry"][span] = stays and region.expects > 0 and not region.polled
        tiles["chunk"][span], tiles["granularity"][span] = region.chunk, region.granularity
        tiles["gate"][span] = -1 if region.gate is None else region.gate
        for count, first, several in (("stores", "first_store", region.leaves), ("sends", "first_send", region.sends)):
            done = sum(len(one) for one in sends)
            tiles[count][span] = len(several)
            tiles[first][span] = done + np.arange(region.end - region.first) * len(several)
            sends.append(_send_records(tiles, first_tag, region, several, topology, gpus))
    return tiles, np.concatenate([np.zeros(0, SEND), *sends])


def _send_records(
    tiles: np.ndarray,
    first_tag: dict[str, int],
    region: Region,
    several: Sequence[Send],
    topology: AnyTopology,
    gpus: int,
) -> np.ndarray:
    """SEND [tiles of the region x GPUs], tile by tile."""
    found = np.zeros((region.end - region.first, len(several)), SEND)
    here = np.arange(region.first, region.end) + first_tag[region.buffer]
    for k, send in enumerate(several):
        first = region.first if send.first is None else send.first
        there = here - region.first + first + first_tag[send.buffer or region.buffer] - first_tag[region.buffer]
        found["port"][:, k], found["op"][:, k] = port_to(topology, gpus, send.to), send.op
        found["tag"][:, k] = there
        found["shift_bytes"][:, k] = tiles["address"][there] - tiles["address"][here]
        unlike = (found["shift_bytes"][:, k] % LINE_BYTES != 0) | (
            (tiles["pitch_bytes"][there] != tiles["pitch_bytes"][here]) & (tiles["runs"][here] > 1)
        )
        for name in ("runs", "run_bytes", "parts"):
            unlike |= tiles[name][there] != tiles[name][here]
        if unlike.any():
            raise UserError(
                f"plan: tile {region.first + int(np.argmax(unlike))} of {region.buffer} goes to one of "
                f"{send.buffer or region.buffer} of another shape, or at another place of a line"
            )
        found["shift_bytes"][:, k] += send.shift_bytes
    return found.ravel()


def make_wavefronts(tiles: np.ndarray) -> np.ndarray:
    """WAVEFRONT [tiles, wavefronts]: parts and thresholds, for tiles with their regions written into them.

    Empty if no tile is tracked.
    """
    if not tiles["threshold_bytes"].any():
        return np.zeros((len(tiles), 0), WAVEFRONT)
    found = np.zeros((len(tiles), int(tiles["parts"]["warps"].max())), WAVEFRONT)
    shapes = np.column_stack([tiles["runs"], tiles["run_bytes"], *(tiles["parts"][name] for name in PARTS.names or ())])
    _, first, kind = np.unique(shapes, axis=0, return_index=True, return_inverse=True)
    for number, k in enumerate(first):
        found[kind == number] = _cut_by_wavefront(tiles[k], found.shape[1])
    updates = tiles["threshold_bytes"] // tiles["bytes"]
    found["threshold_bytes"] = found["bytes"] * updates[:, None]
    return found


def _cut_by_wavefront(tile: np.void, wavefronts: int) -> np.ndarray:
    """WAVEFRONT [wavefronts]: the parts of one tile, cut off at the edge of the output."""
    found = np.zeros(wavefronts, WAVEFRONT)
    cuts = np.zeros(wavefronts, np.int64)
    parts, runs, run_bytes = tile["parts"], int(tile["runs"]), int(tile["run_bytes"])
    height, width = int(parts["runs"]), int(parts["bytes"])
    for band in range(-(-runs // height)):
        for piece in range(-(-run_bytes // width)):
            number = int((band * parts["run_step"] + piece * parts["byte_step"]) % parts["warps"])
            part = found[number]
            part["first_run"], part["runs"] = band * height, min(height, runs - band * height)
            part["first_byte"], part["run_bytes"] = piece * width, min(width, run_bytes - piece * width)
            part["bytes"] += part["runs"] * -(-part["run_bytes"] // SECTOR_BYTES) * SECTOR_BYTES
            cuts[number] += 1
    found["runs"][cuts > 1] = 0
    return found


def make_spaces(tiles: np.ndarray, buffers: Sequence[Buffer], gpus: int) -> np.ndarray:
    """SPACE records: the range of addresses of each buffer; one empty range if there is no buffer.

    Raises:
        UserError: buffers overlap.
    """
    spaces = np.zeros(max(1, len(buffers)), SPACE)
    last = tiles["address"] + (tiles["runs"] - 1) * tiles["pitch_bytes"] + tiles["run_bytes"]
    for number, (buffer, first) in enumerate(zip(buffers, first_tags(buffers).values(), strict=True)):
        span, space = slice(first, first + len(buffer.tiles)), spaces[number]
        space["first_byte"] = tiles["address"][span].min() // LINE_BYTES * LINE_BYTES
        space["end_byte"] = -(-last[span].max() // LINE_BYTES) * LINE_BYTES
        space["first_tag"], space["tiles"] = first, len(buffer.tiles)
        for other, before in zip(buffers[:number], spaces, strict=False):
            if space["first_byte"] < before["end_byte"] and before["first_byte"] < space["end_byte"]:
                raise UserError(f"buffers {other.name} and {buffer.name}: their addresses overlap")
    spaces["gpus"], spaces["set_mask"] = gpus, all_gpus(gpus)
    return spaces


def check_tracker(machine: Machine, tiles: np.ndarray) -> None:
    """Refuse a Tracker that cannot follow the kernel. tiles: TILE with regions written into them.

    Raises:
        UserError: names the field, its value and the needed value.
    """
    tracker, tracked = machine.tracker, tiles["threshold_bytes"] > 0
    warps = int(tiles["parts"]["warps"][tracked].max(initial=0))
    if tracker.wavefronts < warps:
        raise UserError(
            f"tracker.wavefronts: found {tracker.wavefronts}, but workgroups have {warps} wavefronts that each need a "
            "counter: the Tracker is too small to make progress"
        )
    wavefronts = make_wavefronts(tiles)
    most = int(wavefronts["threshold_bytes"].max(initial=0))
    if most > 1 << tracker.counter_bits:
        raise UserError(
            f"tracker.counter_bits: found {tracker.counter_bits}, but a wavefront waits for {most} bytes of updates: "
            f"allowed are {(most - 1).bit_length()} and more"
        )
    by_wavefront = wavefronts[(tiles["sends"] > 0) & (tiles["granularity"] == Granularity.WAVEFRONT)]
    if by_wavefront.size and machine.dma.policy == DmaPolicy.CHUNK:
        raise UserError("plan: granularity wavefront, but dma.policy = chunk sends whole chunks; allowed is workgroup")
    if ((by_wavefront["bytes"] > 0) & (by_wavefront["runs"] == 0)).any():
        raise UserError(
            "tracker.granularity: found wavefront, but a wavefront of this kernel stores rows here and there of a tile "
            "(epilogue staged), which no DMA descriptor can name; allowed is workgroup, or the epilogue direct"
        )


def make_gates(needed_bytes: Sequence[int], delay_ps: int) -> np.ndarray:
    """Closed gates. Each needs some bytes; a workgroup that waits for nothing has gate -1."""

    gates = np.zeros(len(needed_bytes), GATE)
    gates["needed_bytes"], gates["delay_ps"], gates["open_ps"] = needed_bytes, delay_ps, NEVER
    return gates
