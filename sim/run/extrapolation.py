"""Extrapolation of a GEMM: simulate until its waves are steady, extrapolate the middle, simulate the end (D30).

A *wave* is the number of workgroups that the machine holds at once. Each time the number of waves has grown by
`CHECK_GROWTH`, `sim.run.steady_waves` predicts time and DRAM traffic of the remaining waves. If the uncertainty is low
enough (`Promise`), the kernel is cut. The cut kernel has the same incomplete last wave as the whole one and runs to its
end. The omitted waves are then added at the steady rate: time per wave, each counter per workgroup. If the uncertainty
never gets low enough, the whole kernel is simulated and the result is exact.
"""

from dataclasses import dataclass
from math import hypot
from typing import Any, NamedTuple

import numpy as np

from sim.counters import is_maximum, take, totals
from sim.host.gpu import Gpu, Progress
from sim.hw.request import SECTOR_BYTES
from sim.hw.spans import SPAN
from sim.machine.build import units_of
from sim.occupancy import occupancy
from sim.presets import Preset
from sim.run.cut_gemm import CutKernel, plain_gemm
from sim.run.result import EXTRAPOLATED, KernelResult, RunResult
from sim.run.steady_waves import END_WAVES, QUARTER_WAVES, quarter_waves, rest, wave_times
from sim.spec import Machine
from traces.source import TraceSource

FROM, OF = f"{EXTRAPOLATED}from_workgroups", f"{EXTRAPOLATED}to_workgroups"
"""Figures that only an extrapolated run has: workgroups simulated, workgroups of the GEMM."""
TIME_BOUND, TRAFFIC_BOUND = f"{EXTRAPOLATED}time_uncertainty", f"{EXTRAPOLATED}traffic_uncertainty"
"""Further figures of an extrapolated run: the relative uncertainties that were accepted."""
LEAST_SAVED = 1 / 4
"""Least share of the workgroups to omit. For less, the gain in time is not worth the uncertainty."""
CHECK_GROWTH = 9 / 8
"""Waves now / waves at the last check. A check at every wave would sooner or later pass by chance."""
TRAFFIC = ("read_columns", "write_columns")
"""Counters of HBM that must be steady too."""


@dataclass(frozen=True)
class Promise:
    """Relative uncertainty up to which an extrapolation is accepted.

    Attributes:
        time: of the kernel. It is less than the promised error of 1 %, because the uncertainty is not a bound.
        traffic: of DRAM reads, and of DRAM writes.
    """

    time: float = 0.0075
    traffic: float = 0.05


class Snapshot(NamedTuple):
    """Counters (`sim.counters.take`) at the time at which `workgroups` had ended."""

    workgroups: int
    counted: dict[str, np.ndarray]


class Cut(NamedTuple):
    """The decision to cut the kernel.

    Attributes:
        workgroups: number to simulate.
        left: number of omitted workgroups; they are added at the rate between the snapshots `first` and `last`.
        added_ps: time of the omitted workgroups.
        time: relative uncertainty of the time.
        traffic: relative uncertainty of DRAM reads or of DRAM writes, the larger one.
    """

    workgroups: int
    left: int
    added_ps: int
    first: Snapshot
    last: Snapshot
    time: float
    traffic: float


class Watch:
    """Checks a running GEMM at regular times, and cuts it when its waves are steady.

    Attributes:
        cut: the decision; None = not yet cut.
    """

    def __init__(self, gpu: Gpu, kernel: CutKernel, promise: Promise):
        self.gpu, self.kernel, self.promise = gpu, kernel, promise
        self.cut: Cut | None = None
        self._snapshots: list[Snapshot] = []
        self._checked = 0
        gpu.node = gpu.node._replace(spans=np.zeros(kernel.end, SPAN))

    @property
    def _wave(self) -> int:
        """Workgroups that the machine holds at once."""
        dispatch = self.gpu.node.dispatch[0]
        return int(dispatch["places"] * (dispatch["last_cu"] - dispatch["first_cu"]))

    def look(self) -> None:
        """Record the counters once per wave; cut the kernel if its waves are steady."""
        ended = int(self.gpu.node.engine[0]["spans"])
        if self.cut or ended < (len(self._snapshots) + 1) * self._wave:
            return
        self._snapshots.append(Snapshot(ended, self._counted()))
        waves = len(self._snapshots) - 1
        quarter = quarter_waves(waves)
        if quarter < QUARTER_WAVES or quarter * self._wave < self.kernel.gemm.tiles_n:
            return  # less than a row of tiles, after which the reuse of operands in L2 repeats
        if waves >= CHECK_GROWTH * self._checked:
            self._checked = waves
            self._check()

    def _counted(self) -> dict[str, np.ndarray]:
        """Counters as in the records. (`Gpu.counted` settles the channels, which could change the rest of the run.)"""
        return {unit: take(unit, records) for unit, records in units_of(self.gpu.node).items()}

    def _check(self) -> None:
        wave, whole = self._wave, self.kernel.gemm.info.workgroups
        end = self.kernel.given + (whole - self.kernel.given) % wave
        if whole - end < LEAST_SAVED * whole:
            return
        left = (whole - end) / wave
        first = self._snapshots[-1 - 2 * quarter_waves(len(self._snapshots) - 1)]
        if l2_fills(first) < self.gpu.machine.l2.bytes // SECTOR_BYTES:
            return
        ends_ps = np.sort(self.gpu.spans()["end_ps"])
        time = rest(wave_times(ends_ps, wave), left)
        whole_ps = ends_ps[-1] + time.wave * (whole - len(ends_ps)) / wave
        time_error = hypot(time.uncertainty, END_WAVES * time.wave) / whole_ps
        traffic_error = max(self._traffic_error(name, left) for name in TRAFFIC)
        if time_error <= self.promise.time and traffic_error <= self.promise.traffic:
            self.kernel.end = end
            last = self._snapshots[-1]
            self.cut = Cut(end, whole - end, round(time.total), first, last, float(time_error), float(traffic_error))

    def _traffic_error(self, counter: str, left: float) -> float:
        """Relative uncertainty of a counter of HBM over the whole kernel."""
        counts = np.array([snapshot.counted["hbm"][counter].sum() for snapshot in self._snapshots], float)
        ended = np.array([snapshot.workgroups for snapshot in self._snapshots])
        waves = rest(np.diff(counts) / np.diff(ended) * self._wave, left)
        return waves.uncertainty / max(1.0, counts[-1] + waves.total)


