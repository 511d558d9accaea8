"""Where the lines of a load/store unit go: the sets of L1 for loads, and the destination of what it sends.

The tile says the destination (`sim.hw.space`), or the window of a collective.
"""

import numpy as np

from sim.hw.l1 import BYPASS, l1_expect, l1_set
from sim.hw.request import SECTOR_BYTES, Op
from sim.hw.space import LOCAL_BYTES, LOCAL_SUM, PEER_BITS, fingerprint, held
from sim.hw.tags import sectors_in
from tracer.compile.atomics import add_field
from tracer.compile.jit import compiled
from traces.schema import Cache


@compiled(inline=True)
def choose_sets(lsu, l1, sets):
    """Choose the sets of L1 for the lines of a load. All are prefetched on the host, so that it waits only once.

    Reads: l1. Writes: lsu.
    """
    keep = lsu.cache == Cache.DEFAULT or lsu.cache == Cache.STREAM
    for i in range(lsu.lines):
        number = BYPASS
        if keep:
            number = l1_set(l1, lsu.line[i])
            l1_expect(l1, sets, number)
        lsu.cache_set[i] = number


@compiled(inline=True)
def leave_window(lsu):
    """If the current lines are in the window of another GPU, set their link, and their addresses there. Writes: lsu."""
    lsu.link = lsu.line[0] >> PEER_BITS
    if lsu.link > 0:
        for i in range(lsu.lines):
            lsu.line[i] -= lsu.link << PEER_BITS


@compiled(inline=True)
def route_collective(lsu, tile):
    """Set the destination of the current stores of a collective's kernel. Its addresses have a peer window.

    Writes: lsu, tile.
    """
    leave_window(lsu)
    if lsu.link > 0:
        lsu.contributors = 1 if tile.alone == 1 else held(tile)
        if tile.op == Op.COMBINE:
            lsu.op = Op.COMBINE
    if lsu.op == Op.REDUCE:
        lsu.op = Op.UPDATE
    if lsu.link == 0 and lsu.cache != Cache.UNCACHED:  # the store ends in L2: no channel sees this request
        for i in range(lsu.lines):
            add_field(tile, LOCAL_BYTES, sectors_in(lsu.sectors[i]) * SECTOR_BYTES)
            add_field(tile, LOCAL_SUM, fingerprint(tile, lsu.line[i], lsu.sectors[i]))


@compiled(inline=True)
def route_store(lsu, tile, sends):
    """Set the destination of the current stores from their tile. Reads: tile, sends. Writes: lsu."""
    if tile.routed == 0:
        return
    lsu.op, lsu.cache, lsu.contributors = tile.op, Cache.UNCACHED, 1
    lsu.stores, lsu.first_store = tile.stores, tile.first_store
    for k in range(tile.stores):
        lsu.links[k] = 1 + sends[tile.first_store + k].port
    if tile.stay == 0:
        next_gpu(lsu)


@compiled(inline=True)
def next_gpu(lsu):
    """Send the current lines (again), to the next GPU of a set. Writes: lsu."""
    lsu.link = np.int64(lsu.links[lsu.store])
    lsu.send = lsu.first_store + lsu.store
    lsu.store += 1
    lsu.next_line = 0
