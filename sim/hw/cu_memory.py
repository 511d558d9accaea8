"""Memory events of a compute unit: which events the load/store unit takes, and how they start there."""

import numpy as np

from sim.hw.barrier import phase_arrival
from sim.hw.lsu import lsu_advance, lsu_start
from sim.hw.remote import lsu_start_remote
from tracer.compile.jit import compiled
from traces.schema import PHASE_ARRIVE, Bulk, Kind, Space


@compiled(inline=True)
def is_memory(event):
    """Does the event go to the load/store unit?"""
    return event.kind <= Kind.ASYNC_COPY and event.space != Space.SHARED and event.mask != np.uint64(0)


@compiled(inline=True)
def takes_load(event):
    """Does the event wait for its turn at the load table?"""
    return is_memory(event) or event.kind == Kind.BULK or arrives_elsewhere(event)


@compiled(inline=True)
def event_stores(event):
    """Does the event store, perhaps into a tile that needs an entry of the Tracker?"""
    if event.kind == Kind.BULK:
        return event.space == Bulk.STORE or event.space == Bulk.REDUCE
    return (event.kind == Kind.STORE or event.kind == Kind.REDUCE) and event.space < Space.SHARED


@compiled(inline=True)
def arrives_elsewhere(event):
    """Does the event arrive at transaction barriers of other workgroups?"""
    return event.kind == Kind.BARRIER and event.space == PHASE_ARRIVE and event.cycles > 0


@compiled(inline=True)
def start_memory(cu, lsu, l1, sets, fifos, pool, warps, w, event, addresses, output, now_ps):
    """Start the memory event of warp w, and send what can leave now.

    Reads: addresses, output. Writes: cu, lsu, l1, sets, fifos, pool, warps.
    """
    warp = warps.warp[w]
    resident = cu.resident[warp.workgroup]
    lsu.wavefront = w - resident.first_warp
    if event.space == Space.REMOTE or event.kind == Kind.BARRIER:
        _start_remote(cu, lsu, l1, sets, fifos, pool, warps, w, event, addresses, now_ps)
        return
    base = np.int64(event.base) + resident.shift_bytes[event.array]
    lsu_start(
        *(lsu, l1, sets, warps, w, event, base, addresses[warp.slab], resident.tag, resident.comm),
        *(output.space, output.tiles, output.sends, now_ps),
    )
    cu.slot_stall_ps += lsu_advance(lsu, l1, sets, fifos, pool, warps, now_ps)


@compiled
def _start_remote(cu, lsu, l1, sets, fifos, pool, warps, w, event, addresses, now_ps):
    """Start an event that goes to other CUs of the cluster. An arrival may mean the own workgroup too."""
    warp = warps.warp[w]
    resident = cu.resident[warp.workgroup]
    if event.kind == Kind.BARRIER:
        if (np.int64(event.cycles) >> resident.rank) & 1 == 1:
            arrivals, number = np.int64(event.work), np.int64(event.slot)
            phase_arrival(cu, warps, resident, number, arrivals, event.row_stride, now_ps)
        if np.int64(event.cycles) & ~(1 << np.int64(resident.rank)) == 0:
            return
    lsu_start_remote(lsu, warps, w, event, addresses[warp.slab], resident, now_ps)
    cu.slot_stall_ps += lsu_advance(lsu, l1, sets, fifos, pool, warps, now_ps)
