"""The results archive: what a run found, as an HDF5 file that opens in h5py, pandas and xarray.

    /                       attributes: file_type, format_version, writer, trace_fingerprint, kernels, interval_ps
    /spec                   text: the machine, every value with kind and source (JSON, `Preset.as_dict`)
    /options                text: how the run was asked for (JSON)
    /registry               text: unit -> counter -> meaning (JSON, `sim.counters.COUNTERS`)
    /kernels/0000, ...      attributes: name, start_ps, end_ps
    /kernels/0000/totals    text: "unit.counter" -> sum or maximum over the instances (JSON)
    /kernels/0000/units/<unit>  compound [instance]: the raw counters of each instance of the unit in this kernel
    /series/time_ps         i8 [time]: end of each interval, the dimension scale of the others
    /series/<name>          i8 [time]: what happened in each interval

The same input gives the same bytes: wall time, memory, dates and paths are not in it. The file is written under a
temporary name and renamed when it is whole.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import h5py
import numpy as np

from sim.counters import COUNTERS, add_totals, headline, ratios
from sim.hw.request import Stream
from sim.presets import Preset, preset_from_dict
from sim.units import ps_to_ns
from traces.errors import UserError
from traces.version import VERSION
from traces.write import new_file, replacing

FILE_TYPE = "t3sim-results"
FORMAT_VERSION = 1


class ResultsError(UserError):
    """A file that is not a results archive that this version can read."""


@dataclass
class KernelResult:
    """One kernel of a run.

    Attributes:
        name: of the kernel.
        start_ps: when it was launched.
        end_ps: when its last workgroup had ended and its writes had left the SMs, L2 flush included if asked for.
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
        series: name -> i8 [time], one value per interval.
        writer: program and version that made them.
    """

    preset: Preset
    trace_fingerprint: str
    options: dict
    kernels: list[KernelResult]
    interval_ps: int = 0
    series: dict[str, np.ndarray] = field(default_factory=dict)
    writer: str = f"t3sim {VERSION}"

    @cached_property
    def totals(self) -> dict[str, int]:
        """Counters over all kernels and instances."""
        return add_totals(kernel.totals for kernel in self.kernels)

    @property
    def time_ps(self) -> int:
        """End of the last kernel, from the launch of the first at 0."""
        return max((kernel.end_ps for kernel in self.kernels), default=0)

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
        parts = [pd.DataFrame(_columns(kernel.units[unit])) for kernel in self.kernels]
        return pd.concat(parts, keys=range(len(parts)), names=["kernel", "instance"])

    def series_frame(self):
        """pandas DataFrame of the time series, index time_ps (end of each interval)."""
        import pandas as pd

        return pd.DataFrame(self.series, index=pd.Index(self.times_ps(), name="time_ps"))

    def times_ps(self) -> np.ndarray:
        """End of each interval of the series, i8 [time]."""
        rows = len(next(iter(self.series.values()), ()))
        return np.arange(1, rows + 1, dtype=np.int64) * self.interval_ps


def _columns(counters):
    """Structured array -> dict of 1-D columns."""
    columns = {}
    for name in counters.dtype.names:
        if counters[name].ndim == 1:
            columns[name] = counters[name]
        else:
            for stream in Stream:
                columns[f"{name}.{stream.name.lower()}"] = counters[name][:, stream]
    return columns


def write_results(path, results):
    """Write a results archive (replaced if it exists).

    Raises:
        UserError: folder missing or not writable, disk full. Nothing is left behind.
    """
    with replacing(Path(path)) as temporary, new_file(temporary) as (file, _):
        file.attrs["file_type"] = FILE_TYPE
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["writer"] = results.writer
        file.attrs["trace_fingerprint"] = results.trace_fingerprint
        file.attrs["kernels"] = len(results.kernels)
        file.attrs["interval_ps"] = results.interval_ps
        texts = {"spec": results.preset.as_dict(), "options": results.options, "registry": COUNTERS}
        for name, content in texts.items():
            file[name] = json.dumps(content, indent=1)
        for number, kernel in enumerate(results.kernels):
            _write_kernel(file.create_group(_kernel_path(number)), kernel)
        _write_series(file.create_group("series"), results)


def _kernel_path(number):
    return f"kernels/{number:04d}"


def _write_kernel(group, kernel):
    group.attrs["name"] = kernel.name
    group.attrs["start_ps"] = kernel.start_ps
    group.attrs["end_ps"] = kernel.end_ps
    group["totals"] = json.dumps(kernel.totals)
    units = group.create_group("units")
    for unit, counters in kernel.units.items():
        units.create_dataset(unit, data=counters, compression="gzip", shuffle=True)


def _write_series(group, results):
    if not results.series:
        return
    time = group.create_dataset("time_ps", data=results.times_ps())
    time.make_scale("time_ps")
    for name, values in results.series.items():
        dataset = group.create_dataset(name, data=values, compression="gzip", shuffle=True)
        dataset.dims[0].attach_scale(time)


def open_results(path):
    """Read a results archive whole.

    Returns:
        Results.

    Raises:
        ResultsError: no such file, not a results archive, of a newer version, truncated or damaged.
    """
    path = Path(path)
    if not path.is_file():
        raise ResultsError(f"{path}: no such file")
    try:
        with h5py.File(path, "r") as file:
            _check_header(path, file.attrs)
            return _read(file)
    except (OSError, KeyError, ValueError, RuntimeError) as problem:
        text = " ".join(str(problem).split())
        raise ResultsError(f"{path}: damaged, truncated, or not an HDF5 file ({text})") from None


def _check_header(path, attributes):
    file_type = attributes.get("file_type")
    if file_type != FILE_TYPE:
        raise ResultsError(f"{path}: not a results archive: file_type is {file_type!r}, allowed is {FILE_TYPE!r}")
    version = int(attributes["format_version"])
    if not 1 <= version <= FORMAT_VERSION:
        raise ResultsError(f"{path}: format_version is {version}, allowed is 1 to {FORMAT_VERSION}")


def _read(file):
    series = {name: dataset[:] for name, dataset in file["series"].items() if name != "time_ps"}
    return Results(
        preset=preset_from_dict(json.loads(file["spec"].asstr()[()])),
        trace_fingerprint=str(file.attrs["trace_fingerprint"]),
        options=json.loads(file["options"].asstr()[()]),
        kernels=[_read_kernel(file[_kernel_path(number)]) for number in range(int(file.attrs["kernels"]))],
        interval_ps=int(file.attrs["interval_ps"]),
        series=series,
        writer=str(file.attrs["writer"]),
    )


def _read_kernel(group):
    return KernelResult(
        name=str(group.attrs["name"]),
        start_ps=int(group.attrs["start_ps"]),
        end_ps=int(group.attrs["end_ps"]),
        units={unit: dataset[:] for unit, dataset in group["units"].items()},
        totals=json.loads(group["totals"].asstr()[()]),
    )
