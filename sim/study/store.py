"""The finished points of a study, one archive each in a folder beside the archive that they end in.

A point's archive is written under a temporary name and renamed, so that whatever kills the sweep leaves whole points
only. The folder is locked while a sweep works in it, and goes when the archive is written.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sim import results
from sim.results import Failure, ResultsError, RunResult, write_runs
from traces.errors import UserError

try:
    import fcntl
except ImportError:  # Windows: two sweeps of one study do the work twice, with the same bytes
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"


class PointStore:
    """The folder of a study's finished points.

    Attributes:
        archive: where the results end.
        folder: of the points until then.
    """

    def __init__(self, archive: Path, points: int) -> None:
        self.archive = archive
        self.folder = archive.with_suffix(".points")
        self._points = points

    def path(self, number: int) -> Path:
        """Archive of one point."""
        return self.folder / f"{number:05d}.h5"

    def whole(self, study: str) -> bool:
        """Is the archive there, and is it that of this study?"""
        with suppress(ResultsError):
            return results.open(self.archive).study == study
        return False

    def finished(self) -> list[int]:
        """Numbers of the points that are done; damaged ones do not count."""
        return [number for number in range(self._points) if self._is_finished(number)]

    def _is_finished(self, number: int) -> bool:
        with suppress(ResultsError):
            return len(results.open(self.path(number)).runs) > 0
        return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, keep other sweeps out of it, and remove what a killed sweep was writing.

        Raises:
            UserError: another sweep is at work in it, or the folder cannot be made.
        """
        try:
            self.folder.mkdir(exist_ok=True)
            lock = open(self.folder / LOCK, "w")  # noqa: SIM115 - closed below, after the folder has gone
        except OSError as problem:
            raise UserError(f"{self.folder}: cannot write: {problem.strerror}") from None
        with lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise UserError(f"{self.folder}: another sweep of this study is at work") from None
            for leftover in self.folder.glob(".*.tmp"):
                with suppress(OSError):
                    os.unlink(leftover)
            yield

    def merge(self, study: str) -> int:
        """Write the archive from all points and remove their folder. Returns how many of them failed."""
        failed = 0

        def runs() -> Iterator[RunResult | Failure]:
            nonlocal failed
            for number in range(self._points):
                found = results.open(self.path(number))
                failed += len(found.failures())
                yield from found.runs

        write_runs(self.archive, runs(), study)
        self.clear()
        return failed

    def clear(self) -> None:
        """Remove the folder of the points, if there is one."""
        shutil.rmtree(self.folder, ignore_errors=True)
