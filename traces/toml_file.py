"""Read TOML files, also those of a user."""

import tomllib
from pathlib import Path
from typing import Any

from traces.errors import UserError


def read_toml(path: Path, error: type[UserError] = UserError) -> dict[str, Any]:
    """The content of a TOML file in UTF-8. A byte-order mark, as editors of Windows write it, is skipped.

    Args:
        error: what is raised.

    Raises:
        UserError: it is not TOML, or not UTF-8.
    """
    return toml_of(path, path.read_bytes(), error)


def toml_of(path: Path, content: bytes, error: type[UserError] = UserError) -> dict[str, Any]:
    """As `read_toml`, of bytes that were read before. path: for the message.

    Raises:
        UserError: they are not TOML, or not UTF-8.
    """
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise error(f"{path}: not a TOML file: {problem}") from None