def simulate_gemm(
    source: TraceSource,
    preset: Preset,
    *,
    flush_l2: bool = True,
    interval_ps: int = 0,
    progress: Progress | None = None,
    promise: Promise | None = None,
) -> RunResult:
    """Run one GEMM; extrapolate its steady waves if that is accurate enough.

    Args:
        source: a trace of one `GemmSource` with one output tile per workgroup.
        preset: the machine.
        flush_l2: write back and empty L2 after it.
        interval_ps: of the time series, 0 = none; it covers what is simulated.
        progress: called with (kernel, workgroups done, workgroups).
        promise: the accepted uncertainty; None = `Promise()`.

    Returns:
        RunResult. An extrapolated one has the figures FROM, OF, TIME_BOUND and TRAFFIC_BOUND. Any other is equal to the
        result of `sim.run.one_gpu.simulate`.

    Raises:
        UserError: another kind of trace; as `sim.run.one_gpu.simulate`.
    """
    kernel = CutKernel(plain_gemm(source))
    gpu = Gpu(preset.machine, interval_ps)
    watch = Watch(gpu, kernel, promise or Promise())
    start_ps = preset.machine.dispatch.launch_ps
    end_ps = gpu.run_kernel(kernel, start_ps, progress, watch.look)
    if flush_l2:
        gpu.flush_l2()
    units, figures = gpu.counted(), {}
    if watch.cut:
        end_ps += watch.cut.added_ps
        units = {unit: extended(counters, unit, watch.cut) for unit, counters in units.items()}
        figures = figures_of(watch.cut)
    kernel_result = KernelResult(kernel.info.name, start_ps, end_ps, units, totals(units))
    options = {"kernels": None, "flush_l2": flush_l2, "extrapolate": True}
    result = RunResult(preset, {"trace": source.fingerprint()}, options, [kernel_result], figures=figures)
    result.line_requests = int(gpu.node.lsus["line_requests"].sum())
    if interval_ps:
        result.interval_ps, result.series, result.spans = interval_ps, gpu.series(), gpu.spans()
    return result


def why_whole(source: TraceSource, machine: Machine) -> str:
    """Why this GEMM cannot be cut, whatever its times are: it has too few waves; "" = it may be cut.

    Raises:
        UserError: another kind of trace; a workgroup that does not fit the machine.
    """
    gemm = plain_gemm(source)
    info = gemm.info
    fit = occupancy(machine.cu, int(np.prod(info.block)), info.registers, info.shared_bytes)
    wave = fit.workgroups * machine.cu.count
    quarter = max(QUARTER_WAVES, -(-gemm.tiles_n // wave))
    least = (4 * quarter + 1) / (1 - LEAST_SAVED)  # ended when the first check may cut, and the share that is left
    waves = info.workgroups / wave
    return "" if waves >= least else f"it has {waves:.1f} waves of {wave:,} workgroups, at least {least:.0f} are needed"


def l2_fills(snapshot: Snapshot) -> int:
    """Sectors brought into L2 so far. Before L2 is full it evicts little, and traffic is too low."""
    return int(sum(snapshot.counted["l2"][name].sum() for name in ("read_miss_sectors", "write_sectors")))


def extended(counters: np.ndarray, unit: str, cut: Cut) -> np.ndarray:
    """Counters of a unit including the omitted workgroups; maxima stay unchanged."""
    whole = counters.copy()
    share = cut.left / (cut.last.workgroups - cut.first.workgroups)
    for name in counters.dtype.names or ():
        if not is_maximum(name):
            whole[name] += whole_numbers((cut.last.counted[unit][name] - cut.first.counted[unit][name]) * share)
    return whole


def whole_numbers(values: np.ndarray) -> np.ndarray:
    """Values rounded to integers whose sum is the rounded sum of the values."""
    sums = np.rint(np.cumsum(values.ravel())).astype(np.int64)
    return np.diff(sums, prepend=0).reshape(values.shape)


def figures_of(cut: Cut) -> dict[str, Any]:
    """The figures of an extrapolated run."""
    return {
        FROM: cut.workgroups,
        OF: cut.workgroups + cut.left,
        TIME_BOUND: round(cut.time, 4),
        TRAFFIC_BOUND: round(cut.traffic, 4),
    }
