"""Collectives that run on CUs: kernels made of the same warp events as any trace.

The kernel walks memory in order, like a kernel without knowledge of tiles. Neighbouring tiles of one row of tiles form
a *segment*. In one step a workgroup handles a band of a segment's rows; that of a library's channel handles all rows,
after the time of its software. It reads them here (its own data and arrived data), adds, and writes them to this GPU
or, through the peer window, to another GPU. Accesses are distributed over the warps: 16 bytes per lane, `unroll`
accesses in flight. Each access is within one tile; `work` is the tile's number relative to the workgroup's tag. So
narrow tiles of a GEMM are joined before (`joined`).
Workgroups are in the order of the steps. The workgroups of a step may wait for a gate.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sim.collective.chunks import Chunks
from sim.occupancy import occupancy
from sim.spec import Machine
from tracer.events import VECTOR_BYTES, access, compute, event, join_warps
from traces.errors import UserError
from traces.schema import LINE_BYTES, NO_SLOT, SECTOR_BYTES, SLOTS, Cache, Kind, Pipe
from traces.source import KernelInfo, Workgroup

REGISTERS = 32
"""Registers per thread (assumed: such kernels are small)."""
ADD_CLK = 4
STORED = SLOTS - 1
"""Slot of the stores that a flag follows."""
BAND_BYTES = 32768
"""Bytes of a workgroup (assumed): the size of a tile of the default GEMM."""
ROW_BYTES = 256
"""Narrower tiles are joined up to this width (assumed): the width of a tile of the default GEMM."""


def check_fits(machine: Machine) -> None:
    """Refuse a machine whose CUs have no room for a workgroup of its collectives.

    Raises:
        UserError: names the fields of the collective and of the CU.
    """
    spec, cu = machine.collective, machine.cu
    try:
        occupancy(cu, spec.warps * cu.lanes_per_warp, REGISTERS, spec.shared_bytes)
    except UserError as error:
        found = f"collective.warps = {spec.warps}, collective.shared_bytes = {spec.shared_bytes}"
        raise UserError(f"{found}: {error}") from error


@dataclass(frozen=True)
class Step:
    """One step for some tiles.

    Attributes:
        tiles: numbers of the tiles, in launch order.
        reads: address offset from a tile, for each buffer read.
        write: address offset from a tile for the buffer written (peer window included).
        also: a second store of the same data: address offset, and its tag - tag of the first store; None = none.
        flags: each workgroup, when its stores are done, stores a flag for each of its tiles: address of the flag of
            tile 0 (peer window included), the others follow line by line, and tag of the flag - tag of the tile; None =
            none.
        update: True: the write is a near-memory update.
        tag_offset: tag of a tile's requests - number of the tile.
        gates: gates that its workgroups wait for, one per tile, the same within a segment; empty = none.
    """

    tiles: range
    reads: tuple[int, ...]
    write: int
    update: bool = False
    tag_offset: int = 0
    gates: tuple[int, ...] = ()
    also: tuple[int, int] | None = None
    flags: tuple[int, int] | None = None


@dataclass(frozen=True)
class Pieces:
    """How each chunk is cut.

    Attributes:
        rounds: parts of a chunk that go through all steps one after the other.
        slices: parts of a round; a slice can be sent on while the next one arrives.
    """

    rounds: int = 1
    slices: int = 1

    @property
    def count(self) -> int:
        return self.rounds * self.slices


def in_rounds(steps: Sequence[Step], pieces: Pieces) -> list[Step]:
    """The steps, cut into pieces and put in order."""
    parts = [np.array_split(np.arange(len(step.tiles)), min(pieces.count, len(step.tiles))) for step in steps]
    order = []
    for turn in range(pieces.rounds):
        for step, cuts in zip(steps, parts, strict=True):
            for cut in cuts[turn * pieces.slices : (turn + 1) * pieces.slices]:
                span = slice(cut[0], cut[-1] + 1)
                order.append(replace(step, tiles=step.tiles[span], gates=step.gates[span]))
    return order


class Band(NamedTuple):
    """The rows of neighbouring tiles that one workgroup handles."""

    step: Step
    first: int  # tile
    tiles: int  # number of neighbouring tiles
    row: int  # first row
    rows: int
    gate: int


class CollectiveKernel:
    """The kernel trace of a collective on one GPU (`traces.source.KernelSource`)."""

    def __init__(
        self,
        name: str,
        tiles: np.ndarray,
        steps: Sequence[Step],
        *,
        warps: int,
        unroll: int,
        lanes: int,
        cache: Cache,
        shared_bytes: int = 0,
        software_clk: int | None = None,
    ):
        """tiles: TILE records; warps: number per workgroup; unroll: accesses in flight per warp and buffer read.

        shared_bytes: of a workgroup. software_clk: None: a workgroup handles BAND_BYTES. Else it handles whole tiles,
        and its first access comes this many core clocks after its start.
        """
        if not 1 <= unroll <= 16:
            raise UserError(f"collective.unroll: found {unroll}, allowed are 1 to 16")
        self.tiles, self.steps = tiles, list(steps)
        self.warps, self.unroll, self.lanes, self.cache = warps, unroll, lanes, cache
        self.software_clk = software_clk
        self.work = [band for step in self.steps for band in self._bands(step)]
        self._programs: dict[tuple, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self.info = KernelInfo(
            name=name,
            grid=(len(self.work), 1, 1),
            block=(warps * lanes, 1, 1),
            lanes_per_warp=lanes,
            registers=REGISTERS,
            shared_bytes=shared_bytes,
            stream=0,
            warps_per_workgroup=warps,
            workgroups=len(self.work),
            attributes={"source": "sim.collective.kernel"},
        )

    @property
    def tags(self) -> np.ndarray:
        """Tag of each workgroup: the tag of its first tile."""
        return np.array([band.step.tag_offset + band.first for band in self.work], np.int64)

    @property
    def gates(self) -> np.ndarray:
        """Gate of each workgroup, -1 = none."""
        return np.array([band.gate for band in self.work], np.int64)

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        for index in range(start, len(self.work)):
            band = self.work[index]
            events, first_event, buffer = self._program(band)
            first = self.tiles[band.first]
            begin = int(first["address"]) + band.row * int(first["pitch_bytes"])
            also, _ = band.step.also or (0, 0)
            offsets = np.array([*band.step.reads, band.step.write, also, 0, 0], np.int64)[buffer]
            placed = events.copy()
            memory = buffer <= len(band.step.reads) + 1
            placed["base"][memory] += (offsets[memory] + begin).astype(np.uint64)
            if band.step.flags:
                flag = band.step.flags[0] + band.first * LINE_BYTES
                placed["base"][buffer == len(band.step.reads) + 3] += np.uint64(flag)
            yield Workgroup(index, np.arange(self.warps, dtype=np.uint16), first_event, placed, np.empty(0, np.uint64))

    def fingerprint(self) -> str:
        text = repr((self.info.name, self.steps, self.warps, self.unroll, self.lanes, self.cache, self.software_clk))
        shapes = self.tiles[["address", "runs", "run_bytes", "pitch_bytes"]].tobytes()
        return hashlib.sha256(text.encode() + shapes).hexdigest()

    def _bands(self, step: Step) -> Iterator[Band]:
        """Workgroups of a step, in the order of their addresses."""
        for first, count in segments(self.tiles, step.tiles):
            rows = int(self.tiles[first]["runs"])
            width = int(self.tiles["run_bytes"][first : first + count].sum())
            high = max(1, BAND_BYTES // width) if self.software_clk is None else rows
            gate = step.gates[first - step.tiles.start] if step.gates else -1
            for row in range(0, rows, high):
                yield Band(step, first, count, row, min(high, rows - row), gate)

    def _program(self, band: Band) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Events of a band whose first byte is at address 0: (events, first_event, buffer of each event).

        Buffers: 0 .. reads - 1 are read, `reads` and reads + 1 (`Step.also`) are written, reads + 2 means arithmetic,
        and reads + 3 a flag.
        """
        tiles = self.tiles[band.first : band.first + band.tiles]
        widths = tuple(tiles["run_bytes"].tolist())
        reads, update = len(band.step.reads), band.step.update
        also, flags = (pair and pair[1] for pair in (band.step.also, band.step.flags))
        key = (band.rows, widths, int(tiles[0]["pitch_bytes"]), reads, update, also, flags)
        if key not in self._programs:
            accesses = _accesses(band.rows, widths, int(tiles[0]["pitch_bytes"]), self.lanes, self.cache)
            stored = NO_SLOT if flags is None else STORED
            programs = [
                self._warp_program(accesses[w :: self.warps], reads, update, also, stored) for w in range(self.warps)
            ]
            if flags is not None:
                programs = [_flagged(*program, flags, 0 if w else len(widths)) for w, program in enumerate(programs)]
            parts, buffers = zip(*programs, strict=True)
            self._programs[key] = *join_warps(parts), np.concatenate(buffers)
        return self._programs[key]

    def _warp_program(
        self, accesses: np.ndarray, reads: int, update: bool, also: int | None, stored: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """stored: slot of the stores, which are then acknowledged; or NO_SLOT."""
        parts = [compute(Pipe.ALU, 1, self.software_clk)] if self.software_clk else []
        buffers = [reads + 2] * len(parts)
        unroll = max(1, min(self.unroll, (SLOTS if stored == NO_SLOT else STORED) // reads))
        for turn in range(0, len(accesses), unroll):
            group = accesses[turn : turn + unroll]
            loads, stores = np.repeat(group, reads), group.copy()
            loads["slot"] = np.arange(len(loads))
            wait = np.uint64((1 << reads) - 1) << np.arange(0, len(loads), reads, dtype=np.uint64)
            stores["kind"], stores["wait"], stores["slot"] = Kind.REDUCE if update else Kind.STORE, wait, stored
            columns, kinds = [stores], [reads]
            if reads > 1:
                words = VECTOR_BYTES // 4 * (reads - 1)
                columns = [compute(Pipe.FMA, words, ADD_CLK, len(group), wait=wait), stores]
                kinds = [reads + 2, reads]
            if also is not None:
                second = stores.copy()
                second["work"] += also
                columns, kinds = [*columns, second], [*kinds, reads + 1]
            buffers += [*range(reads)] * len(group) + kinds * len(group)
            parts += [loads, np.stack(columns, axis=1).ravel()]
        return np.concatenate([*parts, event(Kind.EXIT)]), np.array([*buffers, reads + 2])


def _flagged(events: np.ndarray, buffers: np.ndarray, flags: int, tiles: int) -> tuple[np.ndarray, np.ndarray]:
    """The program of a warp that then waits for all stores of its workgroup, and stores the flags of `tiles` tiles.

    flags: tag of a flag - tag of its tile.
    """
    fence = event(Kind.BARRIER, slot=0, wait=1 << STORED)
    stores = access(Kind.STORE, tiles, lanes=SECTOR_BYTES // VECTOR_BYTES, base=np.arange(tiles) * LINE_BYTES)
    stores["cache"], stores["work"] = Cache.UNCACHED, flags + np.arange(tiles)
    codes = np.concatenate([buffers, np.full(tiles, buffers[-1] + 1), buffers[-1:]])
    return np.concatenate([events[:-1], fence, stores, events[-1:]]), codes


def segments(tiles: np.ndarray, span: range) -> list[tuple[int, int]]:
    """Segments of neighbouring tiles in a span: (first tile, number of tiles) of each segment, in order."""
    firsts = np.flatnonzero(_begins(tiles[span.start : span.stop]))
    counts = np.diff(firsts, append=len(span))
    return list(zip((span.start + firsts).tolist(), counts.tolist(), strict=True))


def joined(output: np.ndarray, chunks: Chunks) -> tuple[np.ndarray, Chunks]:
    """An output and its chunks with narrow tiles joined, so that a load moves more than the row of a narrow tile.

    Neighbouring tiles of a chunk become one tile if they begin in the same block of ROW_BYTES.

    Args:
        output: OUTPUT_TILE in global order. `parts` of a joined tile are those of its first tile: nothing reads them,
            as no Tracker counts the tiles of a collective on CUs.
    """
    begins = _begins(output)
    begins[1:] |= np.diff(output["address"] // ROW_BYTES) != 0
    begins[list(chunks.edges[:-1])] = True
    firsts = np.flatnonzero(begins)
    wide = output[firsts]
    wide["run_bytes"] = np.add.reduceat(output["run_bytes"], firsts)
    return wide, Chunks(chunks.gpus, tuple(np.searchsorted(firsts, chunks.edges).tolist()))


def _begins(tiles: np.ndarray) -> np.ndarray:
    """bool [tiles]: True where a segment begins. The rows of other tiles begin where those of the tile before end.

    Tiles without gaps are not a row.
    """
    one, other = tiles[:-1], tiles[1:]
    near = (one["address"] + one["run_bytes"] == other["address"]) & (one["pitch_bytes"] > one["run_bytes"])
    near &= (one["runs"] == other["runs"]) & (one["pitch_bytes"] == other["pitch_bytes"])
    return np.insert(~near, 0, True)


def _accesses(rows: int, widths: Sequence[int], pitch_bytes: int, lanes: int, cache: Cache) -> np.ndarray:
    """Loads that cover rows of neighbouring tiles from address 0 on, in the order of their addresses.

    For one narrow tile a load covers several rows; else it covers a piece of a row of a tile. `work` is the number of
    the tile, counted from the first tile.
    """
    found: list[tuple[int, int, int, int]] = []  # first byte, lanes, rows, tile
    per_row = -(-widths[0] // VECTOR_BYTES)
    if len(widths) == 1 and per_row <= lanes:
        high = lanes // per_row
        found += [(row * pitch_bytes, per_row, min(high, rows - row), 0) for row in range(0, rows, high)]
    else:
        for row in range(rows):
            begin = row * pitch_bytes
            for tile, width in enumerate(widths):
                vectors = -(-width // VECTOR_BYTES)
                found += [
                    (begin + lane * VECTOR_BYTES, min(lanes, vectors - lane), 1, tile)
                    for lane in range(0, vectors, lanes)
                ]
                begin += width
    base, across, high, tile = np.array(found, np.int64).T
    events = access(Kind.LOAD, len(found), lanes=across * high, base=base, cache=cache)
    events["inner"], events["row_stride"], events["work"] = across, pitch_bytes, tile
    return events
