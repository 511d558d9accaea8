"""Put the workgroups of a file together to clusters, and build their events when a cluster is complete."""

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from tracer.accelsim.builder import Builder, Member
from tracer.accelsim.clusters import Clusters
from tracer.accelsim.header import Header
from tracer.accelsim.instruction import INSTRUCTION, WARP, Tables
from tracer.accelsim.problems import Problems
from tracer.events import NO_ADDRESSES
from tracer.workgroup_check import EventError, check_workgroup
from traces.errors import UserError
from traces.schema import EVENT, EXPLICIT, MAX_CLUSTER, NO_SLOT, PLAIN_STRIDE, Kind
from traces.source import Workgroup


class _Held(NamedTuple):
    """A workgroup that waits for the others of its cluster."""

    index: int  # type: ignore[assignment]
    rank: int
    where: str
    rows: list[bytes]  # of the tables
    packed: bool  # they are compressed: if the others are a row of the grid later, many workgroups wait

    @classmethod
    def of(cls, member: Member, *, packed: bool) -> "_Held":
        rows = [zlib.compress(table.tobytes(), 1) if packed else table.tobytes() for table in member.tables]
        return cls(member.index, member.rank, member.where, rows, packed)

    def member(self) -> Member:
        texts = [zlib.decompress(row) for row in self.rows] if self.packed else self.rows
        types = (INSTRUCTION, WARP, np.dtype(np.uint64))
        rows = [np.frombuffer(bytearray(text), kind) for text, kind in zip(texts, types, strict=True)]
        return Member(self.index, self.rank, self.where, Tables(*rows))


def idle_workgroup(index: int) -> Workgroup:
    """A workgroup that does nothing, in the place of one that is missing in a cluster."""
    event = np.zeros(1, EVENT)
    event["kind"], event["slot"], event["inner"] = Kind.EXIT, NO_SLOT, PLAIN_STRIDE
    return Workgroup(index, np.zeros(1, np.uint16), np.array([0, 1]), event, NO_ADDRESSES)


def line_of(member: Member, workgroup: Workgroup, error: EventError) -> int:
    """Line of the instruction of an impossible event; 0 if it is not found.

    It has the warp and program counter of the event. In a loop the one with its address counts, else the first.
    """
    rows, address, same = member.tables.instructions, error.address, np.ones(0, bool)
    if error.event >= 0:
        event = workgroup.events[error.event]
        warps = np.searchsorted(member.tables.warps["first"], np.arange(len(rows)), side="right") - 1
        warp = np.searchsorted(workgroup.first_event, error.event, side="right") - 1
        same = (warps == warp) & (rows["pc"] == event["pc"])
        if event["inner"] == EXPLICIT:
            address = int(event["base"])
        elif (exact := same & (rows["base"] == event["base"]) & (rows["stride"] == event["stride"])).any():
            same = exact
    if address >= 0:
        first = rows["base"].astype(np.int64)
        same = (rows["inner"] == EXPLICIT) & (first <= address) & (address < first + rows["lanes"])
    return int(rows["line"][same][0]) if same.any() else 0


class Assembly:
    """Takes the workgroups of a kernel in the order of the file. A workgroup without a cluster is a cluster of one."""

    def __init__(self, header: Header, problems: Problems, where: Callable[[int], str], *, halve_copies: bool) -> None:
        """where: file and line as text. halve_copies: as `Builder`."""
        self._where = where
        self._info, self._problems = header.info(), problems
        self.builder = Builder(header, problems, halve_copies=halve_copies)
        self._clusters = Clusters(header.grid, header.cluster)
        self._waiting: dict[int, dict[int, _Held]] = {}
        self.checks = False
        """True = a workgroup that cannot be simulated is damage, and is left out."""

    def rank(self, index: int) -> int:
        """Rank in its cluster of the workgroup with this linear index."""
        return self._clusters.place(index).rank

    def take(self, index: int, where: str, tables: Tables, opcodes: np.ndarray) -> Iterator[Workgroup]:
        """Take a workgroup. Yields its cluster, if it is the last one of it.

        Args:
            index: linear index in the grid. where: file and line. tables: its rows, which may change later.
            opcodes: OPCODE per opcode number.
        """
        cluster, rank = self._clusters.place(index)
        member = Member(index, rank, where, tables)
        if self._clusters.size == 1:
            yield from self._built([member], opcodes)
            return
        held = self._waiting.setdefault(cluster, {})
        held[rank] = _Held.of(member, packed=len(self._waiting) > MAX_CLUSTER)
        if len(held) == self._clusters.size:
            yield from self._finish(cluster, opcodes)

    def rest(self, opcodes: np.ndarray) -> Iterator[Workgroup]:
        """After the last workgroup: the clusters of which some are missing. Those do nothing."""
        for cluster in sorted(self._waiting):
            yield from self._finish(cluster, opcodes)

    def _finish(self, cluster: int, opcodes: np.ndarray) -> Iterator[Workgroup]:
        """Yield all workgroups of a cluster."""
        held = self._waiting.pop(cluster)
        built = {w.index: w for w in self._built([held[rank].member() for rank in sorted(held)], opcodes)}
        for rank in range(self._clusters.size):
            index = self._clusters.index(cluster, rank)
            yield built.get(index) or idle_workgroup(index)

    def _built(self, members: list[Member], opcodes: np.ndarray) -> list[Workgroup]:
        """Workgroups of a cluster. If one cannot be simulated, that is damage, and the others do not wait for it."""
        workgroups = self.builder.build(members, opcodes)
        if not self.checks:
            return workgroups
        pairs = zip(members, workgroups, strict=True)
        possible = [member for member, workgroup in pairs if self._is_possible(member, workgroup)]
        if len(possible) == len(members):
            return workgroups
        return self.builder.build(possible, opcodes) if possible else []

    def _is_possible(self, member: Member, workgroup: Workgroup) -> bool:
        """False for a workgroup that cannot be simulated, which is damage."""
        try:
            check_workgroup(self._info, workgroup)
        except EventError as error:
            line = line_of(member, workgroup, error)
            self._problems.damage("IMPOSSIBLE", self._where(line) if line else member.where, str(error))
            return False
        except UserError as error:
            self._problems.damage("IMPOSSIBLE", member.where, str(error))
            return False
        return True
