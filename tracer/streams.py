"""Small memory microbenchmarks as kernel traces: pointer chase, and streams that read, write or copy a buffer.

They measure a machine as the published microbenchmarks do: load-to-use latency of a level (a buffer that fits it) and
bandwidth (a buffer far larger than L2, or one that stays in it, read in several passes).
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum
from hashlib import sha256

import numpy as np

from traces.errors import UserError
from traces.schema import EVENT, NO_SLOT, PLAIN_STRIDE, Cache, Kind, Pipe
from traces.source import KernelInfo, Workgroup

LANES = 32
VECTOR_BYTES = 16
ACCESS_BYTES = LANES * VECTOR_BYTES
"""One warp access of a stream."""
UNROLL_MAX = 64
REGISTERS = 32
"""Per thread (assumed: such kernels are small)."""
STREAMS_VERSION = 1
"""Raised whenever the same parameters give other events."""


class Flow(IntEnum):
    """What a stream does with its buffer."""

    READ = 0
    WRITE = 1
    COPY = 2  # read the buffer, write the one at `copy_address`


@dataclass(frozen=True)
class PointerChase:
    """One lane loads `loads` times; each address follows from the value loaded before.

    Addresses advance by `stride_bytes` and wrap around after `buffer_bytes`.
    """

    buffer_bytes: int
    loads: int
    stride_bytes: int = 128
    address: int = 1 << 36
    cache: Cache = Cache.DEFAULT

    def __post_init__(self):
        for field in ("buffer_bytes", "loads", "stride_bytes"):
            _at_least_one(self, field)

    @property
    def info(self) -> KernelInfo:
        return _info(self, f"chase_{self.buffer_bytes}", workgroups=1, warps=1)

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """The one workgroup."""
        if start > 0:
            return
        events = _accesses(Kind.LOAD, self.loads, self.cache)
        events["width_bytes"], events["mask"] = 8, 1
        offsets = np.arange(self.loads, dtype=np.uint64) * np.uint64(self.stride_bytes) % np.uint64(self.buffer_bytes)
        events["base"] = np.uint64(self.address) + offsets
        events["slot"], events["wait"] = 0, 1
        events["wait"][0] = 0
        yield _workgroup(0, [events])

    def fingerprint(self) -> str:
        return _fingerprint(self)


@dataclass(frozen=True)
class BufferStream:
    """All warps walk a buffer together, 512 adjacent bytes per warp access, `unroll` accesses in flight per warp.

    With several `passes` the buffer is walked again and again: from L2 where it fits and `cache` bypasses L1.
    """

    flow: Flow
    buffer_bytes: int
    workgroup_count: int = 160
    warps: int = 8
    unroll: int = 4
    passes: int = 1
    address: int = 1 << 36
    copy_address: int = 1 << 37
    cache: Cache = Cache.DEFAULT

    def __post_init__(self):
        for field in ("buffer_bytes", "workgroup_count", "warps", "unroll", "passes"):
            _at_least_one(self, field)
        if self.buffer_bytes % ACCESS_BYTES:
            raise UserError(f"stream buffer_bytes = {self.buffer_bytes}: must be a multiple of {ACCESS_BYTES}")
        if self.unroll > UNROLL_MAX:
            raise UserError(f"stream unroll = {self.unroll}: must be <= {UNROLL_MAX}")

    @property
    def info(self) -> KernelInfo:
        name = f"{self.flow.name.lower()}_{self.buffer_bytes}"
        return _info(self, name, self.workgroup_count, self.warps)

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        for index in range(start, self.workgroup_count):
            yield _workgroup(index, [self._warp_events(index * self.warps + warp) for warp in range(self.warps)])

    def fingerprint(self) -> str:
        return _fingerprint(self)

    def _warp_events(self, warp: int) -> np.ndarray:
        """Events of a warp, numbered through the whole grid: `unroll` neighbouring accesses per turn."""
        turn_accesses = self.workgroup_count * self.warps * self.unroll
        turns = -(-self.buffer_bytes // (ACCESS_BYTES * turn_accesses))
        turn = self._turn()
        events = np.tile(turn, turns * self.passes)
        number = np.tile(np.arange(turns), self.passes).repeat(turn.size)
        access = number * turn_accesses + warp * self.unroll + events["reserved"]  # a template's place in its turn
        inside = (access * ACCESS_BYTES < self.buffer_bytes) | (events["kind"] == Kind.COMPUTE)
        events["base"] += (access * ACCESS_BYTES).astype(np.uint64)
        events["base"][events["kind"] == Kind.COMPUTE] = 0
        events["reserved"] = 0
        return events[inside]

    def _turn(self) -> np.ndarray:
        """Templates of one turn: loads with a slot each, then their use (a sum, or the stores of a copy)."""
        place = np.arange(self.unroll)
        loads = _accesses(Kind.LOAD, self.unroll, self.cache)
        stores = _accesses(Kind.STORE, self.unroll, self.cache)
        loads["reserved"] = stores["reserved"] = loads["slot"] = place
        loads["base"] = self.address
        stores["base"] = self.address if self.flow == Flow.WRITE else self.copy_address
        if self.flow == Flow.WRITE:
            return stores
        if self.flow == Flow.COPY:
            stores["wait"] = np.uint64(1) << place.astype(np.uint64)
            return np.concatenate([loads, stores])
        add = np.zeros(1, EVENT)
        add["kind"], add["pipe"], add["slot"] = Kind.COMPUTE, Pipe.FMA, NO_SLOT
        add["count"], add["cycles"] = self.unroll * VECTOR_BYTES // 4, 4
        add["wait"] = (1 << self.unroll) - 1
        return np.concatenate([loads, add])


def _accesses(kind: Kind, count: int, cache: Cache) -> np.ndarray:
    """`count` full-warp accesses of adjacent vectors, without addresses."""
    events = np.zeros(count, EVENT)
    events["kind"], events["cache"], events["slot"], events["inner"] = kind, cache, NO_SLOT, PLAIN_STRIDE
    events["width_bytes"] = events["stride"] = VECTOR_BYTES
    events["mask"], events["count"] = (1 << LANES) - 1, 1
    return events


def _workgroup(index: int, warps: list[np.ndarray]) -> Workgroup:
    """A workgroup of these warps, each ended by EXIT."""
    end = np.zeros(1, EVENT)
    end["kind"], end["slot"], end["count"] = Kind.EXIT, NO_SLOT, 1
    first_event = np.cumsum([0, *(warp.size + 1 for warp in warps)])
    events = np.concatenate([part for warp in warps for part in (warp, end)])
    return Workgroup(index, np.arange(len(warps), dtype=np.uint16), first_event, events, np.empty(0, np.uint64))


def _info(source, name: str, workgroups: int, warps: int) -> KernelInfo:
    return KernelInfo(
        name=name,
        grid=(workgroups, 1, 1),
        block=(warps * LANES, 1, 1),
        lanes_per_warp=LANES,
        registers=REGISTERS,
        shared_bytes=0,
        stream=0,
        warps_per_workgroup=warps,
        workgroups=workgroups,
        attributes={"source": "tracer.streams", "version": STREAMS_VERSION, "parameters": asdict(source)},
    )


def _fingerprint(source) -> str:
    content = {"version": STREAMS_VERSION, "kind": type(source).__name__, "parameters": asdict(source)}
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _at_least_one(source, field: str) -> None:
    value = getattr(source, field)
    if not isinstance(value, int) or value < 1:
        raise UserError(f"stream {field} = {value!r}: must be a whole number >= 1")
