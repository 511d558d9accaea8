"""The results archive: results of runs in an HDF5 file that opens in h5py, pandas and xarray.

    /                       attributes: file_type, format_version, writer, runs, study
    /registry               text: unit -> counter -> meaning (JSON, `sim.counters.COUNTERS`)
    /runs/00000, ...        one run, or one point of a study that failed: `sim.results.layout`

The same input gives the same bytes: wall time, memory, dates and paths are not in the file. The file is written under
a temporary name and renamed when it is complete. Its seal (`traces.seal`) is checked when the file is read. Versions:

    1   one run, its group is the root of the file; no checksums.
    2   any number of runs.
    3   input, ledger, timeline, link traffic and hash of the code of each run; the runs of a scenario.
    4   a seal. Versions 2 and 3 have checksums of each run and of all runs.

Older versions can be read; `t3sim merge` writes them as version 4. Before version 3 the archives of `t3sim t3` had
their own file type ("t3sim-evaluation"), which is refused.
"""

import errno
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py

from sim.counters import COUNTERS
from sim.results.check import check_text
from sim.results.frames import Frames
from sim.results.layout import FORMAT_VERSION, SEALED_FROM, read_run, write_run
from sim.run.result import WRITER, Failure, ResultsError, RunResult
from traces.errors import UserError
from traces.hdf5_file import known_version, open_hdf5
from traces.output import replacing
from traces.write import new_file

FILE_TYPE = "t3sim-results"
FORMER_TYPE = "t3sim-evaluation"
RUN = "runs/{:05d}"
OF_THE_MACHINE = (errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPERM)
"""Errors that say nothing about the content of a file."""


@dataclass
class ResultsArchive(Frames):
    """The content of an archive, and its tables.

    Attributes:
        path: of the file.
    """

    path: str = ""

    def run(self, number: int | None = None) -> RunResult:
        """A run by its number, counted from 0. Without a number: the only run of the archive.

        Raises:
            ResultsError: several runs, no such run, or a point that failed.
        """
        if number is None and len(self.runs) != 1:
            raise ResultsError(f"{self.path}: found {len(self.runs)} runs: choose one by its number")
        number = 0 if number is None else number
        if number not in range(len(self.runs)):
            raise ResultsError(f"{self.path}: run: found {number!r}, allowed are 0 to {len(self.runs) - 1}")
        chosen = self.runs[number]
        if isinstance(chosen, Failure):
            raise ResultsError(f"{self.path}: run {number} has failed: {chosen.reason}")
        return chosen

    def failures(self) -> list[tuple[int, Failure]]:
        """(number, failure) of each point that failed."""
        return [(number, run) for number, run in enumerate(self.runs) if isinstance(run, Failure)]


def write_results(path: str | Path, result: RunResult | Failure) -> None:
    """Write an archive of one run (replaced if it exists).

    Raises:
        UserError: folder missing or not writable, disk full. Nothing is left behind.
    """
    write_runs(path, [result])


def write_runs(path: str | Path, runs: Iterable[RunResult | Failure], study: str = "") -> None:
    """Write an archive of several runs (replaced if it exists). The runs are taken from `runs` one at a time.

    Raises:
        UserError: folder missing or not writable, disk full. Nothing is left behind.
    """
    with replacing(Path(path)) as temporary, new_file(temporary) as (file, sink):
        count = 0
        for run in runs:
            write_run(file.create_group(RUN.format(count)), run)
            count += 1
            sink.check()
        file["registry"] = json.dumps(COUNTERS, indent=1)
        file.attrs["file_type"] = FILE_TYPE
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["writer"] = WRITER
        file.attrs["runs"] = count
        file.attrs["study"] = study


def open(path: str | Path) -> ResultsArchive:
    """Read a whole archive.

    Raises:
        ResultsError: the file does not exist, is not a results archive, has a newer version, is truncated or damaged.
        MemoryError, OSError: a problem of this computer, not of the file.
    """
    with _reading(path) as file:
        file_type = file.attrs.get("file_type")
        if file_type == FORMER_TYPE:
            raise ResultsError(
                f"{path}: file_type is {FORMER_TYPE!r}, of an older t3sim, allowed is {FILE_TYPE!r}: run t3sim t3 again"
            )
        if file_type != FILE_TYPE:
            found = file_type.decode(errors="replace") if isinstance(file_type, bytes) else file_type
            raise ResultsError(f"{path}: not a results archive: file_type is {found!r}, allowed is {FILE_TYPE!r}")
        return _results_archive(path, file, known_version(file, path, FORMAT_VERSION, SEALED_FROM))


def _results_archive(path: str | Path, file: h5py.File, version: int) -> ResultsArchive:
    if version == 1:
        return ResultsArchive([read_run(file, version, str(file.attrs["writer"]))], path=str(path))
    groups = [file[RUN.format(number)] for number in range(int(file.attrs["runs"]))]
    runs = [read_run(group, version) for group in groups]
    study = str(file.attrs["study"])
    check_text(study, "study")
    if version < SEALED_FROM:
        _check_checksums(file, study, groups)
    return ResultsArchive(runs, study, str(path))


def _check_checksums(file: h5py.File, study: str, groups: list[h5py.Group]) -> None:
    """Compare the checksum of all runs, of versions 2 and 3."""
    checksums = [str(group.attrs["checksum"]) for group in groups]
    if file.attrs["checksum"] != hashlib.sha256("\n".join([study, *checksums]).encode()).hexdigest():
        raise ValueError("the checksum does not fit the runs")


@contextmanager
def _reading(path: str | Path) -> Iterator[h5py.File]:
    """Open the file; convert errors while it is read to ResultsError."""
    if not Path(path).is_file():
        raise ResultsError(f"{path}: {'is a folder' if Path(path).is_dir() else 'no such file'}")
    try:
        with open_hdf5(path) as file:
            yield file
    except MemoryError:
        raise
    except UserError as mistake:  # a value is impossible, or the machine of another version
        place = "" if str(mistake).startswith(f"{path}:") else f"{path}: "
        raise ResultsError(f"{place}{mistake}") from None
    except Exception as problem:  # for a damaged file h5py raises exceptions of many types
        if isinstance(problem, OSError) and problem.errno in OF_THE_MACHINE:
            raise
        text = " ".join(str(problem).split())
        raise ResultsError(f"{path}: damaged, truncated, or not an HDF5 file ({text})") from None
