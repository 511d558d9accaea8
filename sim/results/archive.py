"""The results archive: what runs found, as an HDF5 file that opens in h5py, pandas and xarray.

    /                       attributes: file_type, format_version, writer, runs, study, checksum
    /registry               text: unit -> counter -> meaning (JSON, `sim.counters.COUNTERS`)
    /runs/00000, ...        one run, or one point of a sweep that failed: `sim.results.layout`

The same input gives the same bytes: wall time, memory, dates and paths are not in it. The file is written under a
temporary name and renamed when it is whole; every run and the file as a whole have a checksum that is compared when
they are read. Versions:

    1   one run, its group is the root of the file; no checksums. Read and, by `t3sim merge`, written as version 2.
    2   any number of runs.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py

from sim.counters import COUNTERS
from sim.results.evaluations import EVALUATION_TYPE, EVALUATION_VERSION, read_evaluation
from sim.results.frames import (
    instances_frame,
    intervals_frame,
    kernels_frame,
    runs_dataset,
    runs_frame,
    with_results,
)
from sim.results.layout import read_run, run_digest, write_run
from sim.results.run import Failure, Results, ResultsError
from traces.errors import UserError
from traces.hdf5_file import open_hdf5
from traces.version import VERSION
from traces.write import new_file, replacing

if TYPE_CHECKING:
    import pandas
    import xarray

FILE_TYPE = "t3sim-results"
FORMAT_VERSION = 2
WRITER = f"t3sim {VERSION}"
RUN = "runs/{:05d}"


@dataclass
class ResultsArchive:
    """What an archive holds.

    Attributes:
        runs: in their order; a Failure where a point of a sweep has no results.
        study: SHA-256 of the study that made it, "" where none did.
        path: of the file.
    """

    runs: list[Results | Failure] = field(default_factory=list)
    study: str = ""
    path: str = ""

    def run(self, number: int | None = None) -> Results:
        """A run by its number, counted from 0; without one, the only run of the archive.

        Raises:
            ResultsError: several runs, no such run, or a point that failed.
        """
        if number is None and len(self.runs) != 1:
            raise ResultsError(f"{self.path}: found {len(self.runs)} runs: choose one by its number")
        number = number or 0
        if not 0 <= number < len(self.runs):
            raise ResultsError(f"{self.path}: run: found {number}, allowed are 0 to {len(self.runs) - 1}")
        chosen = self.runs[number]
        if isinstance(chosen, Failure):
            raise ResultsError(f"{self.path}: run {number} has failed: {chosen.reason}")
        return chosen

    def results(self) -> list[tuple[int, Results]]:
        """(number, run) of those that have results."""
        return with_results(self.runs)

    def failures(self) -> list[tuple[int, Failure]]:
        """(number, failure) of those that have none."""
        return [(number, run) for number, run in enumerate(self.runs) if isinstance(run, Failure)]

    def runs_frame(self) -> "pandas.DataFrame":
        """One row per run, index `run`: its point, `failure`, preset, headline figures, ratios, figures of a study."""
        return runs_frame(self.runs)

    def kernels_frame(self) -> "pandas.DataFrame":
        """One row per run and kernel: point, name, start_ps, end_ps, and every counter over the unit's instances."""
        return kernels_frame(self.runs)

    def instances_frame(self, unit: str) -> "pandas.DataFrame":
        """One row per run, kernel and instance of a unit (`sim.counters.COUNTERS`): point and raw counters.

        Raises:
            ResultsError: no run has such a unit.
        """
        return instances_frame(self.runs, unit)

    def intervals_frame(self) -> "pandas.DataFrame":
        """One row per run and interval of its time series, index (run, time_ps = end of the interval).

        Raises:
            ResultsError: no run has a time series.
        """
        return intervals_frame(self.runs)

    def dataset(self) -> "xarray.Dataset":
        """The numbers of `runs_frame` with every counter's total as an xarray dataset; the swept fields are its
        dimensions where the runs fill their grid. A point that failed is NaN."""
        return runs_dataset(self.runs, self.study)


def write_results(path: str | Path, results: Results | Failure) -> None:
    """Write an archive of one run (replaced if it exists).

    Raises:
        UserError: folder missing or not writable, disk full. Nothing is left behind.
    """
    write_runs(path, [results])


def write_runs(path: str | Path, runs: Iterable[Results | Failure], study: str = "") -> None:
    """Write an archive of several runs (replaced if it exists); they are taken one at a time.

    Raises:
        UserError: folder missing or not writable, disk full. Nothing is left behind.
    """
    with replacing(Path(path)) as temporary, new_file(temporary) as (file, sink):
        checksums = []
        for number, run in enumerate(runs):
            write_run(file.create_group(RUN.format(number)), run)
            checksums.append(run_digest(run))
            sink.check()
        file["registry"] = json.dumps(COUNTERS, indent=1)
        file.attrs["file_type"] = FILE_TYPE
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["writer"] = WRITER
        file.attrs["runs"] = len(checksums)
        file.attrs["study"] = study
        file.attrs["checksum"] = _archive_digest(study, checksums)


def _archive_digest(study: str, checksums: list[str]) -> str:
    return hashlib.sha256("\n".join([study, *checksums]).encode()).hexdigest()


def open(path: str | Path) -> ResultsArchive:
    """Read an archive whole: of `t3sim run`, `t3sim sweep`, `t3sim merge` or `t3sim t3` (`sim.results.evaluations`).

    Raises:
        ResultsError: no such file, no archive of results, of a newer version, truncated or damaged.
    """
    with _reading(path) as file:
        file_type = file.attrs.get("file_type")
        if file_type == EVALUATION_TYPE:
            _checked_version(path, file.attrs, EVALUATION_VERSION)
            return ResultsArchive(list(read_evaluation(file)), path=str(path))
        if file_type != FILE_TYPE:
            raise ResultsError(
                f"{path}: not a results archive: file_type is {file_type!r}, allowed are {FILE_TYPE!r} and "
                f"{EVALUATION_TYPE!r}"
            )
        return _results_archive(path, file)


def _results_archive(path: str | Path, file: h5py.File) -> ResultsArchive:
    if _checked_version(path, file.attrs, FORMAT_VERSION) == 1:
        return ResultsArchive([read_run(file, str(file.attrs["writer"]))], path=str(path))
    groups = [file[RUN.format(number)] for number in range(int(file.attrs["runs"]))]
    runs = [read_run(group) for group in groups]
    study = str(file.attrs["study"])
    if file.attrs["checksum"] != _archive_digest(study, [str(group.attrs["checksum"]) for group in groups]):
        raise ValueError("the checksum is not that of the runs")
    return ResultsArchive(runs, study, str(path))


@contextmanager
def _reading(path: str | Path) -> Iterator[h5py.File]:
    """The open file; what goes wrong with it is a ResultsError."""
    if not Path(path).is_file():
        raise ResultsError(f"{path}: {'is a folder' if Path(path).is_dir() else 'no such file'}")
    try:
        with open_hdf5(path) as file:
            yield file
    except ResultsError:
        raise
    except UserError as mistake:  # a machine that is none, or not of this version
        raise ResultsError(f"{path}: {mistake}") from None
    except Exception as problem:  # h5py raises whatever its layers meet in a damaged file
        text = " ".join(str(problem).split())
        raise ResultsError(f"{path}: damaged, truncated, or not an HDF5 file ({text})") from None


def _checked_version(path: str | Path, attributes: Any, newest: int) -> int:
    version = int(attributes["format_version"])
    if not 1 <= version <= newest:
        raise ResultsError(f"{path}: format_version is {version}, allowed is 1 to {newest}")
    return version
