"""The trace window: the events of the workgroups that run now or soon, in slabs of equal size.

Workgroups come from a `KernelSource` one by one and lie in the window until they end, so memory is bounded by what
fits on the machine plus a little read-ahead, whatever the size of the trace. Those that differ in their addresses only
share a slab (`sim.host.program`). Kernels that run at once share the window, each with slabs of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sim.host.program import Match, match, split, words_of
from sim.hw.prefetch import host_aligned
from sim.machine.build import STAGED_WORKGROUPS, Node
from tracer.workgroup_check import Extent, check_events, check_structure
from traces.source import KernelSource, Workgroup

READ_AHEAD = 64
"""Workgroups staged beyond those that fit on the machine."""


PROGRAMS = 4
"""Programs of a kernel that its next workgroups may share: inner tiles, and those at two edges and a corner."""


@dataclass(frozen=True)
class Launch:
    """A kernel and where it runs.

    Attributes:
        source: its workgroups.
        queue: dispatch queue, one per kernel that runs at once.
        cus: CUs that it may use, (first, one past the last); None = all.
        places: workgroups per CU at most; None = what fits.
        comm: its requests travel in the communication streams.
        tags: i8 [workgroups]: output tile that each workgroup makes; None = the number of the workgroup.
        gates: i8 [workgroups]: gate that each workgroup waits for, -1 = none; None = none at all.
        start_ps: launch.
    """

    source: KernelSource
    queue: int = 0
    cus: tuple[int, int] | None = None
    places: int | None = None
    comm: bool = False
    tags: np.ndarray | None = None
    gates: np.ndarray | None = None
    start_ps: int = 0


class Program(NamedTuple):
    """Events in a slab that further workgroups may share."""

    slab: int
    events: int
    warps: int
    extent: Extent


class Feed:
    """One kernel's share of the window: its next workgroups and its slabs.

    Attributes:
        read: workgroups taken from the trace so far.
        inside: of these, in the window.
        users: of each slab: workgroups that run on it, and one more if it holds a program to share.
        programs: that the next workgroups may share, latest first.
    """

    def __init__(self, launch: Launch, first_slab: int, room: int):
        """room: workgroups in the window at most."""
        self.launch, self.room, self.info = launch, room, launch.source.info
        slabs = room + PROGRAMS
        self.first_slab, self.end_slab = first_slab, first_slab + slabs
        self.free = list(range(self.end_slab - 1, first_slab - 1, -1))
        self.users = [0] * slabs
        self.inside = 0
        self.programs: list[Program] = []
        self.read = 0
        self.workgroups: Iterator[Workgroup] = launch.source.workgroups()

    def facts(self) -> dict[str, Any]:
        """What the machine's records do not say: how many workgroups were read, how many run on each slab."""
        users = list(self.users)
        for program in self.programs:
            users[program.slab - self.first_slab] -= 1
        return {"read": self.read, "users": users}

    def resume(self, facts: dict[str, Any]) -> None:
        """Take the facts of a feed of the same kernel; the next workgroup is the first that it had not read."""
        self.read, self.users, self.programs = facts["read"], list(facts["users"]), []
        self.free = [self.first_slab + k for k, users in enumerate(self.users) if not users]
        self.inside = sum(self.users)
        self.workgroups = self.launch.source.workgroups(self.read)

    def hold(self, slab: int) -> None:
        """One more needs the slab."""
        self.users[slab - self.first_slab] += 1

    def release(self, slab: int) -> None:
        """One fewer needs the slab; the last one gives it back."""
        self.users[slab - self.first_slab] -= 1
        if not self.users[slab - self.first_slab]:
            self.free.append(slab)

    def keep(self, program: Program, instead: int | None) -> None:
        """Let further workgroups share a program. instead: slab of a program that is forgotten for it."""
        gone = [one for one in self.programs if one.slab == instead]
        self.programs = [program, *(one for one in self.programs if one not in gone)]
        self.hold(program.slab)
        for other in gone + self.programs[PROGRAMS:]:
            self.release(other.slab)
        del self.programs[PROGRAMS:]


