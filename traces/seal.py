"""The seal of an archive: the SHA-256 of all its bytes, in a line after its end.

The seal covers data, attributes and the bookkeeping of the file format. So a reader notices any changed bit before it
uses a value. Readers of HDF5 and of zip files ignore what follows the end. A program that changes a sealed HDF5 file
cuts the seal off.
"""

import errno
import hashlib
import os
from typing import Any

from traces.errors import UserError

BEGIN, END = b"\nt3sim sha256 ", b"\n"
SEAL_BYTES = len(BEGIN) + 2 * hashlib.sha256().digest_size + len(END)
PART_BYTES = 1 << 20


def seal(file: Any) -> None:
    """Append the seal to a complete file, which is open for reading and writing.

    Raises:
        OSError: the disk is full.
    """
    end = file.seek(0, os.SEEK_END)
    line = _line(file, end)
    file.seek(end)
    if file.write(line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def is_sealed(path: str | os.PathLike[str]) -> bool:
    """Does the file end with a seal? Does not compare it.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return _stored(file)[1].startswith(BEGIN)


def check_seal(path: str | os.PathLike[str]) -> bool:
    """Compare a file with its seal. Returns False if it has none.

    Raises:
        UserError: the file was changed after it was sealed.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        end, stored = _stored(file)
        if not stored.startswith(BEGIN):
            return False
        if stored != _line(file, end):
            raise UserError(f"{path}: damaged: the content does not fit its seal, it was changed after it was written")
    return True


def _stored(file: Any) -> tuple[int, bytes]:
    """Where the seal of a file begins, and the bytes from there on."""
    begin = file.seek(max(0, file.seek(0, os.SEEK_END) - SEAL_BYTES))
    return begin, file.read()


def _line(file: Any, end: int) -> bytes:
    """The seal of the first `end` bytes of a file."""
    digest = hashlib.sha256()
    file.seek(0)
    while end and (part := file.read(min(PART_BYTES, end))):
        digest.update(part)
        end -= len(part)
    return BEGIN + digest.hexdigest().encode() + END
