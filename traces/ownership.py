"""Does a folder or file belong to this user alone? Content that others may have put there is not used."""

import os
import stat

OWN_FOLDER = 0o700
"""Mode of a new folder for files that only this user writes."""
OWN_FILE = 0o600
"""Mode of a file that only this user reads and writes."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def foreign(status: os.stat_result, content: str, folder: str | os.PathLike[str]) -> str:
    """Why a folder or a file in it may have content of another user; "" if it cannot. Not checked on Windows.

    Files of root are trusted, because root can change everything else too.

    Args:
        status: of the folder or file.
        content: name of what is in the folder, in the plural.
        folder: the folder.
    """
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in (os.geteuid(), 0):
        return f"{content} in {folder} are not used: some of it belongs to user {status.st_uid}, not to you"
    if status.st_mode & OTHERS_WRITE:
        return f"{content} in {folder} are not used: others may write there; chmod -R go-w {folder}"
    return ""
