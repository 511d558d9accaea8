"""Kernels simulated in part: until their waves are steady, and their end; the waves between are extrapolated (D30).

A *wave* is the number of workgroups that the machine holds at once. `Watch` looks at a running kernel. Its waves can
be steady once the caches have been filled `FILLS` times and the work has repeated once. Then `sim.run.steady_waves`
predicts time and DRAM traffic of the remaining waves. If the error to be stated is within the accuracy, the rest is
omitted except for the end of the kernel: what is unlike the other workgroups, and the last wave, as incomplete as it
is. The omitted waves are added at the steady rate: time per wave, each counter per workgroup. If the error never gets
small enough, the whole kernel is simulated and the result is exact.
"""

from typing import Any, NamedTuple

import numpy as np

from sim.counters import is_maximum, take, totals
from sim.host.gpu import Gpu
from sim.hw.request import SECTOR_BYTES
from sim.machine.build import units_of
from sim.run.result import EXTRAPOLATED, KernelResult
from sim.run.short_kernel import Pattern, ShortKernel, pattern_of, reason_whole, wave_of
from sim.run.steady_waves import LEAST_WINDOWS, Waves, rest, wave_ends
from traces.source import KernelSource

WORKGROUPS, OF_WORKGROUPS = f"{EXTRAPOLATED}from_workgroups", f"{EXTRAPOLATED}to_workgroups"
WAVES, OF_WAVES = f"{EXTRAPOLATED}from_waves", f"{EXTRAPOLATED}to_waves"
TIME_ERROR, TRAFFIC_ERROR = f"{EXTRAPOLATED}time_error", f"{EXTRAPOLATED}traffic_error"
"""Figures of an extrapolated run: simulated workgroups and waves, those of the whole; the stated relative errors."""
FILLS = 2
"""Data that must have come into L2 before waves can be steady, in sizes of L2 and of a memory-side cache whose content
counts, together. Until a cache is full it evicts little; then reads compete with the first write-backs (assumed;
`validation/tables/extrapolation.md`)."""
SEEN_ONCE = 0.01
"""Largest share of reads that hit a memory-side cache without write-backs whose content does not count (assumed): data
that pass through once leave it as they find it."""
END_WAVES = 0.1
"""Uncertainty of the end, in waves: workgroups may be less out of step than at the end of the whole kernel (assumed;
`validation/tables/extrapolation.md`)."""
LEAST_SAVED = 1 / 5
"""Least share of the workgroups to omit. For less, the gain in time is not worth the error."""
CHECK_GROWTH = 9 / 8
"""Waves now / waves at the last check. A check at every wave would sooner or later pass by chance."""
TRAFFIC_PER_TIME = 2
"""Accepted error of the DRAM traffic, in accuracies of time."""


class Snapshot(NamedTuple):
    """Counters (`sim.counters.take`) at the time at which `workgroups` had ended."""

    workgroups: int
    counted: dict[str, np.ndarray]

    @property
    def dram_columns(self) -> int:
        """DRAM reads and writes."""
        return int(sum(self.counted["hbm"][name].sum() for name in ("read_columns", "write_columns")))

    @property
    def l2_fills(self) -> int:
        """Sectors brought into L2."""
        return int(sum(self.counted["l2"][name].sum() for name in ("read_miss_sectors", "write_sectors")))

    def side_sectors(self, name: str) -> int:
        """A counter of the memory-side cache."""
        return int(self.counted["msc"][name].sum())


