"""The result of one run: raw counters of each kernel and unit instance, time series, timeline, figures."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from sim.counters import add_totals, headline, ratios
from sim.host.recorded import Recorded
from sim.hw.request import SECTOR_BYTES, Stream
from sim.hw.spans import SPAN
from sim.machine.stalls import STALL
from sim.presets import Preset
from sim.run.html_table import html_table
from traces.errors import UserError
from traces.units import ps_to_ns
from traces.version import VERSION

WRITER = f"t3sim {VERSION}"
EXTRAPOLATED = "extrapolated_"
"""Prefix of the figures that mark an extrapolated run (`sim.run.extrapolation`)."""

AT_ONCE = "at_once_"
"""Prefix of the figures of kernels that ran at once (`sim.run.together`): the time of each."""


class ResultsError(UserError):
    """The file is not a results archive that this version can read, or it does not hold the requested values."""


class Totals(dict[str, int]):
    """ "unit.counter" -> sum or maximum. An archive of an older version, or a damaged one, can lack counters."""

    def __missing__(self, name: str) -> int:
        raise ResultsError(f"this result has no counter {name}")


@dataclass
class KernelResult:
    """One kernel of a run.

    Attributes:
        name: of the kernel.
        start_ps: when its first workgroups could start.
        end_ps: when its last warp had ended and its last store was in L2 (in DRAM, if stores are uncached). A flush of
            L2 after it is in the counters, not in this time (D13). With several GPUs: when the last GPU was idle.
        units: unit -> structured array [instance] of raw counters (fields: `sim.counters.COUNTERS`).
        totals: "unit.counter" -> sum (or maximum) over the instances.
    """

    name: str
    start_ps: int
    end_ps: int
    units: dict[str, np.ndarray]
    totals: dict[str, int]

    def __post_init__(self) -> None:
        self.totals = Totals(self.totals)

    @property
    def time_ps(self) -> int:
        return self.end_ps - self.start_ps

    def headline(self) -> dict:
        """`time_ns` and counts in 32-byte sectors (sim.counters.headline)."""
        return {"time_ns": ps_to_ns(self.time_ps), **headline(self.totals)}


@dataclass
class RunResult:
    """The result of one run.

    With several GPUs, `kernels` and what is recorded over time are those of GPU 0. A result without kernels has only
    figures: it is the row of a scenario (`sim.scenario.archive`).

    Attributes:
        preset: the machine, with the source of each value.
        input: the workload as plain values: the trace's fingerprint, the shape of a GEMM or collective.
        options: the options of the run as plain values; no paths, no times.
        kernels: in the order in which they ran; one for a run of several GPUs.
        interval_ps: of the time series, 0 = none taken.
        series: name -> i8 [time], one value per interval: the increase in the interval, or a level at its end. Flushes
            of L2 are included. The last interval may be shorter, because the run ends in it.
        channel_bytes, spans, stalls, triggers: recorded over time (`sim.host.recorded`); empty without a time series.
        others: what the other simulated GPUs recorded, GPU 1 first. Empty if GPU 0 stands for all.
        exactly_once: verdict of the ledger: every contribution arrived exactly once. True without a ledger.
        wrong: errors that the ledger found, one line each.
        kernel_ps: end of the kernel itself, when data may still be in transit; None = end of the last kernel.
        mean_dram_bytes: i8 [4], per Stream, mean over the simulated GPUs; None = run on one GPU, see `dram_bytes`.
        link_bytes: bytes that a GPU sent, mean over the simulated GPUs.
        line_requests: requests of CUs and DMA engines, sum over the simulated GPUs.
        warnings: of the reader of the trace: unusual or ignored content, one line each.
        figures: further numbers by name, with the unit at the end of the name ("ag_time_ps"); None = no limit.
        writer: program and version that made the result.
        code: hash of the simulator's code that made the result (`sim.run.code`), "" = not known.
        point: swept field -> value, of a study; or the name of the run, of a scenario.
    """

    preset: Preset
    input: dict[str, Any]
    options: dict[str, Any]
    kernels: list[KernelResult]
    interval_ps: int = 0
    series: dict[str, np.ndarray] = field(default_factory=dict)
    channel_bytes: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    spans: np.ndarray = field(default_factory=lambda: np.zeros(0, SPAN))
    stalls: np.ndarray = field(default_factory=lambda: np.zeros(0, STALL))
    triggers: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    others: list[Recorded] = field(default_factory=list)
    exactly_once: bool = True
    wrong: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    kernel_ps: int | None = None
    mean_dram_bytes: np.ndarray | None = None
    link_bytes: int = 0
    line_requests: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    writer: str = WRITER
    code: str = ""
    point: dict[str, Any] = field(default_factory=dict)

    @property
    def trace_fingerprint(self) -> str:
        """SHA-256 of the replayed trace; "" if there was no trace."""
        return str(self.input.get("trace", ""))

    @property
    def dram_bytes(self) -> np.ndarray:
        """Bytes at the memory controllers of a GPU: reads, writes and updates together, per Stream, i8 [4]."""
        return dram_bytes_of(self.totals) if self.mean_dram_bytes is None else self.mean_dram_bytes

    @cached_property
    def totals(self) -> dict[str, int]:
        """Counters over all kernels and instances."""
        return Totals(add_totals(kernel.totals for kernel in self.kernels))

    @property
    def time_ps(self) -> int:
        """End of the last kernel.

        Time 0 is `dispatch.launch_ps` before the start of the first kernel. Flushes of L2 between kernels are in this
        time; the flush after the last kernel is not.
        """
        return max((kernel.end_ps for kernel in self.kernels), default=0)

    @property
    def extrapolation(self) -> dict[str, Any]:
        """The figures that mark an extrapolated run; empty if everything was simulated."""
        return {name: value for name, value in self.figures.items() if name.startswith(EXTRAPOLATED)}

    def headline(self) -> dict:
        """The figures that every run reports: `time_ns` and counts in 32-byte sectors (sim.counters.headline)."""
        return {"time_ns": ps_to_ns(self.time_ps), **headline(self.totals)}

    def ratios(self) -> dict[str, float | None]:
        """Ratios (hit rates and others) over the whole run."""
        return ratios(self.totals)

    def _repr_html_(self) -> str:
        """The headline figures, or the figures of a result without kernels, for a notebook."""
        shown = {**self.headline(), **self.ratios()} if self.kernels else self.figures
        return html_table(self._title(), ("figure", "value"), shown.items())

    def __repr__(self) -> str:
        return f"<RunResult: {self._title()}, {ps_to_ns(self.time_ps)} ns>"

    def _title(self) -> str:
        names = ", ".join(dict.fromkeys(kernel.name for kernel in self.kernels)) or "figures"
        return f"{names} on {self.preset.name}"

    def frame(self, unit):
        """Counters of one unit, a pandas DataFrame, index (kernel, instance). A counter per stream has four columns."""
        import pandas as pd

        if not self.kernels or unit not in self.kernels[0].units:
            known = ", ".join(self.kernels[0].units) if self.kernels else "none, no kernel ran"
            raise ResultsError(f"unit {unit!r}: allowed are {known}")
        parts = [pd.DataFrame(columns_of(kernel.units[unit])) for kernel in self.kernels]
        return pd.concat(parts, keys=range(len(parts)), names=["kernel", "instance"])

    def series_frame(self):
        """The time series as a pandas DataFrame, index time_ps (end of each interval)."""
        import pandas as pd

        return pd.DataFrame(self.series, index=pd.Index(self.times_ps(), name="time_ps"))

    def keep(self, recorded: Recorded) -> None:
        """Take over what a GPU has recorded."""
        for name, values in vars(recorded).items():
            setattr(self, name, values)

    def on_gpu(self, number: int) -> "RunResult":
        """This result with what another GPU recorded over time; the counters stay those of GPU 0.

        Args:
            number: of the GPU. Without records of other GPUs, GPU 0 stands for all.
        """
        if number == 0 or not self.others:
            return self
        return replace(self, others=[], **vars(self.others[number - 1]))

    def column(self, name: str) -> np.ndarray:
        """One column of the time series, i8 [time].

        Raises:
            ResultsError: there is no such column.
        """
        if name not in self.series:
            raise ResultsError(f"the time series has no {name}: {', '.join(self.series) or 'this run took none'}")
        return self.series[name]

    def times_ps(self) -> np.ndarray:
        """End of each interval of the series, i8 [time]."""
        return ends_ps(self.series, self.interval_ps)


def ends_ps(series: dict[str, np.ndarray], interval_ps: int) -> np.ndarray:
    """End of each interval of a time series, i8 [time]."""
    rows = len(next(iter(series.values()), ()))
    return np.arange(1, rows + 1, dtype=np.int64) * interval_ps


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
        writer: program and version that tried to simulate it.
    """

    point: dict[str, Any]
    reason: str
    writer: str = WRITER
