"""The trace window: the events of the workgroups that run now or soon, in slabs of equal size.

Workgroups come from a `KernelSource` one by one and lie in the window until they end, so memory is bounded by what
fits on the machine plus a little read-ahead, whatever the size of the trace.
"""

from collections.abc import Iterator

import numpy as np

from sim.hw.warp import MAX_WARPS
from sim.machine import STAGED_WORKGROUPS, Node
from traces.errors import UserError
from traces.schema import Kind
from traces.source import KernelSource, Workgroup

READ_AHEAD = 64
"""Workgroups staged beyond those that fit on the machine."""


class TraceWindow:
    """Slabs of events for one dispatch queue of a node.

    Attributes:
        node: the node with the current window arrays; they are replaced when a larger workgroup comes.
    """

    def __init__(self, node: Node, queue: int, source: KernelSource, resident: int):
        self.slabs = resident + READ_AHEAD
        self.node = node._replace(
            events=np.zeros((self.slabs, 0), node.events.dtype),
            addresses=np.zeros((self.slabs, 1), np.uint64),
            freed=np.zeros(self.slabs, np.int64),
        )
        node.engine["freed"] = 0  # those of the kernel before are gone
        self.queue = queue
        self.free = list(range(self.slabs - 1, -1, -1))
        self.workgroups: Iterator[Workgroup] = source.workgroups()
        self.name = source.info.name
        self.limit = source.info.warps_per_workgroup

    def _take_freed(self) -> None:
        engine = self.node.engine[0]
        self.free.extend(int(slab) for slab in self.node.freed[: engine["freed"]])
        engine["freed"] = 0

    def _grow(self, events: int, addresses: int) -> None:
        """Widen every slab to hold a workgroup of that size."""
        for name, width in (("events", events), ("addresses", addresses)):
            old = getattr(self.node, name)
            if old.shape[1] < width:
                new = np.zeros((self.slabs, width), old.dtype)
                new[:, : old.shape[1]] = old
                self.node = self.node._replace(**{name: new})

    def fill(self) -> None:
        """Stage workgroups until the window is full or the trace ends."""
        self._take_freed()
        dispatch = self.node.dispatch[self.queue]
        while self.free and dispatch["staged"] - dispatch["taken"] < STAGED_WORKGROUPS:
            workgroup = next(self.workgroups, None)
            if workgroup is None:
                dispatch["ended"] = 1
                return
            self._check(workgroup)
            if len(workgroup.warp):
                self._stage(workgroup)

    def _check(self, workgroup: Workgroup) -> None:
        """The machine relies on it: warps that fit, each program ended by EXIT."""
        last = workgroup.first_event[1:] - 1
        where = f"kernel {self.name}, workgroup {workgroup.index}"
        if (last < workgroup.first_event[:-1]).any() or (workgroup.events["kind"][last] != Kind.EXIT).any():
            raise UserError(f"{where}: every warp must end with an EXIT event")
        if len(workgroup.warp) and int(workgroup.warp.max()) >= min(self.limit, MAX_WARPS):
            raise UserError(
                f"{where}: warp {int(workgroup.warp.max())}, but the kernel has {self.limit} (machine: {MAX_WARPS})"
            )

    def _stage(self, workgroup: Workgroup) -> None:
        warps = len(workgroup.warp)
        self._grow(len(workgroup.events), len(workgroup.addresses))
        slab = self.free.pop()
        self.node.events[slab, : len(workgroup.events)] = workgroup.events
        self.node.addresses[slab, : len(workgroup.addresses)] = workgroup.addresses
        dispatch = self.node.dispatch[self.queue]
        staged = self.node.staged[self.queue][dispatch["staged"] % STAGED_WORKGROUPS]
        staged["tag"], staged["slab"], staged["warps"] = workgroup.index, slab, warps
        staged["warp"][:warps] = workgroup.warp
        staged["first_event"][:warps] = workgroup.first_event[:-1]
        dispatch["staged"] += 1
