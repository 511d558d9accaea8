"""Builders of warp events (`traces.schema.EVENT`), shared by all kernel sources.

A numpy source joins arrays of events. A compiled source copies templates, made here, with `put`.
"""

from collections.abc import Sequence

import numpy as np

from tracer.compile.jit import compiled
from traces.schema import EVENT, NO_SLOT, PLAIN_STRIDE, Cache, Kind, Pipe, Space

VECTOR_BYTES = 16
"""Widest access of one lane."""
_BYTES = np.dtype(("V", EVENT.itemsize))
ALL_LANES = np.uint64(0xFFFFFFFFFFFFFFFF)
NO_ADDRESSES = np.empty(0, np.uint64)
"""`addresses` of a workgroup whose events list none."""


def event(kind: Kind, number: int = 1, *, slot=NO_SLOT, wait=0) -> np.ndarray:
    """EVENT[number] with one instruction each: barriers (slot = number of the barrier), waits, or the exit of a warp.

    Args:
        slot, wait: as in the schema; one value for all events or one each.
    """
    events = np.zeros(number, EVENT)
    events["kind"], events["slot"], events["wait"], events["count"] = kind, slot, wait, 1
    return events


def access(
    kind: Kind,
    number: int = 1,
    *,
    lanes,
    width_bytes=VECTOR_BYTES,
    base=0,
    space: Space = Space.GLOBAL,
    cache: Cache = Cache.DEFAULT,
    slot=NO_SLOT,
    wait=0,
) -> np.ndarray:
    """EVENT[number]: loads, stores or reductions whose lanes are adjacent in memory.

    Args:
        kind: LOAD, STORE, REDUCE or another memory event.
        lanes: number of lanes, 1 .. 64, beginning with lane 0; one value for all events or one each.
        width_bytes: per lane; one value for all events or one each.
        base: address of lane 0; one value for all events or one each.
        slot, wait: as for `event`.
    """
    events = event(kind, number, slot=slot, wait=wait)
    events["space"], events["cache"], events["base"], events["inner"] = space, cache, base, PLAIN_STRIDE
    events["width_bytes"] = events["stride"] = width_bytes
    events["mask"] = ALL_LANES >> (64 - np.asarray(lanes)).astype(np.uint64)
    return events


def compute(
    pipe: Pipe, instructions: int, latency_clk: int, number: int = 1, *, work: int = 0, slot=NO_SLOT, wait=0
) -> np.ndarray:
    """EVENT[number] of arithmetic.

    Args:
        instructions: of the warp, in each event.
        latency_clk: core clocks from the first issue to the last result.
        work: multiply-accumulates of the warp (TENSOR).
        slot, wait: as for `event`.
    """
    events = event(Kind.COMPUTE, number, slot=slot, wait=wait)
    events["pipe"], events["count"], events["cycles"], events["work"] = pipe, instructions, latency_clk, work
    return events


def shared_access(kind: Kind, lanes: int, data_bytes: float, slot: int = NO_SLOT, wait: int = 0) -> np.ndarray:
    """Shared-memory accesses of a warp in one event: count x lanes x 16 bytes, rounded up to whole instructions."""
    folded = access(kind, lanes=lanes, space=Space.SHARED, slot=slot, wait=wait)
    folded["count"] = -(-data_bytes // (lanes * VECTOR_BYTES))
    return folded


def phase_barrier(space: int, arrivals: int = 0) -> np.ndarray:
    """An arrival at a transaction barrier or at that of a cluster, or a wait there. space: as in the schema."""
    events = event(Kind.BARRIER, slot=0)
    events["space"], events["work"] = space, arrivals
    return events


def join(parts: Sequence[np.ndarray]) -> np.ndarray:
    """EVENT arrays one after the other. (numpy joins plain bytes ten times faster than records.)"""
    return np.concatenate([part.view(_BYTES) for part in parts]).view(EVENT)


def join_warps(warps: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(events, first_event) of a workgroup, from the events of its warps."""
    return join(warps), np.cumsum([0, *map(len, warps)])


@compiled
def put(events, at, template, wait, slot):
    """Append a copy of `template` at index `at`, with these wait mask and slot. Returns the next index.

    If the array is full, its last element is overwritten. The returned index still counts, so it gives the size needed.
    """
    event = min(at, events.size - 1)
    events[event] = template
    events[event].wait = wait
    events[event].slot = slot
    return at + 1
