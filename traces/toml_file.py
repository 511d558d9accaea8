"""Read TOML files, also those of a user."""

import sys
import tomllib
from pathlib import Path
from typing import Any

from traces.errors import UserError


def read_toml(path: Path, error: type[UserError] = UserError) -> dict[str, Any]:
    """The content of a TOML file in UTF-8. A byte-order mark, as editors of Windows write it, is skipped.

    Args:
        error: what is raised.

    Raises:
        UserError: it is not TOML, or not UTF-8; a value as in `toml_of_text`.
    """
    return toml_of(path, path.read_bytes(), error)


def toml_of(path: Path, content: bytes, error: type[UserError]) -> dict[str, Any]:
    """As `read_toml`, of bytes that were read before. path: for the message.

    Raises:
        UserError: they are not TOML, or not UTF-8; a value as in `toml_of_text`.
    """
    try:
        return toml_of_text(content.decode("utf-8-sig"), str(path), error)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise error(f"{path}: not a TOML file: {problem}") from None


def toml_of_text(text: str, where: str, error: type[UserError]) -> dict[str, Any]:
    """The content of a text in TOML.

    Args:
        where: for the message.

    Raises:
        TOMLDecodeError: it is not TOML.
        UserError: an integer or a depth that Python refuses to read or to print.
    """
    try:
        content = tomllib.loads(text)
        repr(content)  # a hexadecimal integer can be read, but no message can show it
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        digits = sys.get_int_max_str_digits()
        raise error(f"{where}: found an integer of more than {digits} digits, allowed are those of 64 bits") from None
    except RecursionError:
        raise error(f"{where}: found values nested too deep, allowed are a few levels") from None
    return content
