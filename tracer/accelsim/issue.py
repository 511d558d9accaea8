"""State of the event builder, and the issue of an instruction: as work of a section, or as an event."""

import numpy as np

from tracer.accelsim.dry_run import DRY
from tracer.accelsim.instruction import LANES
from tracer.accelsim.opcodes import Action
from tracer.accelsim.phases import PHASE
from tracer.accelsim.scoreboard import SCOREBOARD, write_result
from tracer.accelsim.section import SECTION, add_work, close_section, lengthen, next_event
from tracer.accelsim.unusual import COUNTS
from tracer.compile.jit import compiled
from traces.schema import PHASE_BARRIERS, Kind

BUILDER = np.dtype(
    [
        ("shared_base", "u8"),  # address windows of generic accesses; 0 = unknown
        ("local_base", "u8"),
        ("halve_copies", "i8"),  # 1 = raw trace: LDGSTS has two lines, the second counts
        ("half_pc", "i8"),  # program counter of the first line of an LDGSTS whose second has not come, -1 = none
        ("half_line", "i8"),  # and its line
        ("fenced", "i8"),  # the warp's first event after its last fence
        ("noted", "i8"),  # 1 = slots and waits come from the writer's notes
        ("unusual", COUNTS),
        # barriers of the cluster
        ("cluster", "i8"),  # workgroups
        ("rank", "i8"),  # of the workgroup that is built
        ("meets", "i8"),  # 1 = the barrier of the cluster is followed
        ("meetings", "i8"),  # arrivals of the warp at it
        ("met", "i8"),  # 1 = the warp has not waited for the last one
        # transaction barriers
        ("followed", "i8"),  # 1 = they are
        ("failed", "i8"),  # 1 = barriers cannot be followed: a copy that is not announced, an arrival too many
        ("phase_count", "i8"),
        ("phases", PHASE, PHASE_BARRIERS),
        ("target_rank", "i8", LANES),  # at which barriers the lanes of an instruction arrive ...
        ("target_number", "i8", LANES),
        ("target_lanes", "i8", LANES),  # ... and how many lanes
        ("announced", "i8"),  # transaction barrier whose announced copies have not all been issued, -1 = none
        ("announced_bytes", "i8"),  # that are still to come
        ("announced_arrivals", "i8"),  # after them
        ("copied_bytes", "i8", PHASE_BARRIERS),  # that the warp has copied to each barrier less those it has announced
        ("dry", DRY),
        ("board", SCOREBOARD),
        ("section", SECTION),
    ],
    align=True,
)
KIND_OF_ACTION = np.array(
    [Kind.COMPUTE, Kind.LOAD, Kind.STORE, Kind.ATOMIC, Kind.REDUCE, Kind.ASYNC_COPY, Kind.WAIT, Kind.WAIT,
     Kind.BARRIER, Kind.EXIT, Kind.ASYNC_COPY, Kind.WAIT, Kind.BARRIER, Kind.WAIT, Kind.WAIT, *[Kind.BARRIER] * 8,
     Kind.WAIT], np.uint8)  # fmt: skip
assert len(KIND_OF_ACTION) == len(Action)


@compiled
def compute(builder, instruction, opcode, pipe, events):
    """Add an instruction that makes no memory event."""
    board = builder.board
    section = builder.section
    issue = max(board.clock + 1, board.earliest)
    if section.pipes and (board.wait != 0 or (builder.noted and instruction.noted)):
        close_section(section, events, issue)
        add_work(section, instruction, pipe, opcode, issue, board.wait)
    else:
        add_work(section, instruction, pipe, opcode, board.clock + 1, board.wait)
    board.clock = issue
    write_result(board, instruction, opcode)


@compiled
def start_event(builder, instruction, action, events):
    """Close the section and begin a separate event."""
    board = builder.board
    section = builder.section
    issue = max(board.clock + 1, board.earliest)
    if section.pipes:
        close_section(section, events, issue)
    else:
        lengthen(section, events, issue - board.clock - 1)
    board.clock = issue
    event = next_event(section, events)
    event.kind = KIND_OF_ACTION[action]
    event.pc = instruction.pc
    event.mask = instruction.mask
    event.wait = board.wait
    return event
