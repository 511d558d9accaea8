"""A file object for HDF5. Write errors are reported to the writer of the archive and not to HDF5.

HDF5 cannot close a file after a failed write (full disk, limit on file size): it raises again for every open object
and can end the process. So this object stores the first error and ignores all later writes. `check` raises the error at
a place where the writer can stop cleanly.
"""

import os
from pathlib import Path

from traces.seal import seal


class Sink:
    """Binary file object for `h5py.File`. It is not buffered and keeps the first error."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb+", buffering=0)  # noqa: SIM115 - closed by close()
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the first error of a write, if there is one."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Seal, sync and close.

        Raises:
            OSError: an earlier write or the sync failed.
        """
        with self._file:
            self.check()
            seal(self._file)
            os.fsync(self._file.fileno())

    def discard(self) -> None:
        """Close without a sync. Raises no stored error."""
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
