"""The store of finished runs: it keeps the result of each run under the key of the run.

    FOLDER/KEY.h5           a results archive of one run (`sim.results.archive`), its `study` is the key
    FOLDER/KEY.npz          the checkpoint of a run in progress (`sim.host.checkpoint`)

FOLDER is $T3SIM_STORE, or `t3sim/store` in the user's cache folder. It can be deleted at any time. Files are written
under a temporary name and then renamed, so many processes can read and write at the same time. Two processes that
simulate the same run write the same bytes. An entry is removed, and its run simulated again, if it is damaged or if its
name is not its key. A folder that belongs to another user, or that others can write, is not used. If all files together
exceed $T3SIM_STORE_BYTES, the least recently used ones are removed; the time of use is the mtime of the file.
"""

import os
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from sim.host.checkpoint import Checkpoint
from sim.host.gpu import Progress
from sim.host.state import SavePoints
from sim.presets.check import check_machine
from sim.results.archive import open as open_results
from sim.results.archive import write_runs
from sim.run.hold import held_keys
from sim.run.result import ResultsError, RunResult
from sim.run.run import Run
from tracer.compile.folder import user_cache
from traces.errors import Notice, UserError
from traces.output import remove_leftovers
from traces.ownership import OWN_FOLDER, foreign
from traces.variable import number_in

VARIABLE, BYTES_VARIABLE = "T3SIM_STORE", "T3SIM_STORE_BYTES"
DEFAULT_BYTES = 2 << 30
RESULT, STATE = ".h5", ".npz"
KEY = re.compile("[0-9a-f]{64}")
"""Names of entries without ending. Other files of the folder are not touched."""


class Entry(NamedTuple):
    """A file of the store.

    Attributes:
        path: of the file.
        size_bytes: of the file.
        used_s: time of the last use, seconds since 1970.
    """

    path: Path
    size_bytes: int
    used_s: float

    @property
    def key(self) -> str:
        return self.path.stem

    @property
    def finished(self) -> bool:
        """Is it a result? Else it is the checkpoint of a run in progress."""
        return self.path.suffix == RESULT


class Store:
    """A folder of results.

    Attributes:
        folder: of the files; it need not exist.
        max_bytes: size limit of all files together.

    Raises:
        UserError: T3SIM_STORE_BYTES is not a whole number; the place of the folder is a file.
    """

    def __init__(self, folder: str | Path | None = None, max_bytes: int | None = None):
        """folder, max_bytes: None = the value of the environment variable, or the default."""
        chosen = folder or os.environ.get(VARIABLE)
        self.folder = Path(chosen).absolute() if chosen else user_cache() / "store"
        if self.folder.exists() and not self.folder.is_dir():
            raise UserError(f"{self.folder}: is no folder; the store needs one ({VARIABLE})")
        self.max_bytes = _bytes_wanted() if max_bytes is None else max_bytes

    def get(self, key: str) -> RunResult | None:
        """The result of a key, None if there is none. A damaged file is removed.

        Raises:
            MemoryError: too little memory to read it.
        """
        path = self.path(key)
        try:
            self.check_own()
            archive = open_results(path)
            run = archive.run()
            if archive.study != key:
                raise ResultsError(f"{path}: found the run {archive.study}")
        except ResultsError:
            with suppress(OSError):
                path.unlink()
            return None
        except (UserError, OSError):  # a folder of others, or a problem of this computer
            return None
        with suppress(OSError):
            os.utime(path)
        return run

    def check_own(self) -> None:
        """Refuse a folder in which other users may have put files.

        Raises:
            UserError: it belongs to another user, or others can write it.
        """
        if self.folder.is_dir() and (reason := foreign(self.folder.stat(), "results", self.folder)):
            raise UserError(reason)

    def make(self) -> None:
        """Make the folder, if it does not exist.

        Raises:
            UserError: it cannot be made, or it is refused.
        """
        try:
            self.folder.mkdir(OWN_FOLDER, parents=True, exist_ok=True)
        except OSError as problem:
            raise UserError(f"{self.folder}: cannot write: {problem.strerror}") from None
        self.check_own()

    def put(self, key: str, result: RunResult) -> None:
        """Store a result. If the folder cannot be written, warn once and continue."""
        try:
            self.write(key, result)
        except UserError as problem:
            _warn_once(f"results cannot be kept in {self.folder}: {problem}")

    def write(self, key: str, result: RunResult) -> None:
        """Store a result.

        Raises:
            UserError: the folder cannot be written, or is refused.
        """
        self.make()
        write_runs(self.path(key), [result], key)
        self.prune(self.max_bytes)

    def checkpoint(self, key: str, every_s: float) -> Checkpoint | None:
        """The checkpoint of a run in progress. If the folder cannot be written, warn once and return None."""
        try:
            self.make()
            return Checkpoint(self.path(key, STATE), key, every_s)
        except UserError as problem:
            _warn_once(f"checkpoints cannot be kept in {self.folder}: {problem}")
            return None

    def path(self, key: str, suffix: str = RESULT) -> Path:
        """File of a key."""
        return self.folder / f"{key}{suffix}"

    def entries(self) -> list[Entry]:
        """All files, the most recently used first.

        Raises:
            UserError: the folder is refused.
        """
        self.check_own()
        entries = []
        for path in self.folder.glob("*") if self.folder.is_dir() else ():
            if path.suffix in (RESULT, STATE) and KEY.fullmatch(path.stem):
                with suppress(OSError):  # another process has removed it
                    about = path.stat()
                    entries.append(Entry(path, about.st_size, about.st_mtime))
        return sorted(entries, key=lambda entry: (-entry.used_s, entry.path.name))

    def check(self) -> list[Path]:
        """Read every result; remove those that are damaged or not of their key, and return their paths."""
        bad = []
        for entry in self.entries():
            used = entry.path.stat() if entry.path.exists() else None
            if used is not None and entry.finished and self.get(entry.key) is None:
                bad.append(entry.path)
            elif used is not None and entry.finished:
                with suppress(OSError):
                    os.utime(entry.path, ns=(used.st_atime_ns, used.st_mtime_ns))  # the check does not count as a use
        return bad

    def prune(self, max_bytes: int) -> list[Path]:
        """Remove the least recently used files until the rest has at most `max_bytes`; return the removed paths.

        Entries that a running study needs are not removed (`sim.run.hold`).
        """
        entries = self.entries()
        remove_leftovers(self.folder)
        if sum(entry.size_bytes for entry in entries) <= max_bytes:
            return []
        removed, kept_bytes, held = [], 0, held_keys(self.folder)
        for entry in entries:
            kept_bytes += entry.size_bytes
            if kept_bytes > max_bytes and entry.key not in held:
                with suppress(OSError):
                    entry.path.unlink()
                removed.append(entry.path)
        return removed


