"""Sections of arithmetic: one COMPUTE event per pipe between two memory events, barriers or waits.

In a section, instructions of several pipes alternate. Their order does not matter to memory, so each pipe gets one
event, in the order of first use. The last event holds the rest of the section's length in clocks (its dependence
chains, up to the results that the next event needs). The other events take one clock per instruction.
"""

import numpy as np

from tracer.compile.jit import compiled
from traces.schema import NO_SLOT, PLAIN_STRIDE, Kind, Pipe

PIPES = len(Pipe)
COMPUTE = int(Kind.COMPUTE)
SECTION = np.dtype(
    [
        ("start", "i8"),  # clock of the first issue
        ("pipes", "i8"),  # pipes used so far; 0 = no section is open
        ("order", "i8", PIPES),  # pipe of each, in order of first use
        ("count", "i8", PIPES),  # by pipe, as all that follow
        ("work", "i8", PIPES),
        ("macs", "i8", PIPES),
        ("pc", "i8", PIPES),
        ("mask", "u8", PIPES),
        ("wait", "u8"),  # of the first instruction
        ("slot", "u1"),  # of the first instruction, from the writer's note
        ("events", "i8"),  # events written so far, of all warps
        ("last", "i8"),  # the warp's last COMPUTE event, -1 = none
    ],
    align=True,
)
U4_MAX = (1 << 32) - 1


@compiled
def add_work(section, instruction, pipe, opcode, clock, wait):
    """Add an instruction to the section. If no section is open, it begins a new one."""
    if section.pipes == 0:
        section.start = clock
        section.wait = wait
        section.slot = instruction.note_slot if instruction.noted else NO_SLOT
        section.count[:] = 0
    if section.count[pipe] == 0:
        section.order[section.pipes] = pipe
        section.pipes += 1
        section.pc[pipe] = instruction.pc
        section.mask[pipe] = 0
        section.work[pipe] = 0
        section.macs[pipe] = 0
    section.count[pipe] += 1
    section.mask[pipe] |= np.uint64(instruction.mask)
    if instruction.mask:
        section.work[pipe] += opcode.work
        section.macs[pipe] += opcode.macs


@compiled
def next_event(section, events):
    """The next row of events with default values. The caller fills it."""
    event = events[section.events]
    section.events += 1
    event.kind = 0
    event.space = 0
    event.cache = 0
    event.pipe = 0
    event.width_bytes = 0
    event.slot = NO_SLOT
    event.inner = PLAIN_STRIDE
    event.array = 0
    event.stride = 0
    event.count = 1
    event.cycles = 0
    event.work = 0
    event.pc = 0
    event.pad = 0
    event.row_stride = 0
    event.base = 0
    event.mask = 0
    event.wait = 0
    return event


@compiled
def close_section(section, events, clock):
    """Write the events of the section. `clock` is the issue of the next event."""
    left = clock - section.start
    for k in range(section.pipes):
        pipe = section.order[k]
        count = section.count[pipe]
        event = next_event(section, events)
        event.kind = COMPUTE
        event.pipe = pipe
        event.count = count
        event.cycles = min(max(left, count) if k == section.pipes - 1 else count, U4_MAX)
        left -= count
        event.work = min(section.work[pipe], U4_MAX)
        if section.macs[pipe] != section.work[pipe]:
            event.row_stride = section.macs[pipe]
        event.pc = section.pc[pipe]
        event.mask = section.mask[pipe]
        if k == 0:
            event.wait = section.wait
            event.slot = section.slot
        section.last = section.events - 1
    section.pipes = 0


@compiled
def lengthen(section, events, stall):
    """Make the last COMPUTE event `stall` clocks longer, because a later event waits for its result."""
    if stall > 0 and section.last >= 0:
        event = events[section.last]
        event.cycles = min(np.int64(event.cycles) + stall, U4_MAX)
