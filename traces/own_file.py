"""A Python file of the user that is run as a module: an arbiter, a plan."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def running(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context manager for the run of the file at `path`. It can import modules of its folder.

    The folder is searched last. What the file prints goes to standard error: standard output is the answer of the
    command, for example JSON.
    """
    folder = os.path.dirname(os.path.abspath(path))
    found = folder in sys.path
    if not found:
        sys.path.append(folder)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if not found:
            sys.path.remove(folder)