class RunOutcome(NamedTuple):
    """A result, and whether it was in the store."""

    result: RunResult
    from_store: bool


def run_or_get(
    run: Run,
    store: Store | None,
    *,
    fresh: bool = False,
    progress: Progress | None = None,
    checkpoint_every_s: float | None = None,
    resuming: Callable[[Run], None] | None = None,
) -> RunOutcome:
    """The result of a run: from the store, or simulated and then stored.

    Args:
        run: what to simulate.
        store: None = simulate and store nothing.
        fresh: always simulate; the new result replaces the stored one.
        progress: called with (kernel, workgroups done, workgroups).
        checkpoint_every_s: save the state of the run in the store once in this time, and continue from a saved state if
            there is one; None = no checkpoints. The result is the same to the last bit.
        resuming: called before a run that continues from a saved state.

    Raises:
        UserError: as `Run.execute`.
    """
    check_machine(run.preset.machine)  # also of units that this run does not use
    if store is None:
        return RunOutcome(run.execute(progress), False)
    kept = None if fresh else store.get(run.key)
    if kept is not None:
        if checkpoint_every_s is not None:  # a process can have been killed after its result was stored
            with suppress(OSError):
                store.path(run.key, STATE).unlink()
        return RunOutcome(run.signed(kept), True)
    checkpoint = None if checkpoint_every_s is None else store.checkpoint(run.key, checkpoint_every_s)
    save_points = _save_points(checkpoint, fresh)
    if save_points and save_points.state and resuming:
        resuming(run)
    result = run.execute(progress, save_points)
    store.put(run.key, result)
    if checkpoint:
        checkpoint.remove()
    return RunOutcome(result, False)


def _save_points(checkpoint: Checkpoint | None, fresh: bool) -> SavePoints | None:
    if checkpoint is None:
        return None
    if fresh:
        checkpoint.remove()
    return checkpoint.save_points()


def _bytes_wanted() -> int:
    wanted = number_in(BYTES_VARIABLE, 0, sys.maxsize)
    return DEFAULT_BYTES if wanted is None else wanted


@lru_cache(maxsize=1)
def _warn_once(message: str) -> None:
    warnings.warn(message, Notice, stacklevel=3)