class Cut(NamedTuple):
    """The decision to omit workgroups.

    Attributes:
        left: number of omitted workgroups; they are added at the rate between the snapshots `first` and `last`.
        added_ps: time of the omitted workgroups.
        error_ps: stated error of the time of the kernel.
        traffic_error: stated relative error of DRAM reads and writes together.
    """

    left: int
    added_ps: int
    first: Snapshot
    last: Snapshot
    error_ps: float
    traffic_error: float

    def extended(self, counters: np.ndarray, unit: str) -> np.ndarray:
        """Counters of a unit including the omitted workgroups; maxima stay unchanged."""
        whole = counters.copy()
        share = self.left / (self.last.workgroups - self.first.workgroups)
        for name in counters.dtype.names or ():
            if not is_maximum(name):
                passed = self.last.counted[unit][name] - self.first.counted[unit][name]
                whole[name] += whole_numbers(passed * share)
        return whole


class Watch:
    """Looks at a running kernel, and omits its middle when its waves are steady.

    Attributes:
        cut: the decision; None = not yet cut.
    """

    def __init__(self, gpu: Gpu, kernel: ShortKernel, start_ps: int, accuracy: float):
        self.gpu, self.kernel, self.start_ps, self.accuracy = gpu, kernel, start_ps, accuracy
        self.cut: Cut | None = None
        self._looks: list[tuple[int, int]] = [(start_ps, 0)]
        self._snapshots = [Snapshot(0, self._counted())]
        self._checked = 0

    def look(self) -> None:
        """Record what has ended, and the counters once per wave; omit the middle if the waves are steady."""
        ended = int(self.gpu.node.dispatch[0]["finished"])
        if self.cut or ended == self._looks[-1][1]:
            return
        self._looks.append((self.gpu.now_ps, ended))
        if ended < len(self._snapshots) * self.kernel.pattern.wave:
            return
        self._snapshots.append(Snapshot(ended, self._counted()))
        waves, steady = len(self._snapshots) - 1, self._steady()
        if steady and waves >= CHECK_GROWTH * self._checked:
            self._checked = waves
            self._check(steady)

    def _counted(self) -> dict[str, np.ndarray]:
        """Counters as in the records. (`Gpu.counted` settles the channels, which could change the rest of the run.)"""
        return {unit: take(unit, records) for unit, records in units_of(self.gpu.node).items()}

    def _steady(self) -> int:
        """Number of the last workgroups that can be steady, at most half of all if those are enough. 0: too few."""
        pattern, last = self.kernel.pattern, self._snapshots[-1]
        least = (LEAST_WINDOWS - 1) * pattern.wave + pattern.window
        machine = self.gpu.machine
        cache_bytes = machine.l2.bytes + (machine.msc.bytes if self._side_counts() else 0)
        fills = self._snapshots[0].l2_fills + FILLS * cache_bytes // SECTOR_BYTES
        ready = [s.workgroups for s in self._snapshots if s.l2_fills >= fills and s.workgroups >= pattern.repeats_after]
        steady = min(last.workgroups - ready[0], max(last.workgroups // 2, least)) if ready else 0
        return steady if steady >= least else 0

    def _side_counts(self) -> bool:
        """Does what the memory-side cache holds change the rate: has it dirty lines, or do reads hit it?"""
        msc, first, last = self.gpu.machine.msc, self._snapshots[0], self._snapshots[-1]
        if not msc.present or msc.write_back:
            return msc.present
        hits, reads = (
            last.side_sectors(name) - first.side_sectors(name) for name in ("read_hit_sectors", "read_sectors")
        )
        return hits > SEEN_ONCE * reads

    def _check(self, steady: int) -> None:
        pattern, last = self.kernel.pattern, self._snapshots[-1]
        given = self.kernel.given
        left = pattern.left_out(given)
        if left < LEAST_SAVED * pattern.whole:
            return
        times_ps, ended = np.array(self._looks).T
        time = rest(Waves(*wave_ends(times_ps, ended, pattern.wave), pattern.wave, pattern.window), steady, left)
        whole_ps = times_ps[-1] - self.start_ps + time.rate * (pattern.whole - last.workgroups)
        error_ps = time.uncertainty + END_WAVES * time.rate * pattern.wave
        traffic_error = self._traffic_error(steady, left)
        if error_ps <= self.accuracy * whole_ps and traffic_error <= TRAFFIC_PER_TIME * self.accuracy:
            begin = last.workgroups - steady // pattern.window * pattern.window
            first = min(self._snapshots, key=lambda snapshot: abs(snapshot.workgroups - begin))
            self.cut = Cut(self.kernel.omit(), round(time.total), first, last, error_ps, traffic_error)

    def _traffic_error(self, steady: int, left: int) -> float:
        """Relative uncertainty of the DRAM reads and writes of the whole kernel."""
        pattern = self.kernel.pattern
        ended = np.array([snapshot.workgroups for snapshot in self._snapshots], float)
        columns = np.array([snapshot.dram_columns for snapshot in self._snapshots], float)
        found = rest(Waves(ended, columns, pattern.wave, pattern.window), steady, left)
        return found.uncertainty / max(1.0, columns[-1] - columns[0] + found.total)


def whole_numbers(values: np.ndarray) -> np.ndarray:
    """Values rounded to integers whose sum is the rounded sum of the values."""
    sums = np.rint(np.cumsum(values.ravel())).astype(np.int64)
    return np.diff(sums, prepend=0).reshape(values.shape)


def watch_of(gpu: Gpu, kernel: KernelSource, start_ps: int, accuracy: float) -> Watch | None:
    """A watch over a kernel that starts at start_ps; None if it is to be simulated whole."""
    if not accuracy or reason_whole(kernel, gpu.machine):
        return None
    pattern = pattern_of(kernel, gpu.machine)
    assert isinstance(pattern, Pattern)
    return Watch(gpu, ShortKernel(kernel, pattern), start_ps, accuracy)


class Part(NamedTuple):
    """A kernel of a run.

    Attributes:
        result: of what was simulated.
        wave: workgroups that the machine holds at once.
        workgroups: number in the whole kernel.
        cut: what was omitted; None = nothing.
    """

    result: KernelResult
    wave: int
    workgroups: int
    cut: Cut | None


def part_of(result: KernelResult, kernel: KernelSource, gpu: Gpu, watch: Watch | None) -> Part:
    """The part of a run that a kernel is. result: of what was simulated."""
    info = kernel.info
    return Part(result, wave_of(info, gpu.machine), info.workgroups, watch.cut if watch else None)


def extended(parts: list[Part]) -> KernelResult:
    """Result of the last kernel including its omitted workgroups. It starts later by what was omitted before it."""
    shift_ps = sum(part.cut.added_ps for part in parts[:-1] if part.cut)
    result, cut = parts[-1].result, parts[-1].cut
    start_ps, end_ps = result.start_ps + shift_ps, result.end_ps + shift_ps + (cut.added_ps if cut else 0)
    units = {unit: cut.extended(counters, unit) for unit, counters in result.units.items()} if cut else result.units
    return KernelResult(result.name, start_ps, end_ps, units, totals(units))


def figures_of(parts: list[Part]) -> dict[str, Any]:
    """The figures that mark a run with omitted workgroups; {} if all were simulated."""
    cuts = [(part, part.cut) for part in parts if part.cut]
    if not cuts:
        return {}
    workgroups, waves = sum(part.workgroups for part in parts), sum(part.workgroups / part.wave for part in parts)
    time_ps = sum(part.result.time_ps + (part.cut.added_ps if part.cut else 0) for part in parts)
    return {
        WORKGROUPS: workgroups - sum(cut.left for _, cut in cuts),
        OF_WORKGROUPS: workgroups,
        WAVES: round(waves - sum(cut.left / part.wave for part, cut in cuts), 1),
        OF_WAVES: round(waves, 1),
        TIME_ERROR: round(float(sum(cut.error_ps for _, cut in cuts) / time_ps), 4),
        TRAFFIC_ERROR: round(float(max(cut.traffic_error for _, cut in cuts)), 4),
    }
