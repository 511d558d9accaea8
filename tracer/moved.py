"""Bytes that a kernel reads and writes, each counted once."""

from typing import NamedTuple


class Moved(NamedTuple):
    """Size of the data that kernels read and write: tensors, each counted once, without indices and counters."""

    read: int
    written: int
