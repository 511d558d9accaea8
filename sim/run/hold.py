"""Holds: keys whose results a running study needs. Pruning the store does not remove these results.

FOLDER/.hold.NUMBER.t3sim       one key per line; locked while the process that wrote it lives (`traces.output`)
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from traces.output import SUFFIX, left_over, locked_file

NAME = "hold"


@contextmanager
def holding(folder: Path, keys: Iterable[str]) -> Iterator[None]:
    """Context manager: hold keys while the block runs. The folder must exist.

    Raises:
        OSError: the folder cannot be written.
    """
    handle, path = locked_file(folder / NAME)
    try:
        with open(handle, "w") as file:
            file.write("\n".join(keys))
            file.flush()
            yield
    finally:
        path.unlink(missing_ok=True)


def held_keys(folder: Path) -> set[str]:
    """Keys that living studies hold now."""
    held: set[str] = set()
    for path in folder.glob(f".{NAME}.*{SUFFIX}"):
        with left_over(path) as left, suppress(OSError):  # or its study has just ended
            held |= set() if left else set(path.read_text().split())
    return held
