"""What a run found, in memory: raw counters of each kernel and unit instance, time series, figures."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sim.counters import add_totals, headline, ratios
from sim.hw.request import Stream
from sim.presets import Preset
from traces.errors import UserError
from traces.units import ps_to_ns
from traces.version import VERSION

EXTRAPOLATED = "extrapolated_"
"""How the figures begin that mark an extrapolated run (`sim.run.extrapolation`)."""


class ResultsError(UserError):
    """A file that is not a results archive that this version can read, or a question that it cannot answer."""


@dataclass
class KernelResult:
    """One kernel of a run.

    Attributes:
        name: of the kernel.
        start_ps: when its first workgroups could start.
        end_ps: when its last warp had left and its last store was in L2 (in DRAM, where stores are uncached). A flush
            of L2 after it is in the counters, not in this time (D13).
        units: unit -> structured array [instance] of raw counters (fields: `sim.counters.COUNTERS`).
        totals: "unit.counter" -> sum (or maximum) over the instances.
    """

    name: str
    start_ps: int
    end_ps: int
    units: dict[str, np.ndarray]
    totals: dict[str, int]

    @property
    def time_ps(self) -> int:
        return self.end_ps - self.start_ps

    def headline(self) -> dict:
        """`time_ns` and counts in 32-byte sectors (sim.counters.headline)."""
        return {"time_ns": ps_to_ns(self.time_ps), **headline(self.totals)}


@dataclass
class Results:
    """What a run found.

    Attributes:
        preset: the machine, with the source of each value.
        trace_fingerprint: SHA-256 of the trace that was replayed.
        options: how the run was asked for, values that JSON can hold; no paths, no times.
        kernels: in the order in which they ran.
        interval_ps: of the time series, 0 = none taken.
        series: name -> i8 [time], one value per interval: what it added, or a level at its end. Flushes of L2 are in
            it; the last interval may be cut short by the end of the run.
        writer: program and version that made them.
        point: of a sweep: swept field -> value.
        figures: what a study found beyond the counters, by name with its unit at the end ("speedup", "ag_time_ps").
    """

    preset: Preset
    trace_fingerprint: str
    options: dict
    kernels: list[KernelResult]
    interval_ps: int = 0
    series: dict[str, np.ndarray] = field(default_factory=dict)
    writer: str = f"t3sim {VERSION}"
    point: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, int | float | str] = field(default_factory=dict)

    @cached_property
    def totals(self) -> dict[str, int]:
        """Counters over all kernels and instances."""
        return add_totals(kernel.totals for kernel in self.kernels)

    @property
    def time_ps(self) -> int:
        """End of the last kernel.

        0 is `dispatch.launch_ps` before the first kernel starts. Flushes of L2 between kernels are in this time, the
        one after the last kernel is not.
        """
        return max((kernel.end_ps for kernel in self.kernels), default=0)

    @property
    def extrapolation(self) -> dict[str, int | float | str]:
        """The figures that mark an extrapolated run; none where all was simulated."""
        return {name: value for name, value in self.figures.items() if name.startswith(EXTRAPOLATED)}

    def headline(self) -> dict:
        """The figures that every run reports: `time_ns` and counts in 32-byte sectors (sim.counters.headline)."""
        return {"time_ns": ps_to_ns(self.time_ps), **headline(self.totals)}

    def ratios(self) -> dict[str, float | None]:
        """Hit rates and the like over the whole run."""
        return ratios(self.totals)

    def frame(self, unit):
        """pandas DataFrame of one unit's counters: index (kernel, instance); a counter per stream has four columns."""
        import pandas as pd

        if not self.kernels or unit not in self.kernels[0].units:
            known = ", ".join(self.kernels[0].units) if self.kernels else "none, no kernel ran"
            raise ResultsError(f"unit {unit!r}: allowed are {known}")
        parts = [pd.DataFrame(columns_of(kernel.units[unit])) for kernel in self.kernels]
        return pd.concat(parts, keys=range(len(parts)), names=["kernel", "instance"])

    def series_frame(self):
        """pandas DataFrame of the time series, index time_ps (end of each interval)."""
        import pandas as pd

        return pd.DataFrame(self.series, index=pd.Index(self.times_ps(), name="time_ps"))

    def times_ps(self) -> np.ndarray:
        """End of each interval of the series, i8 [time]."""
        rows = len(next(iter(self.series.values()), ()))
        return np.arange(1, rows + 1, dtype=np.int64) * self.interval_ps


def columns_of(counters):
    """Structured array of counters -> dict of 1-D columns; a counter per stream gives `counter.stream` for each."""
    columns = {}
    for name in counters.dtype.names:
        if counters[name].ndim == 1:
            columns[name] = counters[name]
        else:
            for stream in Stream:
                columns[f"{name}.{stream.name.lower()}"] = counters[name][:, stream]
    return columns


@dataclass(frozen=True)
class Failure:
    """A point of a sweep that has no results.

    Attributes:
        point: swept field -> value.
        reason: one line.
        writer: program and version that tried.
    """

    point: dict[str, Any]
    reason: str
    writer: str = f"t3sim {VERSION}"
