"""What one simulation found: raw counters of each kernel and unit instance, time series, timeline, figures."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sim.counters import add_totals, headline, ratios
from sim.hw.request import SECTOR_BYTES, Stream
from sim.hw.spans import SPAN
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
            of L2 after it is in the counters, not in this time (D13). Of several GPUs: when the last of them was at
            rest.
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
class RunResult:
    """What one simulation found.

    Of several GPUs, `kernels`, `series`, `spans` and `triggers` are those of GPU 0. A result without kernels holds
    figures only: the row of a scenario (`sim.scenario.archive`).

    Attributes:
        preset: the machine, with the source of each value.
        input: what ran, as plain values: the trace's fingerprint, the shape of a GEMM or collective.
        options: how it was asked for, as plain values; no paths, no times.
        kernels: in the order in which they ran; one for a run of several GPUs.
        interval_ps: of the time series, 0 = none taken.
        series: name -> i8 [time], one value per interval: what it added, or a level at its end. Flushes of L2 are in
            it; the last interval may be cut short by the end of the run.
        spans: SPAN (`sim.hw.spans`), the timeline; empty without a time series.
        triggers: i8 [tiles, 3]: tile, when it was complete (ps), local chunk; empty without a time series.
        exactly_once: the ledger's verdict; True without a ledger.
        wrong: what the ledger found wrong, one line each.
        kernel_ps: end of the kernel itself, None = that of the last kernel. Data may still be on their way then.
        mean_dram_bytes: i8 [4], per Stream, mean over the simulated GPUs; None = one GPU, see `dram_bytes`.
        link_bytes: sent by a GPU, mean over the simulated GPUs.
        line_requests: that CUs and DMA engines made, all simulated GPUs together.
        warnings: what the reader of the trace found odd or left out, one line each.
        figures: further numbers by name, with the unit at the end of the name ("ag_time_ps"); None = no limit.
        writer: program and version that made it.
        code: hash of the simulator's sources that made it (`sim.run.code`), "" = not known.
        point: of a study or scenario: field -> value.
    """

    preset: Preset
    input: dict[str, Any]
    options: dict[str, Any]
    kernels: list[KernelResult]
    interval_ps: int = 0
    series: dict[str, np.ndarray] = field(default_factory=dict)
    spans: np.ndarray = field(default_factory=lambda: np.zeros(0, SPAN))
    triggers: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    exactly_once: bool = True
    wrong: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    kernel_ps: int | None = None
    mean_dram_bytes: np.ndarray | None = None
    link_bytes: int = 0
    line_requests: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    writer: str = f"t3sim {VERSION}"
    code: str = ""
    point: dict[str, Any] = field(default_factory=dict)

    @property
    def trace_fingerprint(self) -> str:
        """SHA-256 of the trace that was replayed, "" where none was."""
        return str(self.input.get("trace", ""))

    @property
    def dram_bytes(self) -> np.ndarray:
        """Bytes at the memory controllers of a GPU: reads, writes and updates together, per Stream, i8 [4]."""
        return dram_bytes_of(self.totals) if self.mean_dram_bytes is None else self.mean_dram_bytes

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
    def extrapolation(self) -> dict[str, Any]:
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


def dram_bytes_of(totals: dict[str, int]) -> np.ndarray:
    """Bytes at the memory controllers per Stream, i8 [4], from the counters of a GPU."""
    kinds = ("read_columns", "write_columns", "update_columns")
    return np.array(
        [SECTOR_BYTES * sum(totals.get(f"hbm.{kind}.{stream.name.lower()}", 0) for kind in kinds) for stream in Stream],
        np.int64,
    )


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
    """A point of a study that has no results.

    Attributes:
        point: swept field -> value.
        reason: one line.
        writer: program and version that tried.
    """

    point: dict[str, Any]
    reason: str
    writer: str = f"t3sim {VERSION}"
