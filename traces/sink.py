"""A file for HDF5 to write into, whose errors come to the writer and not to HDF5.

HDF5 cannot close a file that it failed to write (full disk, limit on file size): it raises again for every object
still open and has been seen to end the process. So a failed write is remembered here, everything after it is
swallowed, and `check` raises the error where the writer can give up in order.
"""

import os
from pathlib import Path


class Sink:
    """Binary file object for `h5py.File`: unbuffered, remembers the first error."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb+", buffering=0)  # noqa: SIM115 - closed by close()
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the first error of a write, if there was one."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Sync and close.

        Raises:
            OSError: of an earlier write, or of the sync.
        """
        with self._file:
            self.check()
            os.fsync(self._file.fileno())

    def discard(self) -> None:
        """Close without a sync or an error."""
        self._file.close()

    def write(self, data: memoryview) -> int:
        view = memoryview(data).cast("B")
        written = 0
        try:
            while self._error is None and written < len(view):
                written += self._file.write(view[written:])
        except OSError as error:
            self._error = error
            self._file.seek(len(view) - written, os.SEEK_CUR)
        return len(view)

    def readinto(self, buffer: memoryview) -> int:
        view = memoryview(buffer).cast("B")
        done = self._file.readinto(view)
        view[done:] = bytes(len(view) - done)
        return len(view)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def truncate(self, size: int) -> int:
        if self._error is None:
            try:
                return self._file.truncate(size)
            except OSError as error:
                self._error = error
        return size

    def flush(self) -> None:
        """Nothing is buffered here."""
