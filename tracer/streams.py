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

VECTOR_BYTES = 16
"""Per lane of a stream's access."""
UNROLL_MAX = 64
REGISTERS = 32
"""Per thread (assumed: such kernels are small)."""
STREAMS_VERSION = 2
"""Raised whenever the same parameters give other events."""
_NO_ADDRESSES = np.empty(0, np.uint64)


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
    lanes: int = 32

    def __post_init__(self):
        for field in ("buffer_bytes", "loads", "stride_bytes"):
            _at_least_one(self, field)
        _check_lanes(self)

    @property
    def info(self) -> KernelInfo:
        return _info(self, f"chase_{self.buffer_bytes}", workgroups=1, warps=1)

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """The one workgroup."""
        if start > 0:
            return
        events = _accesses(Kind.LOAD, self.loads, self.cache, self.lanes)
        events["width_bytes"], events["mask"] = 8, 1
        offsets = np.arange(self.loads, dtype=np.uint64) * np.uint64(self.stride_bytes) % np.uint64(self.buffer_bytes)
        events["base"] = np.uint64(self.address) + offsets
        events["slot"], events["wait"] = 0, 1
        events["wait"][0] = 0
        first_event = np.array([0, self.loads + 1])
        yield Workgroup(0, np.zeros(1, np.uint16), first_event, np.append(events, _end()), _NO_ADDRESSES)

    def fingerprint(self) -> str:
        return _fingerprint(self)


@dataclass(frozen=True)
class BufferStream:
    """All warps walk a buffer together, 16 adjacent bytes per lane and access, `unroll` accesses in flight per warp.

    With as many workgroups as it takes, each warp has one turn and the buffer is walked in the order of dispatch. With
    several `passes` the buffer is walked again and again: from L2 where it fits and `cache` bypasses L1.
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
    lanes: int = 32

    def __post_init__(self):
        for field in ("buffer_bytes", "workgroup_count", "warps", "unroll", "passes"):
            _at_least_one(self, field)
        _check_lanes(self)
        if self.buffer_bytes % self.access_bytes:
            raise UserError(f"stream buffer_bytes = {self.buffer_bytes}: must be a multiple of {self.access_bytes}")
        if self.unroll > UNROLL_MAX:
            raise UserError(f"stream unroll = {self.unroll}: must be <= {UNROLL_MAX}")

    @property
    def access_bytes(self) -> int:
        """Of one warp access."""
        return self.lanes * VECTOR_BYTES

    @property
    def info(self) -> KernelInfo:
        name = f"{self.flow.name.lower()}_{self.buffer_bytes}"
        return _info(self, name, self.workgroup_count, self.warps)

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups from number `start` on: all alike but for where they are in the buffer."""
        events, access = self._first_workgroup()
        for index in range(start, self.workgroup_count):
            yield self._moved(events, access, index)

    def fingerprint(self) -> str:
        return _fingerprint(self)

    def _first_workgroup(self) -> tuple[np.ndarray, np.ndarray]:
        """Events (warps, n) before the buffer's end is looked at, and the access of each; -1 where there is none."""
        turn_accesses = self.workgroup_count * self.warps * self.unroll
        turns = -(-self.buffer_bytes // (self.access_bytes * turn_accesses))
        turn = self._turn()
        events = np.append(np.tile(turn, turns * self.passes), _end())
        number = np.append(np.tile(np.arange(turns), self.passes).repeat(turn.size), 0)
        access = number * turn_accesses + events["array"]  # a template's place in its turn
        events["array"] = 0
        warps = np.arange(self.warps)[:, None]
        memory = events["kind"] <= Kind.STORE
        return np.tile(events, (self.warps, 1)), np.where(memory, access + warps * self.unroll, -1)

    def _moved(self, events: np.ndarray, access: np.ndarray, index: int) -> Workgroup:
        """The events of the first workgroup as those of workgroup `index`, numbered through the whole grid."""
        offset = (access + index * self.warps * self.unroll) * self.access_bytes
        memory = access >= 0
        moved = events.copy()
        moved["base"] += np.where(memory, offset, 0).astype(np.uint64)
        kept = ~memory | (offset < self.buffer_bytes)
        first_event = np.append(0, np.cumsum(kept.sum(axis=1)))
        return Workgroup(index, np.arange(self.warps, dtype=np.uint16), first_event, moved[kept], _NO_ADDRESSES)

    def _turn(self) -> np.ndarray:
        """Templates of one turn: loads with a slot each, then their use (a sum, or the stores of a copy)."""
        place = np.arange(self.unroll)
        loads = _accesses(Kind.LOAD, self.unroll, self.cache, self.lanes)
        stores = _accesses(Kind.STORE, self.unroll, self.cache, self.lanes)
        loads["array"] = stores["array"] = loads["slot"] = place
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


def _accesses(kind: Kind, count: int, cache: Cache, lanes: int) -> np.ndarray:
    """`count` full-warp accesses of adjacent vectors, without addresses."""
    events = np.zeros(count, EVENT)
    events["kind"], events["cache"], events["slot"], events["inner"] = kind, cache, NO_SLOT, PLAIN_STRIDE
    events["width_bytes"] = events["stride"] = VECTOR_BYTES
    events["mask"], events["count"] = (1 << lanes) - 1, 1
    return events


def _end() -> np.ndarray:
    """The EXIT of a warp."""
    end = np.zeros(1, EVENT)
    end["kind"], end["slot"], end["count"] = Kind.EXIT, NO_SLOT, 1
    return end


def _info(source, name: str, workgroups: int, warps: int) -> KernelInfo:
    return KernelInfo(
        name=name,
        grid=(workgroups, 1, 1),
        block=(warps * source.lanes, 1, 1),
        lanes_per_warp=source.lanes,
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


def _check_lanes(source) -> None:
    if source.lanes not in (32, 64):
        raise UserError(f"stream lanes = {source.lanes!r}: must be 32 or 64")


def _at_least_one(source, field: str) -> None:
    value = getattr(source, field)
    if not isinstance(value, int) or value < 1:
        raise UserError(f"stream {field} = {value!r}: must be a whole number >= 1")
