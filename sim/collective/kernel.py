"""Collectives that run on CUs: kernels made of the same warp events as any trace.

A workgroup does one tile in one step: reads its rows here (its own, and what has arrived), adds, and writes them to
this GPU or, through the peer window, to another. Rows are dealt over the warps, 16 bytes per lane, `unroll` accesses
in flight. Steps come one after the other in the order of the workgroups; a step's workgroups may wait for a gate.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from traces.errors import UserError
from traces.schema import EVENT, NO_SLOT, SLOTS, Cache, Kind, Pipe
from traces.source import KernelInfo, Workgroup

VECTOR_BYTES = 16
REGISTERS = 32
"""Per thread (assumed: such kernels are small)."""
ADD_CLK = 4


@dataclass(frozen=True)
class Step:
    """One step for some tiles.

    Attributes:
        tiles: numbers of the tiles, in launch order.
        reads: what is added to a tile's address for each buffer read.
        write: the same for the buffer written (peer window included).
        update: the write is a near-memory update.
        tag_offset: added to the tile for the tag of its requests.
        gate: that the step's workgroups wait for, one per tile; -1 = none.
    """

    tiles: range
    reads: tuple[int, ...]
    write: int
    update: bool = False
    tag_offset: int = 0
    gates: tuple[int, ...] = ()


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
    ):
        """tiles: TILE records; warps: per workgroup; unroll: accesses in flight per warp and buffer read."""
        if not 1 <= unroll <= 16:
            raise UserError(f"collective.unroll: found {unroll}, allowed are 1 to 16")
        self.tiles, self.steps = tiles, list(steps)
        self.warps, self.unroll, self.lanes, self.cache = warps, unroll, lanes, cache
        self.work = [(step, tile) for step in self.steps for tile in step.tiles]
        self._programs: dict[tuple, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self.info = KernelInfo(
            name=name,
            grid=(len(self.work), 1, 1),
            block=(warps * lanes, 1, 1),
            lanes_per_warp=lanes,
            registers=REGISTERS,
            shared_bytes=0,
            stream=0,
            warps_per_workgroup=warps,
            workgroups=len(self.work),
            attributes={"source": "sim.collective.kernel"},
        )

    @property
    def tags(self) -> np.ndarray:
        """Tag of each workgroup."""
        return np.array([step.tag_offset + tile for step, tile in self.work], np.int64)

    @property
    def gates(self) -> np.ndarray:
        """Gate of each workgroup, -1 = none."""
        found = [np.array(step.gates or (-1,) * len(step.tiles)) for step in self.steps]
        return np.concatenate(found).astype(np.int64) if found else np.zeros(0, np.int64)

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        for index in range(start, len(self.work)):
            step, tile = self.work[index]
            shape = self.tiles[tile]
            events, first_event, buffer = self._program(
                int(shape["runs"]), int(shape["run_bytes"]), int(shape["pitch_bytes"]), len(step.reads), step.update
            )
            offsets = np.array([*step.reads, step.write, 0], np.int64)[buffer]
            placed = events.copy()
            memory = buffer <= len(step.reads)
            placed["base"][memory] += (offsets[memory] + int(shape["address"])).astype(np.uint64)
            yield Workgroup(index, np.arange(self.warps, dtype=np.uint16), first_event, placed, np.empty(0, np.uint64))

    def fingerprint(self) -> str:
        text = repr((self.info.name, self.steps, self.warps, self.unroll, self.lanes, self.cache))
        return hashlib.sha256(
            text.encode() + self.tiles[["address", "runs", "run_bytes", "pitch_bytes"]].tobytes()
        ).hexdigest()

    def _program(self, runs: int, run_bytes: int, pitch_bytes: int, reads: int, update: bool):
        """Events of a tile of that shape at address 0: (events, first_event, buffer of each event).

        Buffers: 0 .. reads - 1 are read, `reads` is written, reads + 1 stands for arithmetic.
        """
        key = (runs, run_bytes, pitch_bytes, reads, update)
        if key not in self._programs:
            accesses = _accesses(runs, run_bytes, pitch_bytes, self.lanes)
            parts, buffers, first_event = [], [], [0]
            for warp in range(self.warps):
                events, buffer = self._warp_program(accesses[warp :: self.warps], reads, update)
                parts.append(events)
                buffers.append(buffer)
                first_event.append(first_event[-1] + len(events))
            self._programs[key] = np.concatenate(parts), np.array(first_event, np.int64), np.concatenate(buffers)
        return self._programs[key]

    def _warp_program(self, accesses: np.ndarray, reads: int, update: bool) -> tuple[np.ndarray, np.ndarray]:
        events: list[np.ndarray] = []
        buffers: list[int] = []
        unroll = max(1, min(self.unroll, SLOTS // reads))
        for turn in range(0, len(accesses), unroll):
            group = accesses[turn : turn + unroll]
            for k, access in enumerate(group):
                for read in range(reads):
                    events.append(_placed(access, Kind.LOAD, slot=k * reads + read))
                    buffers.append(read)
            for k, access in enumerate(group):
                wait = ((1 << reads) - 1) << (k * reads)
                if reads > 1:
                    events.append(_add(reads, wait))
                    buffers.append(reads + 1)
                events.append(_placed(access, Kind.REDUCE if update else Kind.STORE, wait=wait))
                buffers.append(reads)
        end = np.zeros(1, EVENT)
        end["kind"], end["slot"], end["count"] = Kind.EXIT, NO_SLOT, 1
        events.append(end)
        whole = np.concatenate(events)
        whole["cache"][whole["kind"] <= Kind.REDUCE] = self.cache
        return whole, np.array([*buffers, reads + 1])


def _accesses(runs: int, run_bytes: int, pitch_bytes: int, lanes: int) -> np.ndarray:
    """Warp accesses that cover a tile at address 0: several short rows each, or pieces of a long one."""
    per_row = -(-run_bytes // VECTOR_BYTES)
    found: list[tuple[int, int, int]] = []  # first byte, lanes, rows
    if per_row <= lanes:
        rows = lanes // per_row
        found += [(row * pitch_bytes, per_row, min(rows, runs - row)) for row in range(0, runs, rows)]
    else:
        found += [
            (row * pitch_bytes + lane * VECTOR_BYTES, min(lanes, per_row - lane), 1)
            for row in range(runs)
            for lane in range(0, per_row, lanes)
        ]
    events = np.zeros(len(found), EVENT)
    for event, (base, across, rows) in zip(events, found, strict=True):
        event["base"], event["inner"], event["mask"] = base, across, (1 << (across * rows)) - 1
    events["width_bytes"] = events["stride"] = VECTOR_BYTES
    events["row_stride"], events["count"] = pitch_bytes, 1
    return events


def _placed(access: np.void, kind: Kind, slot: int = NO_SLOT, wait: int = 0) -> np.ndarray:
    """An access as a load or a store."""
    event = np.array([access], EVENT)
    event["kind"], event["slot"], event["wait"] = kind, slot, wait
    return event


def _add(reads: int, wait: int) -> np.ndarray:
    """Packed additions of what one access has read."""
    event = np.zeros(1, EVENT)
    event["kind"], event["pipe"], event["slot"], event["wait"] = Kind.COMPUTE, Pipe.FMA, NO_SLOT, wait
    event["count"], event["cycles"] = (VECTOR_BYTES // 4) * (reads - 1), ADD_CLK
    return event
