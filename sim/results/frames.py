"""Results as tidy tables: pandas frames with a row per run, kernel, unit instance or interval, and an xarray dataset.

The first columns are the swept fields, under their names ("hbm.queue_entries"). Names of columns end with the
unit of measure. Failed runs are rows of `runs_frame` only, with the reason. `sim.results.ResultsArchive` inherits these
methods.
"""

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.counters import unit_of_measure
from sim.run.result import Failure, ResultsError, RunResult, columns_of
from traces.errors import UserError

if TYPE_CHECKING:
    import pandas
    import xarray


@dataclass
class Frames:
    """Several runs as tables.

    Attributes:
        runs: in order; a Failure for a point of a study that failed.
        study: SHA-256 of the study, "" = not of a study. In an entry of the store: the key of the run.
    """

    runs: list[RunResult | Failure] = field(default_factory=list)
    study: str = ""

    def results(self) -> list[tuple[int, RunResult]]:
        """(number, run) of each run that has results."""
        return [(number, run) for number, run in enumerate(self.runs) if isinstance(run, RunResult)]

    def runs_frame(self) -> "pandas.DataFrame":
        """One row per run, index `run`: point, `failure`, preset, headline figures, ratios, further figures."""
        import pandas as pd

        rows = [_run_row(run) for run in self.runs]
        return pd.DataFrame(rows, index=pd.RangeIndex(len(rows), name="run"))

    def kernels_frame(self) -> "pandas.DataFrame":
        """One row per run and kernel: point, name, start_ps, end_ps, and every counter summed over instances."""
        import pandas as pd

        keys, rows = [], []
        for number, run in self.results():
            for place, kernel in enumerate(run.kernels):
                keys.append((number, place))
                times = {"name": kernel.name, "start_ps": kernel.start_ps, "end_ps": kernel.end_ps}
                rows.append({**run.point, **times, **kernel.totals})
        return pd.DataFrame(rows, index=pd.MultiIndex.from_tuples(keys, names=["run", "kernel"]) if keys else None)

    def instances_frame(self, unit: str) -> "pandas.DataFrame":
        """One row per run, kernel and instance of a unit (`sim.counters.COUNTERS`): point and raw counters.

        Raises:
            ResultsError: no run has such a unit.
        """
        import pandas as pd

        parts = {}
        for number, run in self.results():
            for place, kernel in enumerate(run.kernels):
                if unit in kernel.units:
                    counters = columns_of(kernel.units[unit])
                    parts[number, place] = pd.DataFrame({**_repeated(run.point, len(kernel.units[unit])), **counters})
        if not parts:
            known = sorted({name for _, run in self.results() for kernel in run.kernels for name in kernel.units})
            raise ResultsError(f"unit {unit!r}: allowed are {', '.join(known) or 'none, no kernel ran'}")
        return pd.concat(parts, names=["run", "kernel", "instance"])

    def intervals_frame(self) -> "pandas.DataFrame":
        """One row per run and interval of its time series, index (run, time_ps = end of the interval).

        Raises:
            ResultsError: no run has a time series.
        """
        import pandas as pd

        parts = {}
        for number, run in self.results():
            if run.series:
                times = run.times_ps()
                index = pd.Index(times, name="time_ps")
                parts[number] = pd.DataFrame({**_repeated(run.point, len(times)), **run.series}, index=index)
        if not parts:
            raise ResultsError("no run took a time series: repeat it with --interval-ns")
        return pd.concat(parts, names=["run"])

    def dataset(self) -> "xarray.Dataset":
        """The numbers of `runs_frame` and the total of every counter as an xarray dataset; attribute `units`.

        If the runs fill the grid of the swept fields, these fields are the dimensions. Else there is one dimension
        `run`, and the fields are coordinates; lists are texts ("T3,T3-MCA"). A point that failed is NaN.

        Raises:
            UserError: xarray is not installed.
        """
        try:
            import xarray
        except ImportError:
            raise UserError("a dataset needs xarray: pip install xarray") from None

        frame = self.runs_frame()
        numbers = frame.select_dtypes("number")
        totals = {number: run.totals for number, run in self.results()}
        names = dict.fromkeys(name for total in totals.values() for name in total)
        fields = list(dict.fromkeys(name for run in self.runs for name in run.point))
        columns = {name: numbers[name].to_numpy() for name in numbers if name not in fields}
        columns |= {name: [totals.get(k, {}).get(name, math.nan) for k in frame.index] for name in names}
        swept = {name: [_coordinate(value) for value in frame[name]] for name in fields}
        axes = {name: list(dict.fromkeys(values)) for name, values in swept.items()}
        whole = axes and [*itertools.product(*axes.values())] == [*zip(*swept.values(), strict=True)]
        if whole:
            shape, dimensions = tuple(map(len, axes.values())), tuple(axes)
            coordinates: dict[str, Any] = dict(axes)
        else:
            shape, dimensions = (len(frame),), ("run",)
            coordinates = {"run": list(frame.index)} | {name: ("run", values) for name, values in swept.items()}
        variables = {
            name: (dimensions, np.asarray(values).reshape(shape), {"units": unit_of_measure(name)})
            for name, values in columns.items()
        }
        return xarray.Dataset(variables, coordinates, {"study": self.study})


def _run_row(run):
    if isinstance(run, Failure):
        return {**run.point, "failure": run.reason}
    figures = {**run.headline(), **run.ratios()} if run.kernels else {}
    return {**run.point, "failure": "", "preset": run.preset.name, **figures, **run.figures}


def _coordinate(value):
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _repeated(point, rows):
    return {name: [value] * rows for name, value in point.items()}
