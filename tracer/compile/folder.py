"""The user's folder for files that make the next start faster: compiled functions, and what sources say."""

import os
import sys
from pathlib import Path

from traces.ownership import foreign

CACHE_VARIABLE = "T3SIM_CACHE_DIR"


def cache_root():
    """Folder of all compiled functions (Path). It may not exist yet."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder).absolute() if folder else user_cache()


def user_cache():
    """The user's cache folder of t3sim (Path). It may not exist yet."""
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "t3sim"


def foreign_file(status):
    """Reason why an entry of the cache, or a folder of it, may be of another user; "" if it cannot."""
    return foreign(status, "compiled functions", cache_root())


def refused(directory):
    """Reason why entries of a directory in the cache must not be used; "" if they may.

    Raises:
        OSError: the directory does not exist.
    """
    return next((reason for folder in (cache_root(), directory) if (reason := foreign_file(os.stat(folder)))), "")
