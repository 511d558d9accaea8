"""Architectures whose GEMM libraries are known."""

from enum import IntEnum


class GemmLibrary(IntEnum):
    """The architectures of `library.toml`."""

    T3 = 0
    SM70 = 1
    SM80 = 2
    SM90 = 3
    CDNA2 = 4
    CDNA3 = 5
