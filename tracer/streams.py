"""Small memory microbenchmarks as kernel traces: pointer chase, and streams that read, write or copy a buffer.

They measure a machine as the published microbenchmarks do. Load-to-use latency of a cache level: a buffer that fits it.
Bandwidth: a buffer far larger than L2, or one that stays in L2 and is read in several passes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np

from tracer.events import NO_ADDRESSES, VECTOR_BYTES, access, compute, event
from tracer.parameter_kernel import ParameterKernel
from traces.bounds import Bound
from traces.errors import UserError
from traces.schema import Cache, Kind, Pipe
from traces.source import KernelInfo, Workgroup

BUFFER = Bound(1, 1 << 40, "far more than the memory of any GPU")
ADDRESS = Bound(0, 1 << 61, "an address that leaves room for the buffer")
EVENTS_MAX = 1 << 22
"""Events of a workgroup: they are in memory."""
REGISTERS = 32
"""Registers per thread (assumed: such kernels are small)."""
ADD_LATENCY_CLK = 4
STREAMS_VERSION = 2
"""Raised when the same parameters give other events."""


class Flow(IntEnum):
    """Action of a stream on its buffer."""

    READ = 0
    WRITE = 1
    COPY = 2  # read the buffer, write the one at `copy_address`


@dataclass(frozen=True)
class PointerChase(ParameterKernel):
    """One lane makes `loads` loads. Each address depends on the value loaded before.

    Addresses advance by `stride_bytes` and wrap around after `buffer_bytes`.
    """

    NAME: ClassVar[str] = "chase"
    VERSION: ClassVar[int] = STREAMS_VERSION
    BOUNDS: ClassVar[dict[str, Bound]] = {
        "buffer_bytes": BUFFER,
        "loads": Bound(1, EVENTS_MAX, "the events of a workgroup are in memory"),
        "stride_bytes": BUFFER,
        "address": ADDRESS,
    }

    buffer_bytes: int
    loads: int
    stride_bytes: int = 128
    address: int = 1 << 36
    cache: Cache = Cache.DEFAULT
    lanes: int = 32

    def __post_init__(self):
        self.check_fields()
        self.check_lanes(self.lanes)

    @property
    def info(self) -> KernelInfo:
        name = f"chase_{self.buffer_bytes}"
        return self.make_info(name, workgroups=1, warps=1, lanes=self.lanes, registers=REGISTERS)

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """The only workgroup."""
        if start > 0:
            return
        offsets = np.arange(self.loads, dtype=np.uint64) * np.uint64(self.stride_bytes) % np.uint64(self.buffer_bytes)
        events = access(
            Kind.LOAD, self.loads, lanes=1, base=np.uint64(self.address) + offsets, cache=self.cache, slot=0, wait=1
        )
        events["width_bytes"] = 8
        events["wait"][0] = 0
        first_event = np.array([0, self.loads + 1])
        yield Workgroup(0, np.zeros(1, np.uint16), first_event, np.append(events, event(Kind.EXIT)), NO_ADDRESSES)


@dataclass(frozen=True)
class BufferStream(ParameterKernel):
    """All warps walk a buffer together: `lane_bytes` per lane and access, `unroll` accesses in flight per warp.

    If there are enough workgroups, each warp has one turn and the buffer is walked in the order of dispatch. With
    several `passes` the buffer is walked several times. It then comes from L2 if it fits and `cache` bypasses L1.
    """

    NAME: ClassVar[str] = "stream"
    VERSION: ClassVar[int] = STREAMS_VERSION
    BOUNDS: ClassVar[dict[str, Bound]] = {
        "buffer_bytes": BUFFER,
        "workgroup_count": Bound(1, 1 << 24, "far more than run at once"),
        "warps": Bound(1, 64, "the warps of a workgroup"),
        "unroll": Bound(1, 64, "an access in flight has a slot of the scoreboard"),
        "lane_bytes": Bound(1, VECTOR_BYTES, "the widest access of a lane"),
        "passes": Bound(1, EVENTS_MAX, "the events of a workgroup are in memory"),
        "address": ADDRESS,
        "copy_address": ADDRESS,
        "stores": Bound(0, 64, "accesses of a turn"),
    }

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
    lane_bytes: int = VECTOR_BYTES
    stores: int = 0  # of a copy: accesses of `unroll` that are written; 0 = all

    def __post_init__(self):
        self.check_fields()
        self.check_lanes(self.lanes)
        if self.lane_bytes & (self.lane_bytes - 1):
            raise UserError(f"stream lane_bytes = {self.lane_bytes}: must be 1, 2, 4, 8 or 16")
        most = self.unroll if self.flow == Flow.COPY else 0
        if self.stores > most:
            raise UserError(f"stream stores = {self.stores}: must be <= {most}, the accesses in flight of a copy")
        if self.buffer_bytes % self.access_bytes:
            raise UserError(f"stream buffer_bytes = {self.buffer_bytes}: must be a multiple of {self.access_bytes}")
        accesses = self._turns * self.passes * self.unroll * self.warps
        if accesses > EVENTS_MAX:
            raise UserError(
                f"stream of {accesses:,} accesses in a workgroup, whose events are in memory: allowed are "
                f"{EVENTS_MAX:,}; a smaller buffer_bytes, fewer passes or a larger workgroup_count"
            )
        self.check_accesses(accesses * self.workgroup_count)

    @property
    def access_bytes(self) -> int:
        """Size of one warp access."""
        return self.lanes * self.lane_bytes

    @property
    def _turn_accesses(self) -> int:
        """Accesses of all warps in one turn."""
        return self.workgroup_count * self.warps * self.unroll

    @property
    def _turns(self) -> int:
        """Turns that walk the buffer once."""
        return -(-self.buffer_bytes // (self.access_bytes * self._turn_accesses))

    @property
    def info(self) -> KernelInfo:
        name = f"{self.flow.name.lower()}_{self.buffer_bytes}"
        return self.make_info(
            name, workgroups=self.workgroup_count, warps=self.warps, lanes=self.lanes, registers=REGISTERS
        )

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups, starting at number `start`. They differ only in their place in the buffer."""
        events, access = self._first_workgroup()
        for index in range(start, self.workgroup_count):
            yield self._moved(events, access, index)

    def _first_workgroup(self) -> tuple[np.ndarray, np.ndarray]:
        """Events (warps, n) without the limit of the buffer's end, and the access number of each (-1 = no access)."""
        turn_accesses, turns = self._turn_accesses, self._turns
        turn = self._turn()
        events = np.append(np.tile(turn, turns * self.passes), event(Kind.EXIT))
        number = np.append(np.tile(np.arange(turns), self.passes).repeat(turn.size), 0)
        access = number * turn_accesses + events["array"]  # the template's place in its turn
        events["array"] = 0
        warps = np.arange(self.warps)[:, None]
        memory = events["kind"] <= Kind.STORE
        return np.tile(events, (self.warps, 1)), np.where(memory, access + warps * self.unroll, -1)

    def _moved(self, events: np.ndarray, access: np.ndarray, index: int) -> Workgroup:
        """Workgroup `index`: the events of the first workgroup, moved to its place in the buffer."""
        offset = (access + index * self.warps * self.unroll) * self.access_bytes
        memory = access >= 0
        moved = events.copy()
        moved["base"] += np.where(memory, offset, 0).astype(np.uint64)
        kept = ~memory | (offset < self.buffer_bytes)
        first_event = np.append(0, np.cumsum(kept.sum(axis=1)))
        return Workgroup(index, np.arange(self.warps, dtype=np.uint16), first_event, moved[kept], NO_ADDRESSES)

    def _accesses(self, kind: Kind) -> np.ndarray:
        return access(kind, self.unroll, lanes=self.lanes, width_bytes=self.lane_bytes, cache=self.cache)

    def _turn(self) -> np.ndarray:
        """Templates of one turn: loads with one slot each, then the use of their data (a sum, or stores)."""
        place = np.arange(self.unroll)
        target = self.address if self.flow == Flow.WRITE else self.copy_address
        loads, stores = (self._accesses(kind) for kind in (Kind.LOAD, Kind.STORE))
        loads["base"], stores["base"], loads["slot"] = self.address, target, place
        loads["array"] = stores["array"] = place
        if self.flow == Flow.WRITE:
            return stores
        if self.flow == Flow.COPY:
            stores["wait"] = np.uint64(1) << place.astype(np.uint64)
            return np.concatenate([loads, stores[: self.stores or self.unroll]])
        words = max(1, self.unroll * self.lane_bytes // 4)
        return np.concatenate([loads, compute(Pipe.FMA, words, ADD_LATENCY_CLK, wait=(1 << self.unroll) - 1)])
