"""Holds: keys whose results a running study needs. Pruning the store does not remove these results.

    FOLDER/hold-*.keys      one key per line; locked while the process that wrote it lives

If files cannot be locked, a hold is valid for HOLD_S.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PATTERN = "hold-*.keys"
HOLD_S = 3600.0
"""Age in seconds after which an unlocked hold is no longer valid."""


@contextmanager
def holding(folder: Path, keys: Iterable[str]) -> Iterator[None]:
    """Context manager: hold keys while the block runs.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    prefix, suffix = PATTERN.split("*")
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=prefix, suffix=suffix) as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        file.write("\n".join(keys))
        file.flush()
        yield


def held_keys(folder: Path) -> set[str]:
    """Keys that studies hold now. Removes holds that are no longer valid."""
    held: set[str] = set()
    for path in folder.glob(PATTERN):
        with suppress(OSError), path.open() as file:
            if time() < path.stat().st_mtime + HOLD_S or _locked(file):
                held |= set(file.read().split())
            else:
                path.unlink()
    return held


def _locked(file) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False
