"""One simulated GPU as the host drives it: launch a kernel, feed its workgroups, run the clock, read the counters."""

from collections.abc import Callable

import numpy as np

from sim.engine import Status, prefill_l2, run_engine, sample, settle
from sim.hw.request import NEVER
from sim.hw.tags import empty_sets
from sim.machine import SERIES, Node, build
from sim.occupancy import occupancy
from sim.spec import Machine
from sim.window import TraceWindow
from traces.errors import UserError
from traces.source import KernelInfo, KernelSource

FOREVER_PS = NEVER - 1
UNIT_ARRAYS = {"cu": "cus", "lsu": "lsus", "l1": "l1s", "noc": "noc", "l2": "banks", "hbm": "channels"}
"""Unit of the counter registry -> field of Node."""


class DeadlockError(UserError):
    """Workgroups are left and nothing can move: a barrier that not all warps reach, or fifos that are too small."""


class Gpu:
    """A GPU at rest or with one kernel on it.

    Attributes:
        node: its unit records.
        line_trace: called with one line of text per time window, None = off.
    """

    def __init__(self, machine: Machine, interval_ps: int = 0, line_trace: Callable[[Node], None] | None = None):
        self.machine = machine
        self.node, self.fifo_names = build(machine)
        self.line_trace = line_trace
        self._series: list[np.ndarray] = []
        engine = self.node.engine[0]
        engine["interval_ps"] = engine["next_sample_ps"] = interval_ps
        self.node.dispatch["wake_ps"] = NEVER

    @property
    def now_ps(self) -> int:
        return int(self.node.engine[0]["now_ps"])

    def run_kernel(self, source: KernelSource, start_ps: int, progress: Callable[[str, int, int], None] | None) -> int:
        """Run one kernel from its launch at start_ps until everything has come to rest.

        Returns:
            When it ended as a program sees it: its last warp had left and its last store was in L2 (in DRAM, where
            stores are uncached); a flush of L2 comes later (D13).
        """
        window = TraceWindow(self.node, 0, source, self._launch(source.info, start_ps))
        passed_through = self.node.banks["uncached_write_sectors"].sum()
        window.fill()
        self.node = window.node
        while True:
            status = self._advance()
            if status == Status.SERIES_FULL:
                self._take_series()
            elif status == Status.NEEDS_WORKGROUPS:
                window.fill()
                self.node = window.node
                if progress:
                    progress(source.info.name, int(self.node.dispatch[0]["finished"]), source.info.workgroups)
            elif status != Status.UNTIL:
                break
        self._check_done(status, source.info.name)
        ends = [self.node.cus["last_exit_ps"].max(), self.node.banks["last_request_ps"].max(), start_ps]
        if self.node.banks["uncached_write_sectors"].sum() > passed_through:
            ends.append(self.node.channels["bus_end_ps"].max())
        return int(max(ends))

    def _advance(self) -> Status:
        if self.line_trace is None:
            return Status(run_engine(self.node, FOREVER_PS))
        status = Status(run_engine(self.node, self.now_ps))
        self.line_trace(self.node)
        return status

    def _launch(self, info: KernelInfo, start_ps: int) -> int:
        """Set the dispatcher and L1 up for a kernel. Returns the workgroups that fit on the GPU."""
        cu, spec = self.machine.cu, self.machine.dispatch
        if info.lanes_per_warp != cu.lanes_per_warp:
            raise UserError(
                f"kernel {info.name}: warps of {info.lanes_per_warp} lanes, but this machine's have {cu.lanes_per_warp}"
            )
        fit = occupancy(cu, int(np.prod(info.block)), info.registers, info.shared_bytes)
        dispatch = self.node.dispatch[0]
        for name in ("staged", "taken", "finished", "ended", "needs", "first_cu", "comm"):
            dispatch[name] = 0
        dispatch["last_cu"], dispatch["places"], dispatch["warps"] = cu.count, fit.workgroups, info.warps_per_workgroup
        dispatch["order"], dispatch["interval_ps"] = int(spec.order), spec.workgroup_ps
        dispatch["jitter_ps"], dispatch["seed"] = spec.jitter_ps, spec.seed
        dispatch["wake_ps"] = dispatch["next_ps"] = start_ps
        self._reset_l1(fit.workgroups * fit.shared_per_workgroup)
        return fit.workgroups * cu.count

    def _reset_l1(self, shared_bytes: int) -> None:
        """A kernel starts with an empty L1 (D14), of what its resident workgroups' shared memory leaves."""
        l1 = self.machine.l1
        ways = l1.ways
        if l1.unified_with_shared:
            ways = max(0, (l1.bytes - shared_bytes) * l1.ways // l1.bytes)
        self.node.l1s["ways"] = ways
        empty_sets(self.node.l1_sets)

    def flush_l2(self) -> int:
        """Write dirty lines back and empty L2. Returns when the last of them is in DRAM."""
        self.node.banks["flush_set"] = 0
        self.node.bank_wake_ps[:] = self.now_ps
        while (status := self._advance()) in (Status.SERIES_FULL, Status.UNTIL):
            if status == Status.SERIES_FULL:
                self._take_series()
        self._check_done(status, "flush of L2")
        empty_sets(self.node.l2_sets)
        return self.now_ps

    def prefill(self, address: int, size_bytes: int) -> None:
        """Put a range of addresses into L2, clean, without traffic."""
        prefill_l2(self.node, address & ~127, address + size_bytes)

    def counters(self) -> dict[str, np.ndarray]:
        """Unit of the counter registry -> its records, counted up to now."""
        settle(self.node)
        return {unit: getattr(self.node, field) for unit, field in UNIT_ARRAYS.items()}

    def series(self) -> dict[str, np.ndarray]:
        """Time series so far, the interval in progress as its last row."""
        if self.node.engine[0]["interval_ps"]:
            sample(self.node)
        self._take_series()
        rows = np.concatenate(self._series)
        return {name: rows[:, k].copy() for k, name in enumerate(SERIES)} if len(rows) else {}

    def _take_series(self) -> None:
        engine = self.node.engine[0]
        self._series.append(self.node.series[: engine["samples"]].copy())
        engine["samples"] = 0

    def _check_done(self, status: Status, what: str) -> None:
        dispatch = self.node.dispatch[0]
        if status == Status.IDLE and dispatch["finished"] == dispatch["staged"]:
            return
        fifos = self.node.fifos
        fill = fifos["tail"] - fifos["head"]
        held = [f"{self.fifo_names[k]} {fill[k]} of {fifos[k]['limit']}" for k in np.flatnonzero(fill)[:8]]
        states = np.bincount(self.node.warps["warp"]["state"].ravel(), minlength=5)
        left = dispatch["staged"] - dispatch["finished"]
        raise DeadlockError(
            f"{what}: nothing can move at {self.now_ps} ps with {left} workgroups left; warps waiting for data "
            f"{states[2]}, at barriers {states[3]}, for the load/store unit {states[4]}; fifos not empty: "
            f"{', '.join(held) or 'none'}"
        )
