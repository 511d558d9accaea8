"""Small kernels in memory, made from a seed, for tests of archives and writers."""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from traces.schema import EVENT, EXPLICIT, NO_SLOT, PLAIN_STRIDE, Kind
from traces.source import KernelInfo, Prefill, Workgroup


@dataclass
class ListKernel:
    """A KernelSource over workgroups in a list."""

    info: KernelInfo
    items: list[Workgroup]

    def workgroups(self, start=0):
        return iter(self.items[start:])

    def fingerprint(self):
        return hashlib.sha256(self.info.name.encode()).hexdigest()


@dataclass
class ListSource:
    """A TraceSource over commands in a list."""

    items: list = field(default_factory=list)

    def commands(self):
        return iter(self.items)

    def fingerprint(self):
        return hashlib.sha256(str(len(self.items)).encode()).hexdigest()


def random_workgroup(rng, index, warps, events_per_warp):
    """A workgroup of random rows and EXIT of each warp; about one memory event in eight lists its addresses."""
    counts = rng.integers(1, events_per_warp + 2, warps)
    edges = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    events = np.zeros(edges[-1], EVENT)
    events["kind"] = rng.integers(0, Kind.EXIT, len(events))
    events["kind"][edges[1:] - 1] = Kind.EXIT
    events["count"] = rng.integers(1, 50, len(events))
    events["mask"] = rng.integers(1, 1 << 32, len(events))
    events["base"] = rng.integers(0, 1 << 48, len(events))
    events["wait"] = rng.integers(0, 1 << 63, len(events), dtype=np.uint64)
    events["stride"] = rng.integers(-64, 64, len(events))
    events["row_stride"] = rng.integers(-(1 << 40), 1 << 40, len(events))
    events["inner"] = PLAIN_STRIDE
    events["slot"] = np.where(events["kind"] == Kind.BARRIER, 1, NO_SLOT)
    events["width_bytes"] = 4
    explicit = np.flatnonzero((rng.random(len(events)) < 0.125) & (events["kind"] <= Kind.ASYNC_COPY))
    lanes = np.bitwise_count(events["mask"][explicit]).astype(np.int64)
    events["inner"][explicit] = EXPLICIT
    events["base"][explicit] = np.concatenate([[0], np.cumsum(lanes)[:-1]]) if len(lanes) else []
    listed = rng.integers(0, 1 << 48, int(lanes.sum())).astype(np.uint64)
    return Workgroup(index, np.arange(warps, dtype=np.uint16), edges, events, listed)


def random_kernel(seed=1, workgroups=5, warps=4, events_per_warp=20, name="sample"):
    """A kernel of random workgroups."""
    rng = np.random.default_rng(seed)
    items = [random_workgroup(rng, index, warps, events_per_warp) for index in range(workgroups)]
    info = KernelInfo(
        name=name, grid=(max(1, workgroups), 1, 1), block=(32 * warps, 1, 1), lanes_per_warp=32, registers=40,
        shared_bytes=1024, stream=0, warps_per_workgroup=warps, workgroups=workgroups,
        attributes={"source": "random", "seed": seed},
    )  # fmt: skip
    return ListKernel(info, items)


def random_source(seed=1, **sizes):
    """Two prefills around two kernels."""
    return ListSource(
        [
            Prefill(0x7F0000000000, 4096),
            random_kernel(seed, **sizes),
            Prefill(0x7F0000001000, 123),
            random_kernel(seed + 1, name="second", **sizes),
        ]
    )


def assert_same_workgroup(left, right):
    """Equal workgroups, field by field."""
    assert left.index == right.index
    for name in ("warp", "first_event", "events", "addresses"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
