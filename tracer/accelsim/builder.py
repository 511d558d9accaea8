"""Build the events of the workgroups of a cluster from their instructions."""

from collections.abc import Callable
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from tracer.accelsim.bulk import clear_told
from tracer.accelsim.dry_run import dry_run
from tracer.accelsim.header import Header
from tracer.accelsim.instruction import LANES, Tables
from tracer.accelsim.issue import BUILDER
from tracer.accelsim.opcodes import Action
from tracer.accelsim.phases import (
    INCOMPLETE,
    STANDS_STILL,
    WHY,
    count_arrivals,
    find_inits,
    find_uses,
    number_phases,
    start_phases,
)
from tracer.accelsim.problems import Problems
from tracer.accelsim.warp import build_workgroup
from traces.schema import EVENT, EXPLICIT, MAX_WARPS, Kind
from traces.source import Workgroup

NO_PHASES = "transaction barriers that are not followed, so warps wait for their own copies only"
NO_MEETING = "the barrier of a cluster, at which not all warps meet or one arrives twice: it only takes its issue slot"
LANES_PER_EVENT = 31
"""Least lanes of a full event of a bulk copy that is not followed."""


class Member(NamedTuple):
    """A workgroup as it was read."""

    index: int  # type: ignore[assignment]  # linear index in the grid
    rank: int  # in its cluster
    where: str
    tables: Tables  # the rows in use

    @property
    def warps(self) -> int:
        return len(self.tables.warps)


class Builder:
    """Builds one cluster after the other. A workgroup without a cluster is a cluster of one."""

    def __init__(self, header: Header, problems: Problems, *, halve_copies: bool) -> None:
        """halve_copies: True if LDGSTS has two lines, of which the second counts."""
        self._cluster, self._problems = prod(header.cluster), problems
        self._threads = self._cluster * header.warps * LANES
        self._records = np.zeros(1, BUILDER)
        self.record = self._records[0]
        """BUILDER: state and counts."""
        self.record["shared_base"] = header.shared_base
        self.record["local_base"] = header.local_base
        self.record["halve_copies"] = halve_copies
        self.record["cluster"] = self._cluster
        self._events = np.empty(0, EVENT)

    def build(self, members: list[Member], opcodes: np.ndarray) -> list[Workgroup]:
        """Workgroups of a cluster, with the barriers of its members as far as they can be followed.

        Args:
            members: in order of their ranks. If some are missing, the others cannot wait for them.
            opcodes: OPCODE per opcode number.
        """
        builder, where = self.record, members[0].where
        actions = opcodes["action"]
        transacts = bool((actions >= Action.PHASE_INIT).any())
        whole = len(members) == self._cluster
        meets = self._cluster > 1 and whole and bool((actions == Action.CLUSTER_ARRIVE).any())
        more = 0
        if transacts:
            more = self._find_phases(members, opcodes) if whole else INCOMPLETE
            if more < 0:
                self._warn_of_phases(where, more)
        workgroups = None
        for followed, meeting in dict.fromkeys(product((more > 0, False), (meets, False))):
            builder["followed"], builder["meets"] = followed, meeting
            workgroups = self._try(members, opcodes, more if followed else 0)
            if workgroups is not None:
                break
        assert workgroups is not None  # without barriers it can always be built
        if more > 0 and not followed:
            self._warn_of_phases(where, STANDS_STILL)
        if meets and not meeting:
            self._problems.warn("barrier of a cluster", where, NO_MEETING)
        return workgroups

    def _warn_of_phases(self, where: str, reason: int) -> None:
        self._problems.warn(f"transaction barriers {reason}", where, f"{NO_PHASES}: {WHY[reason]}")

    def _find_phases(self, members: list[Member], opcodes: np.ndarray) -> int:
        """Find the transaction barriers of a cluster. Returns the number of events of all arrivals, or a key of WHY.

        0: it has none.
        """
        start_phases(self.record)
        why = self._ask(find_inits, members, opcodes)
        if why == 0:
            why = self._ask(find_uses, members, opcodes)
        if why == 0:
            why = int(number_phases(self.record, self._threads))
        return why or self._ask(count_arrivals, members, opcodes)

    def _ask(self, find: Callable[..., int], members: list[Member], opcodes: np.ndarray) -> int:
        """Sum of what `find` gives for all members; its first key of WHY."""
        total = 0
        for member in members:
            self.record["rank"] = member.rank
            tables = member.tables
            found = int(find(self.record, tables.instructions, len(tables.instructions), opcodes, tables.addresses))
            if found < 0:
                return found
            total += found
        return total

    def _try(self, members: list[Member], opcodes: np.ndarray, more: int) -> list[Workgroup] | None:
        """Build a cluster. None: its barriers do not fit together. more: events of arrivals."""
        builder = self.record
        counts = builder["unusual"].copy()
        self._make_room(members, more)
        builder["section"]["events"] = builder["failed"] = 0
        first_event = np.zeros((len(members), MAX_WARPS + 1), np.int64)
        warps = np.array([member.warps for member in members])
        for member, edges in zip(members, first_event, strict=True):
            builder["rank"] = member.rank
            build_workgroup(
                *(builder, member.tables, member.warps, len(member.tables.instructions), opcodes),
                *(self._events, edges),
            )
        follows = builder["followed"] or builder["meets"]
        if builder["failed"] or (follows and not dry_run(builder["dry"], first_event, warps, self._events)):
            builder["unusual"] = counts  # the cluster is built again
            return None
        if builder["followed"]:
            clear_told(self._events, builder["section"]["events"])
        return [self._cut(member, edges) for member, edges in zip(members, first_event, strict=True)]

    def _make_room(self, members: list[Member], more: int) -> None:
        room = more
        for member in members:
            addresses = len(member.tables.addresses)
            room += len(member.tables.instructions) + member.warps + addresses // LANES_PER_EVENT + 1
            room += addresses if more else 0
        if room > len(self._events):
            self._events = np.empty(2 * room, EVENT)

    def _cut(self, member: Member, first_event: np.ndarray) -> Workgroup:
        """The workgroup of a member. first_event: of its warps, in the events of the cluster."""
        edges = first_event[: member.warps + 1]
        events = self._events[edges[0] : edges[-1]].copy()
        lists = ((events["kind"] <= Kind.ASYNC_COPY) & (events["inner"] == EXPLICIT)).any()
        return Workgroup(
            index=member.index,
            warp=member.tables.warps["index"].astype(np.uint16),
            first_event=edges - edges[0],
            events=events,
            addresses=member.tables.addresses[: None if lists else 0].copy(),
        )
