"""Keys of the store that a running study needs; whoever prunes the store leaves them there.

    FOLDER/hold-*.keys      one key a line; locked as long as the process that wrote it lives

Where files cannot be locked, a hold counts for as long as HOLD_S.
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
"""Age from which a hold that nobody has locked counts no more."""


@contextmanager
def holding(folder: Path, keys: Iterable[str]) -> Iterator[None]:
    """Hold keys as long as the block lasts.

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
    """What studies hold now; a hold whose process was killed is removed."""
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
