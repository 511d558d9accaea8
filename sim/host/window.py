"""The trace window: the events of the workgroups that run now or soon, in slabs of equal size.

Workgroups come from a `KernelSource` one by one and stay in the window until they end. So the memory depends on the
workgroups that fit on the machine plus a small read-ahead, not on the size of the trace. Workgroups that differ only in
their addresses share a slab (`sim.host.program`). Kernels that run at once share the window; each has its own slabs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from sim.host.program import Match, match, split, words_of
from sim.hw.prefetch import host_aligned
from sim.machine.build import STAGED_WORKGROUPS, Node
from sim.machine.memory import available_bytes
from tracer.workgroup_check import Extent, check_events, check_structure
from traces.errors import UserError
from traces.schema import EVENT, Bulk, Kind
from traces.source import KernelInfo, KernelSource, Workgroup
from traces.units import bytes_text

READ_AHEAD = 64
"""Number of workgroups staged beyond those that fit on the machine."""


ADDRESS_BYTES = 8
PROGRAMS = 4
"""Programs of equal length that the next workgroups of a kernel may share: of inner tiles, of two edges and of a
corner. So many of the latest programs stay in the window without a workgroup that runs."""


@dataclass(frozen=True)
class Launch:
    """A kernel and the resources on which it runs.

    Attributes:
        source: its workgroups.
        queue: dispatch queue; kernels that run at once have different queues.
        cus: CUs that it may use, (first, one past the last); None = all.
        places: largest number of workgroups per CU; None = as many as fit.
        comm: its requests use the communication streams.
        part: one of several parts of a kernel. They run on the same CUs without turns (`sim.hw.residency`), and
            `places` counts the workgroups of all parts.
        tags: i8 [workgroups]: output tile of each workgroup; None = the number of the workgroup.
        gates: i8 [workgroups]: gate that each workgroup waits for, -1 = none; None = no gates.
        start_ps: time of the launch.
        keeps: places that it keeps from its launch to its last workgroup, anywhere on its CUs; 0 = none.
    """

    source: KernelSource
    queue: int = 0
    cus: tuple[int, int] | None = None
    places: int | None = None
    comm: bool = False
    part: bool = False
    tags: np.ndarray | None = None
    gates: np.ndarray | None = None
    start_ps: int = 0
    keeps: int = 0


class Program(NamedTuple):
    """Events in a slab that further workgroups may share."""

    slab: int
    events: int
    warps: int
    extent: Extent


class Feed:
    """One kernel's share of the window: its next workgroups and its slabs.

    Attributes:
        read: number of workgroups taken from the trace so far.
        inside: number of them in the window.
        users: for each slab: workgroups that run on it, plus one if its program is held.
        programs: (events, warps) -> programs in the window that the next workgroups may share, latest first.
        lengths: slab -> (events, warps) of its program.
        held: the latest programs; they stay in the window.
    """

    def __init__(self, launch: Launch, first_slab: int, room: int):
        """room: largest number of workgroups in the window."""
        self.launch, self.room, self.info = launch, room, launch.source.info
        slabs = room + PROGRAMS
        self.first_slab, self.end_slab = first_slab, first_slab + slabs
        self.free = list(range(self.end_slab - 1, first_slab - 1, -1))
        self.users = [0] * slabs
        self.inside = 0
        self.programs: dict[tuple[int, int], list[Program]] = {}
        self.lengths: dict[int, tuple[int, int]] = {}
        self.held: list[Program] = []
        self.read = 0
        self.workgroups: Iterator[Workgroup] = launch.source.workgroups()

    def facts(self) -> dict[str, Any]:
        """State that the machine's records lack: the number of workgroups read, and of workgroups on each slab."""
        users = list(self.users)
        for program in self.held:
            users[program.slab - self.first_slab] -= 1
        return {"read": self.read, "users": users}

    def resume(self, facts: dict[str, Any]) -> None:
        """Restore the facts of a feed of the same kernel. The next workgroup is the first one not yet read."""
        self.read, self.users = facts["read"], list(facts["users"])
        self.programs, self.lengths, self.held = {}, {}, []
        self.free = [self.first_slab + k for k, users in enumerate(self.users) if not users]
        self.inside = sum(self.users)
        rest = self.launch.source.workgroups(self.read)
        self.workgroups = chain(list(islice(rest, 1)), rest)  # nobody asks for more if all were read: read the end here

    def hold(self, slab: int) -> None:
        """Add a user of the slab."""
        self.users[slab - self.first_slab] += 1

    def release(self, slab: int) -> None:
        """Remove a user of the slab. Without users the slab is free and its program is gone."""
        self.users[slab - self.first_slab] -= 1
        if not self.users[slab - self.first_slab]:
            self.free.append(slab)
            self._forget(slab)

    def _forget(self, slab: int) -> None:
        """The program of a slab is gone, or replaced by a better one."""
        length = self.lengths.pop(slab, None)
        if length:
            self.programs[length] = [one for one in self.programs[length] if one.slab != slab]
            if not self.programs[length]:
                del self.programs[length]

    def keep(self, program: Program, instead: int | None) -> None:
        """Keep a program for sharing. instead: slab of a program that it replaces."""
        if instead is not None:
            self._forget(instead)
        length = program.events, program.warps
        alike = [program, *self.programs.get(length, [])]
        self.programs[length], self.lengths[program.slab] = alike, length
        for other in alike[PROGRAMS:]:
            self._forget(other.slab)
        gone = [one for one in self.held if one.slab == instead]
        held = [program, *(one for one in self.held if one.slab != instead)]
        self.held = held[:PROGRAMS]
        self.hold(program.slab)
        for other in gone + held[PROGRAMS:]:
            self.release(other.slab)

    def slabs_in_use(self) -> list[int]:
        return [self.first_slab + k for k, users in enumerate(self.users) if users]


