"""Errors that a user can cause, and what a user should know. Each is one line on stderr; an error has exit status 2."""

import os
import re
import traceback
import warnings
from pathlib import Path

REASON_CHARACTERS = 500
"""Length at which the text of an error is cut."""
OUTSIDE = "index is out of bounds"
"""What numba says of an index, without a line of the file."""
OWN_FOLDER = f"{Path(__file__).resolve().parents[1]}{os.sep}"
"""Of t3sim, or of all libraries beside it."""


class UserError(Exception):
    """A mistake in the input. The message names the file and line or field, what was found and what is allowed."""


class Notice(RuntimeWarning):
    """What a user should know, though the run goes on: a store that cannot be written, a folder that is not used."""


_format_of_python = warnings.formatwarning


def _one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """The text of a warning on stderr. The line of code that gave a Notice helps no user, so it is left out."""
    if issubclass(category, Notice):
        return f"t3sim: {' '.join(str(message).split())}\n"
    return _format_of_python(message, category, filename, lineno, line)


warnings.formatwarning = _one_line
"""Here, because workers of a study give notices, too, and import this file but no command."""


def error_in_file(
    path: str | Path, name: str, error: BaseException, doing: str = "", compiled: bool = False
) -> UserError:
    """What a Python file of the user raised, as a mistake in that file.

    Args:
        path: of the file.
        name: of the file in the message.
        error: what it raised; also SystemExit and KeyboardInterrupt.
        doing: what failed, e.g. the name of its function. compiled: as `line_in_file`.
    """
    line = line_in_file(path, error, compiled)
    place = f"{name}:{line}" if line else name
    text = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
    return UserError(": ".join(filter(None, (place, doing, text))))


def line_in_file(path: str | Path, error: BaseException, compiled: bool = False) -> int:
    """Number of the line of a file at which an error was raised; 0 if it was raised elsewhere.

    compiled: numba has compiled the file. What it compiled for a copy in another folder has the path of that copy.
    """
    path = os.path.abspath(path)
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno or 0
    raised = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [line for file, line in raised if file == path]
    others = [(file, line) for file, line in raised if compiled and not file.startswith(OWN_FOLDER)]
    copies = [line for file, line in others if os.path.basename(file) == os.path.basename(path)]
    return (own or copies or [0])[-1]


def error_of_policy(path: str, error: BaseException) -> UserError | None:
    """What stopped a run with a user's policy, as a mistake in that file; None if it came from elsewhere.

    Args:
        path: of the file, which numba compiles; "" = the run has none.
        error: what was raised.
    """
    if line_in_file(path, error, compiled=True):
        return error_in_file(path, path, error, compiled=True)
    if path and isinstance(error, IndexError) and str(error) == OUTSIDE:
        return UserError(f"{path}: pick(channel, now_ps): an index is outside its array, or below 0")
    if not path or not _raised_in_compiler(error):
        return None
    if isinstance(error, KeyError):
        return UserError(f"{path}: cannot be compiled: no field {error}; docs/policies.md lists those of channel")
    line = re.search(rf'File "[^"]*{re.escape(os.path.basename(path))}", line (\d+)', str(error))
    place = f"{path}:{line[1]}" if line else path
    return UserError(f"{place}: cannot be compiled: {type(error).__name__}: {_compilers_reason(str(error))}")


def _compilers_reason(text: str) -> str:
    """The reason in a message of numba, without the stages that failed before it and the candidates behind it."""
    text = re.sub(r"Failed in nopython mode pipeline \(step: [^)]*\)", "", text)
    reason = re.split(r'There are \d+ candidate|File "|During: ', text)[0] or text
    return " ".join(reason.split())[:REASON_CHARACTERS]


def _raised_in_compiler(error: BaseException) -> bool:
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__", "").startswith("numba.core.") for frame, _ in frames)
