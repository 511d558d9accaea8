"""The attribute stream of the `.nv.info` sections of a cubin.

NVIDIA does not document it. `cuobjdump -elf` prints the numbers below as EIATTR_... The tests check each of them
against the output of ptxas. An attribute is a format byte, a number, and a value:

    format 1  no value        2 bytes of padding
    format 2  byte            1 byte of value, 1 of padding
    format 3  half word       2 bytes of value
    format 4  sized           2 bytes of length, then that many bytes
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

MAX_THREADS = 0x05  # x, y, z of __launch_bounds__ (.maxntid)
REQNTID = 0x10  # x, y, z of .reqntid
FRAME_SIZE = 0x11  # symbol, bytes of stack of the function without callees
MIN_STACK_SIZE = 0x12  # symbol, bytes of stack with callees
KPARAM_INFO = 0x17
REGCOUNT = 0x2F  # symbol, registers per thread
KPARAM_INFO_V2 = 0x45  # kernels with more than 4 KB of parameters
NUM_BARRIERS = 0x4C

_NONE, _BYTE, _HALF, _SIZED = 1, 2, 3, 4


class Attribute(NamedTuple):
    number: int
    value: bytes


class Parameter(NamedTuple):
    """One kernel parameter in the parameter buffer."""

    offset_bytes: int
    size_bytes: int


def attributes(data: bytes) -> Iterator[Attribute]:
    """All attributes of one section.

    Raises:
        ValueError: an unknown format, or a value that ends outside the section.
    """
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            raise ValueError(f"attribute at byte {at} is cut off")
        kind, number = data[at], data[at + 1]
        if kind not in (_NONE, _BYTE, _HALF, _SIZED):
            raise ValueError(f"attribute format {kind} at byte {at}, known are 1 to 4")
        start, size = at + 2, {_NONE: 0, _BYTE: 1, _HALF: 2}.get(kind, 0)
        at += 4
        if kind == _SIZED:
            start, size = at, int.from_bytes(data[at - 2 : at], "little")
            at += size
            if at > len(data):
                raise ValueError(f"attribute {number:#x} of {size} bytes leaves the section")
        yield Attribute(number, data[start : start + size])


def per_symbol(data: bytes, number: int) -> dict[int, int]:
    """Symbol index -> value, from the attributes (symbol, value) with this number."""
    return dict(struct.unpack("<II", a.value) for a in attributes(data) if a.number == number)


def parameter(value: bytes, number: int) -> tuple[int, Parameter]:
    """(ordinal, Parameter) of a KPARAM_INFO or KPARAM_INFO_V2 attribute."""
    if number == KPARAM_INFO_V2:
        _, ordinal, offset, size = struct.unpack("<IHHI", value)
        return ordinal, Parameter(offset, size)
    _, ordinal, offset, packed = struct.unpack("<IHHI", value)
    return ordinal, Parameter(offset, packed >> 18 & 0x3FFF)


def extent(value: bytes) -> tuple[int, int, int]:
    """x, y, z of a block size."""
    x, y, z = struct.unpack("<III", value)
    return x, y, z