class TraceWindow:
    """Slabs of events for the kernels in progress on a node.

    Attributes:
        node: the node with the current window arrays. A larger workgroup replaces the arrays.
    """

    def __init__(self, node: Node, launches: Sequence[tuple[Launch, int]]):
        """launches: kernels that run at once, each with the number of its workgroups that fit on the machine."""
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
        node.engine[0]["freed"] = 0  # slabs of the previous kernel are gone

    def _take_freed(self) -> None:
        engine = self.node.engine[0]
        for slab in self.node.freed[: engine["freed"]].tolist():
            feed = next(feed for feed in self.feeds if slab < feed.end_slab)
            feed.inside -= 1
            feed.release(slab)
        engine["freed"] = 0

    def _grow(self, events: int, addresses: int) -> None:
        """Widen every slab to hold a workgroup of that size.

        Raises:
            UserError: the workgroups in the window do not fit into the available memory.
        """
        if self.node.events.shape[1] < events or self.node.addresses.shape[1] < addresses:
            used = [slab for feed in self.feeds for slab in feed.slabs_in_use()]
            check_window_memory(1 + len(used), events, addresses)
            self.node = self.node._replace(
                events=_widened(self.node.events, events, used),
                addresses=_widened(self.node.addresses, addresses, used),
            )

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
                if feed.read % feed.info.cluster:
                    raise UserError(f"kernel {feed.info.name}: found {feed.read} workgroups, allowed is a multiple of "
                                    f"its clusters of {feed.info.cluster}")  # fmt: skip
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
        """The slab with the events of the workgroup. `shift_bytes`: its addresses minus those in the slab, per array.

        Events in a slab were checked when they were copied there. Only the shift must be checked.
        """
        shift_bytes[:] = 0
        movable = not len(workgroup.addresses)  # events with listed addresses cannot be shifted
        found, program = self._program(feed, workgroup, shift_bytes) if movable else (Match.OTHER, None)
        same = program if found == Match.SAME else None
        known = same and same.extent.may_move(shift_bytes)
        extent = same.extent if same and known else check_events(feed.info, workgroup)
        if same:
            feed.hold(same.slab)
            return same.slab
        check_bulk(self.node, feed.info, workgroup)
        shift_bytes[:] = 0
        own = Program(self._copied(feed, workgroup), len(workgroup.events), len(workgroup.warp), extent)
        if program:
            if split(self._words(own), self._words(program)):
                feed.keep(own, program.slab)
        elif movable:
            feed.keep(own, None)
        return own.slab

    def _program(self, feed: Feed, workgroup: Workgroup, shift_bytes: np.ndarray) -> tuple[Match, Program | None]:
        """A program of a slab that equals the workgroup's, or one whose arrays the workgroup splits further."""
        words = words_of(workgroup.events)
        for program in feed.programs.get((len(words), len(workgroup.warp)), []):
            found = Match(match(words, self._words(program), shift_bytes))
            if found != Match.OTHER:
                return found, program
        return Match.OTHER, None

    def _words(self, program: Program) -> np.ndarray:
        return words_of(self.node.events[program.slab, : program.events])

    def _copied(self, feed: Feed, workgroup: Workgroup) -> int:
        """Copy the workgroup's events into a new slab. Returns its number."""
        self._grow(len(workgroup.events), len(workgroup.addresses))
        slab = feed.free.pop()
        feed.hold(slab)
        self.node.events[slab, : len(workgroup.events)] = workgroup.events
        self.node.events[slab]["array"] = 0
        self.node.addresses[slab, : len(workgroup.addresses)] = workgroup.addresses
        return slab


def check_bulk(node: Node, info: KernelInfo, workgroup: Workgroup) -> None:
    """Refuse bulk copies that the machine cannot make.

    Raises:
        UserError: names the kernel, the workgroup, and why.
    """
    events = workgroup.events[workgroup.events["kind"] == Kind.BULK]
    where = f"kernel {info.name}, workgroup {workgroup.index}: found a bulk copy"
    if len(events) and not len(node.bulk_units):
        raise UserError(f"{where}, but the machine has none (cu.bulk_lines_per_clk = 0); h100_sxm has")
    tiles = node.output.tiles
    to_several = tiles["routed"] * (tiles["stay"] + tiles["stores"]) > 1
    if to_several.any() and np.isin(events["space"], (Bulk.STORE, Bulk.REDUCE)).any():
        raise UserError(f"{where} that stores, in a run whose stores go to several GPUs: allowed are bulk loads")


def check_window_memory(slabs: int, events: int, addresses: int) -> None:
    """Refuse a trace window that does not fit into the available memory.

    Args:
        slabs: workgroups in memory. events, addresses: of the largest.
    """
    needed = slabs * (events * EVENT.itemsize + addresses * ADDRESS_BYTES)
    available = available_bytes()
    if available is not None and needed > available:
        raise UserError(
            f"trace: {slabs} workgroups of {events:,} events and {addresses:,} addresses need about "
            f"{bytes_text(needed)} of memory, {bytes_text(available)} are available; fewer CUs, or shorter workgroups"
        )


def _widened(old: np.ndarray, width: int, rows: Sequence[int]) -> np.ndarray:
    """`old` with rows of at least `width`. Only `rows` are copied: the others take no memory before their first use."""
    if old.shape[1] >= width:
        return old
    new = host_aligned((len(old), width), old.dtype)
    for row in rows:
        new[row, : old.shape[1]] = old[row]
    return new
