"""The results archive: results of runs in an HDF5 file that opens in h5py, pandas and xarray.

    /                       attributes: file_type, format_version, writer, runs, study, checksum
    /registry               text: unit -> counter -> meaning (JSON, `sim.counters.COUNTERS`)
    /runs/00000, ...        one run, or one point of a study that failed: `sim.results.layout`

The same input gives the same bytes: wall time, memory, dates and paths are not in the file. The file is written under
a temporary name and renamed when it is complete. Every run and the whole file have a checksum, which is checked when
the file is read. Versions:

    1   one run, its group is the root of the file; no checksums.
    2   any number of runs.
    3   input, ledger, timeline, link traffic and hash of the code of each run; the runs of a scenario.

Versions 1 and 2 can be read; `t3sim merge` writes them as version 3. Before version 3 the archives of `t3sim t3` had
their own file type ("t3sim-evaluation"), which is refused.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py

from sim.counters import COUNTERS
from sim.results.frames import Frames
from sim.results.layout import FORMAT_VERSION, read_run, run_digest, write_run
from sim.run.result import Failure, ResultsError, RunResult
from traces.errors import UserError
from traces.hdf5_file import open_hdf5
from traces.version import VERSION
from traces.write import new_file, replacing

FILE_TYPE = "t3sim-results"
FORMER_TYPE = "t3sim-evaluation"
WRITER = f"t3sim {VERSION}"
RUN = "runs/{:05d}"


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
        number = number or 0
        if not 0 <= number < len(self.runs):
            raise ResultsError(f"{self.path}: run: found {number}, allowed are 0 to {len(self.runs) - 1}")
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
    """Read a whole archive.

    Raises:
        ResultsError: the file does not exist, is not a results archive, has a newer version, is truncated or damaged.
    """
    with _reading(path) as file:
        file_type = file.attrs.get("file_type")
        if file_type == FORMER_TYPE:
            raise ResultsError(
                f"{path}: file_type is {FORMER_TYPE!r}, of an older t3sim, allowed is {FILE_TYPE!r}: run t3sim t3 again"
            )
        if file_type != FILE_TYPE:
            raise ResultsError(f"{path}: not a results archive: file_type is {file_type!r}, allowed is {FILE_TYPE!r}")
        version = int(file.attrs["format_version"])
        if not 1 <= version <= FORMAT_VERSION:
            raise ResultsError(f"{path}: format_version is {version}, allowed is 1 to {FORMAT_VERSION}")
        return _results_archive(path, file, version)


def _results_archive(path: str | Path, file: h5py.File, version: int) -> ResultsArchive:
    if version == 1:
        return ResultsArchive([read_run(file, version, str(file.attrs["writer"]))], path=str(path))
    groups = [file[RUN.format(number)] for number in range(int(file.attrs["runs"]))]
    runs = [read_run(group, version) for group in groups]
    study = str(file.attrs["study"])
    if file.attrs["checksum"] != _archive_digest(study, [str(group.attrs["checksum"]) for group in groups]):
        raise ValueError("the checksum does not fit the runs")
    return ResultsArchive(runs, study, str(path))


@contextmanager
def _reading(path: str | Path) -> Iterator[h5py.File]:
    """Open the file; convert errors while it is read to ResultsError."""
    if not Path(path).is_file():
        raise ResultsError(f"{path}: {'is a folder' if Path(path).is_dir() else 'no such file'}")
    try:
        with open_hdf5(path) as file:
            yield file
    except ResultsError:
        raise
    except UserError as mistake:  # the machine is damaged, or of another version
        raise ResultsError(f"{path}: {mistake}") from None
    except Exception as problem:  # for a damaged file h5py raises exceptions of many types
        text = " ".join(str(problem).split())
        raise ResultsError(f"{path}: damaged, truncated, or not an HDF5 file ({text})") from None
