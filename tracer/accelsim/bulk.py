"""TMA loads to transaction barriers that are followed, as bulk copies: boxes of rows, found in the listed transfers."""

import numpy as np

from tracer.accelsim.address_columns import BULK_LANE_BYTES
from tracer.accelsim.issue import start_event
from tracer.accelsim.opcodes import Action
from tracer.accelsim.phases import find_phase, ranks_of_copy
from tracer.accelsim.section import next_event
from tracer.compile.jit import compiled
from tracer.event_faults import MAX_PITCH_BYTES
from traces.schema import BULK_ALIGN, PLAIN_STRIDE, Bulk, Cache, Kind

KIND_BULK, BULK_LOAD, DEFAULT_CACHE = int(Kind.BULK), int(Bulk.LOAD), int(Cache.DEFAULT)
BULK_COPY, KIND_WAIT = int(Action.BULK_COPY), int(Kind.WAIT)


@compiled
def _row_lanes(addresses, first, end):
    """How many listed lanes from `first` on follow each other in memory."""
    lanes = 1
    while first + lanes < end and addresses[first + lanes] == addresses[first] + np.uint64(lanes * BULK_LANE_BYTES):
        lanes += 1
    return lanes


@compiled
def _rows(addresses, first, end, lanes):
    """(rows of `lanes` lanes from `first` on that are equally far apart, their distance in bytes)."""
    rows, pitch = 1, np.int64(0)
    while True:
        here = first + rows * lanes
        if here >= end or _row_lanes(addresses, here, end) != lanes:
            return rows, pitch
        step = np.int64(addresses[here] - addresses[here - lanes])
        near = lanes * BULK_LANE_BYTES <= step <= MAX_PITCH_BYTES
        if (rows > 1 and step != pitch) or not near or step % BULK_ALIGN != 0:
            return rows, pitch
        rows, pitch = rows + 1, step


@compiled
def add_bulk_loads(builder, instruction, slot, events, addresses):
    """Add a TMA load to a transaction barrier: one event for each box of equal rows.

    The last says what the barriers of other workgroups are told (`tracer.accelsim.dry_run`). A load outside the tensor
    moves nothing, but they are told.
    """
    number, ranks = find_phase(builder, instruction.barrier), ranks_of_copy(instruction)
    own = ranks == 1 << builder.rank
    event = start_event(builder, instruction, BULK_COPY, events)
    event.cycles = 0 if own else ranks
    if instruction.lanes == 0:
        event.kind = KIND_WAIT
        event.inner = number
    first, end = np.int64(instruction.base), np.int64(instruction.base) + instruction.lanes
    more = False
    while first < end:
        if more:
            event = next_event(builder.section, events)
            event.pc = instruction.pc
            event.count = 0
            event.cycles = 0 if own else ranks
        lanes = _row_lanes(addresses, first, end)
        rows, pitch = _rows(addresses, first, end, lanes)
        event.kind = KIND_BULK
        event.space = BULK_LOAD
        event.cache = DEFAULT_CACHE
        event.slot = slot
        event.inner = number
        event.stride = lanes * BULK_LANE_BYTES
        event.work = rows
        event.row_stride = pitch
        event.base = addresses[first]
        builder.failed |= addresses[first] % np.uint64(BULK_ALIGN) != np.uint64(0)
        first += rows * lanes
        more = True
    event.pad = 0 if own else instruction.bytes


@compiled
def clear_told(events, count):
    """After the dry run: events say no more what other workgroups are told."""
    for k in range(count):
        event = events[k]
        event.pad = 0
        if event.kind == KIND_WAIT:
            event.cycles = 0
            event.inner = PLAIN_STRIDE
