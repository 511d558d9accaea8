"""Host control of one simulated GPU: launch a kernel, feed its workgroups, run the clock, read the counters."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations

import numpy as np

from sim.counters import take
from sim.host.crew import Crew
from sim.host.prefill import prefill_ranges
from sim.host.recorded import Recorded
from sim.host.state import State, named_arrays, with_arrays
from sim.host.team import threads_of_each
from sim.host.watchdog import WINDOWS_PER_LOOK, WINDOWS_WITHOUT_WORK, Watchdog
from sim.host.window import Launch, TraceWindow
from sim.hw.peers_record import MESSAGE, groups_of, mail_places
from sim.hw.request import NEVER
from sim.hw.spans import SPAN
from sim.hw.tags import empty_sets
from sim.machine.build import Node, build, units_of
from sim.machine.deadlock import DeadlockError, deadlock
from sim.machine.engine import Status, prefill_l2, rest_ps, run_engine, settle
from sim.machine.engine_record import SERIES
from sim.machine.memory import check_mail_memory, check_memory
from sim.machine.rest import check_policy, check_rest
from sim.machine.series import close_interval
from sim.machine.stalls import make_stalls
from sim.occupancy import Occupancy, held, occupancy_of
from sim.presets.check import check_machine
from sim.spec import L2Sharing, Machine
from tracer.workgroup_check import check_kernel
from traces.errors import UserError
from traces.source import KernelInfo, KernelSource, Prefill, check_copy

FOREVER_PS = NEVER - 1
MAX_SPANS = 1 << 16
"""Largest number of spans of the timeline; a timeline is recorded with a time series."""
Progress = Callable[[str, int, int], None]
"""Called with (kernel, workgroups done, workgroups)."""
LAST_PS = 1 << 52
"""End of simulated time, 75 minutes. Beyond it a time in femtoseconds (sim.hw.link) would overflow."""
SERIES_ROWS = 4096
"""Rows of a time series that the machine fills before the host takes them."""
SERIES_ROWS_MAX = 1_000_000
"""Rows of a time series, about 1 GB."""
CUS_PER_THREAD = 4
"""Fewer are not worth the meetings of a further thread (assumed)."""
WINDOWS_PER_CALL = 64
"""Time windows from one call of `between_windows` to the next: a fraction of a second."""


class Gpu:
    """A GPU, idle or with kernels on it.

    Attributes:
        node: its unit records.
        line_trace: called with one line of text per time window, None = off.
    """

    def __init__(
        self,
        machine: Machine,
        interval_ps: int = 0,
        line_trace: Callable[[Node], None] | None = None,
        ports: int = 0,
        wires: np.ndarray | None = None,
        threads: int | None = None,
        loads: bool = False,
    ):
        """threads: number that run it; None = as `sim.host.team.threads_of_each`. loads: CUs load from other GPUs."""
        check_machine(machine)
        check_memory(machine, ports, loads=loads)
        self.machine = machine
        self.threads = max(1, min(threads or threads_of_each(), machine.cu.count // CUS_PER_THREAD))
        self._crew = Crew(self.threads)
        self.node, self.fifo_names = build(machine, ports, wires, loads)
        self.line_trace = line_trace
        self._series: list[np.ndarray] = []
        self._run_windows = 0
        self._uncached_sectors = 0
        engine = self.node.engine[0]
        engine["interval_ps"] = engine["next_sample_ps"] = interval_ps
        self.node.channels["keeps_bursts"] = interval_ps > 0
        if interval_ps:
            self.node = self.node._replace(
                series=np.zeros((SERIES_ROWS, self.node.series.shape[1]), np.int64),
                spans=np.zeros(MAX_SPANS, SPAN),
                stalls=make_stalls(),
            )
        self.node.dispatch["wake_ps"] = NEVER
        self._crew.compile_ahead(self.node)

    @property
    def now_ps(self) -> int:
        """End of the last time window."""
        return int(self.node.engine[0]["now_ps"])

    @property
    def rest_ps(self) -> int:
        """Of an idle GPU: a time after all that its units have done. It does not depend on the time windows."""
        return int(rest_ps(self.node))

    def run_kernel(
        self,
        source: KernelSource,
        start_ps: int,
        progress: Progress | None,
        between_windows: Callable[[], None] | None = None,
        state: State | None = None,
    ) -> int:
        """`run_kernels` of one kernel, launched at start_ps on all CUs."""
        return self.run_kernels([Launch(source, start_ps=start_ps)], progress, between_windows, state)

    def run_kernels(
        self,
        launches: Sequence[Launch],
        progress: Progress | None,
        between_windows: Callable[[], None] | None = None,
        state: State | None = None,
    ) -> int:
        """Run kernels at once, from their launches until the GPU is idle.

        Args:
            launches: kernels with different queues; on shared CUs they are dispatched in the order of their queues.
            between_windows: called after every `WINDOWS_PER_CALL` time windows; it may read `state()`.
            state: state of a GPU of the same machine with these kernels on it; the run continues from it.

        Returns:
            When the kernels ended for a program: their last warp has exited and their last store is in L2 (in DRAM if
            stores are uncached or partitions are private). Another flush of L2 comes later (D13, D42).
        """
        if state is None:
            self._uncached_sectors = int(self.node.banks["uncached_write_sectors"].sum())
            self.launch(launches)
        else:
            self.resume(launches, state)
        self._run_windows = WINDOWS_PER_CALL if between_windows else 0
        while (status := self.advance(progress)) in (Status.UNTIL, Status.HORIZON):
            if between_windows:
                between_windows()
        self._run_windows = 0
        self._check_done(status, self._names(launches))
        ends = [self.node.cus["last_exit_ps"].max(), self.node.banks["last_request_ps"].max(), launches[0].start_ps]
        ends.append(self.node.noc["last_ack_ps"].max())
        if self.node.banks["uncached_write_sectors"].sum() > self._uncached_sectors:
            ends.append(self.node.channels["bus_end_ps"].max())
        if self.machine.l2.sharing == L2Sharing.PRIVATE:  # only then other partitions and kernels see the stores
            self.flush_l2(after=False)
            ends += [self.node.channels["bus_end_ps"].max(), self.node.mscs["next_ps"].max(initial=0)]
        return int(max(ends))

    def state(self) -> State:
        """The complete state of a GPU in the middle of its kernels. It is valid until the GPU runs again."""
        series = self._series_rows()
        feeds = [feed.facts() for feed in self._window.feeds]
        facts = {"feeds": feeds, "uncached_sectors": self._uncached_sectors}
        return State(facts, {**named_arrays(self.node, "node."), "series": series})

    def resume(self, launches: Sequence[Launch], state: State) -> None:
        """Launch the kernels, then restore the state that the machine had with them."""
        self._set_up(launches)
        for feed, facts in zip(self._window.feeds, state.facts["feeds"], strict=True):
            feed.resume(facts)
        self._uncached_sectors = state.facts["uncached_sectors"]
        self._series = [state.arrays["series"]]
        self.node = self._window.node = with_arrays(self._window.node, state.arrays, "node.")

    def launch(self, launches: Sequence[Launch]) -> None:
        """Set up dispatchers, trace window and L1 for kernels that run at once, and stage their first workgroups."""
        self._set_up(launches)
        self._refill()

    def _set_up(self, launches: Sequence[Launch]) -> None:
        self.node.engine["kernels"] += self.node.engine["present"]
        self.node.engine["present"] = len(launches)
        shared = []
        fits = []
        for launch in launches:
            fit = self._occupancy(launch.source.info)
            first, last = launch.cus or (0, self.machine.cu.count)
            places = min(fit.workgroups, launch.places or fit.workgroups)
            fits.append((launch, launch.keeps or places * (last - first)))
            self._check_cluster(launch.source.info, places, first, last)
            self._set_dispatch(launch, fit, places, first, last)
            shared.append(places * fit.shared_per_workgroup)
        shares = any(self._overlap(*pair) for pair in combinations(launches, 2))
        self.node.dispatch["shares"][[launch.queue for launch in launches]] = shares
        self._set_clusters(launches, shares)
        self._reset_l1(min(sum(shared), self.machine.cu.shared_bytes) if shares else max(shared, default=0))
        self._window = TraceWindow(self.node, fits)

    def _set_clusters(self, launches: Sequence[Launch], shares: bool) -> None:
        """Make room for the mail of CUs if a kernel has clusters of workgroups."""
        clustered = any(launch.source.info.cluster > 1 for launch in launches)
        if clustered and shares:
            raise UserError(f"{self._names(launches)}: found clusters of workgroups, which need CUs of their own")
        if clustered:
            check_mail_memory(self.machine)
        places = (self.machine.cu.count, mail_places(self.machine)) if clustered else (0, 0)
        self.node = self.node._replace(mail=np.zeros(places, MESSAGE))
        self.node.engine["clustered"] = self.node.cus["clustered"] = clustered

    @staticmethod
    def _names(launches: Sequence[Launch]) -> str:
        return " beside ".join(launch.source.info.name for launch in launches)

    def _overlap(self, one: Launch, other: Launch) -> bool:
        """Do two kernels share CUs? Parts of one kernel do not count."""
        first, second = (launch.cus or (0, self.machine.cu.count) for launch in (one, other))
        return max(first[0], second[0]) < min(first[1], second[1]) and not (one.part and other.part)

    def advance(self, progress: Progress | None = None) -> Status:
        """Run the clock until all is idle, to the horizon or the next call, or (with a line trace) for one window."""
        until_ps, watchdog = self._until_ps(), Watchdog()
        while True:
            look_ps = min(until_ps, self.now_ps + WINDOWS_PER_LOOK * int(self.node.engine[0]["window_ps"]))
            status = self._run_until(look_ps)
            if self.line_trace:
                self.line_trace(self.node)
            if self.now_ps > LAST_PS:
                raise UserError(f"{self._kernel}: simulated time {self.now_ps:,} ps, allowed are {LAST_PS:,} ps")
            if status == Status.SERIES_FULL:
                self._take_series()
            elif status == Status.NEEDS_WORKGROUPS:
                self._refill()
                if progress:
                    launch = self._window.feeds[0].launch
                    info, done = launch.source.info, int(self.node.dispatch[launch.queue]["finished"])
                    progress(info.name, done, info.workgroups)
            elif status == Status.UNTIL and look_ps < until_ps:
                if watchdog.starved([self.node]):
                    raise self.starvation(self._kernel)
            else:
                return status

    @property
    def _kernel(self) -> str:
        """Name of the first kernel in progress."""
        return self._window.feeds[0].launch.source.info.name

    def starvation(self, what: str) -> DeadlockError:
        """The error of a GPU that the watchdog found. what: runs on it."""
        return deadlock(self.node, self.fifo_names, what, f"{WINDOWS_WITHOUT_WORK:,} time windows without work")

    def _run_until(self, until_ps: int) -> Status:
        return Status(self._crew.run(partial(run_engine, self.node), until_ps))

    def _until_ps(self) -> int:
        """Time of the next call of `between_windows`: a multiple of their distance; -1: after every window."""
        if self.line_trace:
            return -1
        if not self._run_windows:
            return FOREVER_PS
        engine = self.node.engine[0]
        step_ps = self._run_windows * int(engine["lookahead_ps"])
        return (int(engine["now_ps"]) // step_ps + 1) * step_ps

    def _refill(self) -> None:
        self._window.fill()
        self.node = self._window.node

    def _occupancy(self, info: KernelInfo) -> Occupancy:
        check_kernel(info)
        cu = self.machine.cu
        if info.lanes_per_warp != cu.lanes_per_warp:
            raise UserError(
                f"kernel {info.name}: warps of {info.lanes_per_warp} lanes, but this machine's have {cu.lanes_per_warp}"
            )
        return occupancy_of(cu, info)

    def _check_cluster(self, info: KernelInfo, places: int, first: int, last: int) -> None:
        """Refuse clusters of workgroups that never fit into a group of CUs."""
        if info.cluster == 1:
            return
        cu = self.machine.cu
        if not cu.groups:
            raise UserError(
                f"kernel {info.name}: clusters of {info.cluster} workgroups, but the machine has none (cu.groups = 0); "
                "h100_sxm has"
            )
        room = max(max(0, min(end, last) - max(begin, first)) * places for begin, end in groups_of(cu))
        if info.cluster > room:
            raise UserError(
                f"kernel {info.name}: clusters of {info.cluster} workgroups, but a group of CUs (cu.groups = "
                f"{cu.groups}) has room for {room}"
            )

    def _set_dispatch(self, launch: Launch, fit: Occupancy, places: int, first: int, last: int) -> None:
        spec, dispatch = self.machine.dispatch, self.node.dispatch[launch.queue]
        counts = ("staged", "taken", "finished", "ended", "needs", "gated")
        for name in (*counts, "last_exit_ps", "placed", "kept", "kept_ps", "turn"):
            dispatch[name] = 0
        dispatch["takes"], dispatch["holds"] = fit.takes, held(self.machine.cu)
        dispatch["first_cu"], dispatch["last_cu"], dispatch["places"] = first, last, places
        dispatch["warps"], dispatch["comm"] = launch.source.info.warps_per_workgroup, launch.comm
        dispatch["cluster"] = launch.source.info.cluster
        dispatch["kernels"], dispatch["keeps"] = int(spec.kernels), launch.keeps
        dispatch["order"], dispatch["interval_ps"] = int(spec.order), spec.workgroup_ps
        partitions = self.machine.l2.partitions  # one dispatcher for all of them (D44)
        dispatch["partitions"] = partitions if last - first >= partitions else 1
        dispatch["jitter_ps"], dispatch["seed"] = spec.jitter_ps, spec.seed
        dispatch["wake_ps"] = dispatch["next_ps"] = launch.start_ps

    def _reset_l1(self, shared_bytes: int) -> None:
        """Empty L1 for a new kernel (D14). Its size is what the shared memory of the resident workgroups leaves."""
        l1 = self.machine.l1
        ways = l1.ways
        if l1.unified_with_shared:
            ways = max(0, (l1.bytes - shared_bytes) * l1.ways // l1.bytes)
        self.node.l1s["ways"] = ways
        empty_sets(self.node.l1_sets)

    def flush_l2(self, after: bool = True) -> int:
        """Write dirty lines back and empty L2. Returns when the last line is in DRAM. after: no part of a kernel."""
        self.node.banks["flush_set"] = 0
        self.node.bank_wake_ps[:] = self.node.banks["next_ps"] = self.rest_ps
        while (status := self.advance()) == Status.UNTIL:
            pass
        self._check_done(status, "flush of L2")
        empty_sets(self.node.l2_sets)
        if not after:
            self.node.banks["writeback_sectors"] += self.node.banks["flush_sectors"]
            self.node.banks["flush_sectors"] = 0
        return self.rest_ps

    def prefill(self, address: int, size_bytes: int) -> None:
        """Put a range of addresses into L2 as clean lines, without traffic. Private partitions get no lines.

        The host's work is a few times the size of L2, also for a much larger range.

        Raises:
            UserError: the range begins below 0 or ends beyond 2^63.
        """
        check_copy(Prefill(address, size_bytes), "copy from the host")
        private = self.machine.l2.sharing == L2Sharing.PRIVATE
        for first_line, end in () if private else prefill_ranges(self.machine, address, size_bytes):
            prefill_l2(self.node, first_line, end)

    def counters(self) -> dict[str, np.ndarray]:
        """Unit of the counter registry -> its records, counted up to the current time."""
        settle(self.node, self.now_ps)
        return units_of(self.node)

    def counted(self) -> dict[str, np.ndarray]:
        """Unit -> a copy of its counters (sim.counters.take). It adds refreshes of idle time: use it at a run's end."""
        return {unit: take(unit, records) for unit, records in self.counters().items()}

    def recorded(self) -> Recorded:
        """What a run that has ended has recorded. The last interval has the end of the last data on the DRAM buses."""
        engine, end_ps = self.node.engine[0], self.node.channels["bus_end_ps"].max()
        if engine["interval_ps"]:
            close_interval(self.node)
            while engine["next_sample_ps"] - engine["interval_ps"] < end_ps:
                self._take_series()
                close_interval(self.node)
        self._take_series()
        rows, channels = self._series_rows(), len(self.node.channels)
        series = {name: rows[:, channels + k].copy() for k, name in enumerate(SERIES)} if len(rows) else {}
        stalls = self.node.stalls[self.node.stalls["samples"] > 0]
        order = np.lexsort([stalls[name] for name in ("kind", "pc", "kernel")])
        return Recorded(series, rows[:, :channels].copy(), self.spans(), stalls[order])

    def spans(self) -> np.ndarray:
        """SPAN records so far, at most MAX_SPANS, in the order of their ends."""
        spans = self.node.spans[: min(int(self.node.engine[0]["spans"]), len(self.node.spans))]
        return spans[np.lexsort([spans[name] for name in ("tag", "queue", "unit", "kind", "end_ps")])]

    def _series_rows(self) -> np.ndarray:
        """The rows of the series that the host has taken, i8 [rows, channels + len(SERIES)]."""
        return np.concatenate([self.node.series[:0], *self._series])

    def _take_series(self) -> None:
        engine = self.node.engine[0]
        self._series.append(self.node.series[: engine["samples"]].copy())
        if sum(map(len, self._series)) > SERIES_ROWS_MAX:
            interval_ps = int(engine["interval_ps"])
            raise UserError(
                f"time series: more than {SERIES_ROWS_MAX:,} rows up to {self.now_ps} ps with an interval of "
                f"{interval_ps} ps: allowed is a longer one"
            )
        engine["samples"] = 0

    @property
    def done(self) -> bool:
        """Have all launched workgroups ended?"""
        launched = [feed.launch.queue for feed in self._window.feeds]
        return all(self.node.dispatch[q]["finished"] == self.node.dispatch[q]["staged"] for q in launched)

    def _check_done(self, status: Status, what: str) -> None:
        check_policy(self.node)
        if status == Status.IDLE and self.done:
            self.come_to_rest(what)
            return
        raise deadlock(self.node, self.fifo_names, what)

    def come_to_rest(self, what: str) -> None:
        """Check that `what` has left nothing, and count refreshes of idle time up to a time that no window changes."""
        check_rest(self.node, self.fifo_names, what)
        settle(self.node, self.rest_ps)
