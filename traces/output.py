"""Write a file so that readers see all of it or nothing, and remove what killed processes left.

A file is written under a temporary name in its folder (`.NAME.NUMBER.t3sim`) and then renamed. A process locks its
temporary files and folders while it lives. The next process that writes into the same folder removes those that nobody
locks. On Windows, which has no such locks, they are removed when they are LEFTOVER_S old.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import time
from typing import Any

from traces.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".t3sim"
TEMPORARY = f".*.*{SUFFIX}"
LOCK = "lock"
"""Name of the file that is locked in a scratch folder."""
SCRATCH = "t3sim-"
LEFTOVER_S = 3600.0
"""Age in seconds from which a file counts as left over, on a system without locks."""
UNTOUCHED = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags to open a file of unknown origin: no links are followed, a fifo does not block."""


def output_path(path: str | os.PathLike[str], *inputs: str | os.PathLike[str] | None) -> Path:
    """The path at which a file of that name will be written, with links followed.

    Args:
        path: the file to write or replace.
        inputs: files of the same command that must stay; None = not given.

    Raises:
        UserError: the folder does not exist or is not writable, the path is one of the inputs, or it exists and is no
            regular file (a folder, or a device: renaming a file onto /dev/null would remove the device).
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file():
        raise UserError(f"{path}: cannot write: {'is a folder' if place.is_dir() else 'no regular file'}")
    if any(place.exists() and os.path.exists(file) and place.samefile(file) for file in inputs if file is not None):
        raise UserError(f"{path}: cannot write: it is an input of this command")
    if not place.parent.is_dir():
        raise UserError(f"{path}: cannot write: no such folder")
    if not os.access(place.parent, os.W_OK | os.X_OK):
        raise UserError(f"{path}: cannot write: no permission to write in its folder")
    return place


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[Path]:
    """A temporary path in the same folder. It replaces `path` if the block succeeds and is removed if it fails.

    Args:
        path: the file to write or replace.
        mode: rights of a new file, before the user's umask.

    Raises:
        UserError: as `output_path`, or the file cannot be written, for example because the disk is full.
    """
    place = output_path(path)
    remove_leftovers(place.parent)
    temporary = None
    try:
        handle, temporary = locked_file(place, mode)
        with open(handle, "rb"):
            yield temporary
            os.replace(temporary, place)
            temporary = None  # another writer may have a file of this name now
    except OSError as error:
        raise UserError(f"{path}: cannot write: {error.strerror or error}") from error
    finally:
        if temporary:
            with suppress(OSError):
                temporary.unlink()


def locked_file(place: Path, mode: int = 0o666) -> tuple[int, Path]:
    """Handle and path of a new temporary file beside `place`. It is locked until the handle is closed."""
    for number in count(os.getpid()):
        temporary = place.with_name(f".{place.name}.{number}{SUFFIX}")
        with suppress(FileExistsError):
            handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
            _lock(handle)
            if os.fstat(handle).st_nlink:
                return handle, temporary
            os.close(handle)  # another process has removed it before it was locked
    raise AssertionError("no end")


def _lock(file: Any) -> None:
    """Lock a file as long as it stays open. The lock is shared, so it does not stop HDF5's readers."""
    if fcntl is not None:
        with suppress(OSError):  # a drive without locks
            fcntl.flock(file, fcntl.LOCK_SH)


@contextmanager
def left_over(path: Path) -> Iterator[bool]:
    """True if the file belongs to this user and no living process has locked it. In the block nobody can lock it."""
    try:
        file = open(os.open(path, UNTOUCHED), "rb")  # noqa: SIM115 - closed below
    except OSError:  # removed meanwhile, or a link
        yield False
        return
    with file:
        yield _is_left(path, file)


def _is_left(path: Path, file: Any) -> bool:
    status = os.fstat(file.fileno())
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        return False
    if fcntl is None:
        return time() > status.st_mtime + LEFTOVER_S
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(status, os.stat(path, follow_symlinks=False))  # else it was renamed meanwhile
    except OSError:  # locked, removed meanwhile, or a drive without locks
        return False


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes in a folder."""
    for path in folder.glob(TEMPORARY) if folder.is_dir() else ():
        with left_over(path) as left, suppress(OSError):
            if left:
                path.unlink()


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """A temporary folder, removed after the block. First removes those that killed processes left.

    Args:
        purpose: part of its name.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with left_over(left / LOCK) as unused:
            if unused and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix=f"{SCRATCH}{purpose}-", ignore_cleanup_errors=True) as name,
        open(Path(name) / LOCK, "wb") as file,
    ):
        _lock(file)
        yield Path(name)
