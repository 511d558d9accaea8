"""Errors that a user can cause. The command line prints each on one line and exits with status 2."""

import os
import traceback
from pathlib import Path


class UserError(Exception):
    """A mistake in the input. The message names the file and line or field, what was found and what is allowed."""


def error_in_file(path: str | Path, name: str, error: BaseException, doing: str = "") -> UserError:
    """What a Python file of the user raised, as a mistake in that file.

    Args:
        path: of the file.
        name: of the file in the message.
        error: what it raised; also SystemExit and KeyboardInterrupt.
        doing: what failed, e.g. the name of its function.
    """
    line = line_in_file(path, error)
    place = f"{name}:{line}" if line else name
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    return UserError(": ".join(filter(None, (place, doing, text))))


def line_in_file(path: str | Path, error: BaseException) -> int:
    """Number of the line of a file at which an error was raised; 0 if it was raised elsewhere."""
    path = os.path.abspath(path)
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno or 0
    frames = traceback.walk_tb(error.__traceback__)
    return next((line for frame, line in reversed([*frames]) if frame.f_code.co_filename == path), 0)