class TraceWindow:
    """Slabs of events for the kernels in progress on a node.

    Attributes:
        node: the node with the current window arrays; they are replaced when a larger workgroup comes.
    """

    def __init__(self, node: Node, launches: Sequence[tuple[Launch, int]]):
        """launches: kernels that run at once, each with the workgroups of it that fit on the machine."""
        self.feeds: list[Feed] = []
        self.slabs = 0
        for launch, resident in launches:
            self.feeds.append(Feed(launch, self.slabs, resident + READ_AHEAD))
            self.slabs = self.feeds[-1].end_slab
        self.node = node._replace(
            events=np.zeros((self.slabs, 0), node.events.dtype),
            addresses=np.zeros((self.slabs, 1), np.uint64),
            freed=np.zeros(self.slabs, np.int64),
        )
        node.engine[0]["freed"] = 0  # those of the kernel before are gone

    def _take_freed(self) -> None:
        engine = self.node.engine[0]
        for slab in self.node.freed[: engine["freed"]].tolist():
            feed = next(feed for feed in self.feeds if slab < feed.end_slab)
            feed.inside -= 1
            feed.release(slab)
        engine["freed"] = 0

    def _grow(self, events: int, addresses: int) -> None:
        """Widen every slab to hold a workgroup of that size."""
        if self.node.events.shape[1] < events:
            self.node = self.node._replace(events=_widened(self.node.events, events))
        if self.node.addresses.shape[1] < addresses:
            self.node = self.node._replace(addresses=_widened(self.node.addresses, addresses))

    def fill(self) -> None:
        """Stage workgroups until the window is full or the traces end."""
        self._take_freed()
        for feed in self.feeds:
            self._fill(feed)

    def _fill(self, feed: Feed) -> None:
        dispatch = self.node.dispatch[feed.launch.queue]
        while feed.inside < feed.room and dispatch["staged"] - dispatch["taken"] < STAGED_WORKGROUPS:
            workgroup = next(feed.workgroups, None)
            if workgroup is None:
                dispatch["ended"] = 1
                return
            feed.read += 1
            check_structure(feed.info, workgroup)
            if len(workgroup.warp):
                self._stage(feed, workgroup)

    def _stage(self, feed: Feed, workgroup: Workgroup) -> None:
        warps, launch = len(workgroup.warp), feed.launch
        dispatch = self.node.dispatch[launch.queue]
        staged = self.node.staged[launch.queue][dispatch["staged"] % STAGED_WORKGROUPS]
        staged["slab"] = self._slab(feed, workgroup, staged["shift_bytes"])
        staged["warps"] = warps
        staged["tag"] = workgroup.index if launch.tags is None else launch.tags[workgroup.index]
        staged["gate"] = 0 if launch.gates is None else 1 + launch.gates[workgroup.index]
        staged["warp"][:warps] = workgroup.warp
        staged["first_event"][:warps] = workgroup.first_event[:-1]
        dispatch["staged"] += 1
        feed.inside += 1

    def _slab(self, feed: Feed, workgroup: Workgroup, shift_bytes: np.ndarray) -> int:
        """The slab with the events of the workgroup, which may lie `shift_bytes` lower there.

        Events that are found in a slab were checked when they came there, and need no check but that of the shift.
        """
        shift_bytes[:] = 0
        movable = not len(workgroup.addresses)  # listed addresses stay where they are listed
        found, program = self._program(feed, workgroup, shift_bytes) if movable else (Match.OTHER, None)
        same = program if found == Match.SAME else None
        known = same and same.extent.may_move(shift_bytes)
        extent = same.extent if same and known else check_events(feed.info, workgroup)
        if same:
            feed.hold(same.slab)
            return same.slab
        shift_bytes[:] = 0
        own = Program(self._copied(feed, workgroup), len(workgroup.events), len(workgroup.warp), extent)
        if program:
            if split(self._words(own), self._words(program)):
                feed.keep(own, program.slab)
        elif movable:
            feed.keep(own, None)
        return own.slab

    def _program(self, feed: Feed, workgroup: Workgroup, shift_bytes: np.ndarray) -> tuple[Match, Program | None]:
        """The same program that a slab holds, or one of which it is a further split."""
        words = words_of(workgroup.events)
        for program in feed.programs:
            if program.events == len(words) and program.warps == len(workgroup.warp):
                found = Match(match(words, self._words(program), shift_bytes))
                if found != Match.OTHER:
                    return found, program
        return Match.OTHER, None

    def _words(self, program: Program) -> np.ndarray:
        return words_of(self.node.events[program.slab, : program.events])

    def _copied(self, feed: Feed, workgroup: Workgroup) -> int:
        """A slab of its own."""
        self._grow(len(workgroup.events), len(workgroup.addresses))
        slab = feed.free.pop()
        feed.hold(slab)
        self.node.events[slab, : len(workgroup.events)] = workgroup.events
        self.node.events[slab]["array"] = 0
        self.node.addresses[slab, : len(workgroup.addresses)] = workgroup.addresses
        return slab


def _widened(old: np.ndarray, width: int) -> np.ndarray:
    new = host_aligned((len(old), width), old.dtype)
    new[:, : old.shape[1]] = old
    return new
