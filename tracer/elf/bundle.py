"""Clang offload bundles: containers of AMD code objects in HIP programs (section .hip_fatbin) or in separate files.

Format: LLVM's "Clang Offload Bundler", "Bundled Binary File Layout" and "Compressed Offload Bundles".
"""

import struct
from typing import NamedTuple

from tracer.elf.compression import decompress
from traces.errors import UserError

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
SECTION = ".hip_fatbin"
COUNT = struct.Struct("<Q")
ENTRY = struct.Struct("<QQQ")  # offset from the bundle's start, bytes, bytes of the target name
ENTRIES_MOST = 1024
HOST = "host-"

MAGIC_COMPRESSED = b"CCOB"
VERSION = struct.Struct("<4sHH")  # magic, version, method
SIZES = {2: struct.Struct("<II"), 3: struct.Struct("<QQ")}  # whole file, plain bytes
HASH_BYTES = 8
METHODS = {0: "zlib", 1: "zstd"}


class Entry(NamedTuple):
    target: str  # hipv4-amdgcn-amd-amdhsa--gfx90a, ...
    compression: str
    data: bytes


def is_bundle(data: bytes) -> bool:
    return data.startswith((MAGIC, MAGIC_COMPRESSED))


def entries(data: bytes, where: str) -> list[Entry]:
    """The device members of every bundle in `data` (one per translation unit), in file order.

    Raises:
        UserError: a damaged or truncated bundle, or no bundle.
    """
    device_members: list[Entry] = []
    at = _next(data, 0)
    if at < 0:
        raise UserError(f"{where}: no offload bundle ({MAGIC.decode()} or {MAGIC_COMPRESSED.decode()})")
    while at >= 0:
        try:
            if data.startswith(MAGIC_COMPRESSED, at):
                end, plain, method = _expand(data, at, where)
                members, _ = _members(plain, 0, method)
            else:
                members, end = _members(data, at, "none")
            device_members += members
        except (struct.error, ValueError) as cause:
            raise UserError(f"{where}: damaged or truncated offload bundle at byte {at}: {cause}") from cause
        at = _next(data, end)
    return device_members


def _next(data: bytes, start: int) -> int:
    """Start of the next bundle; -1 if there is none."""
    places = [data.find(magic, start) for magic in (MAGIC, MAGIC_COMPRESSED)]
    return min((place for place in places if place >= 0), default=-1)


def _expand(data: bytes, start: int, where: str) -> tuple[int, bytes, str]:
    """(end of the compressed bundle, its plain form, method)."""
    _, version, number = VERSION.unpack_from(data, start)
    if version not in SIZES or number not in METHODS:
        raise ValueError(f"version {version}, method {number}; known are versions 2 and 3, methods 0 and 1")
    at = start + VERSION.size
    file_bytes, plain_bytes = SIZES[version].unpack_from(data, at)
    at += SIZES[version].size + HASH_BYTES
    end = start + file_bytes
    if not at < end <= len(data):
        raise ValueError(f"{file_bytes} bytes from byte {start} of {len(data)}")
    return end, decompress(data[at:end], METHODS[number], plain_bytes, where), METHODS[number]


def _members(data: bytes, start: int, method: str) -> tuple[list[Entry], int]:
    """(device members of the bundle at `start`, end of the last member)."""
    at = start + len(MAGIC)
    (count,) = COUNT.unpack_from(data, at)
    if count > ENTRIES_MOST or not data.startswith(MAGIC, start):
        raise ValueError(f"{count} members behind {data[start : start + 4]!r}")
    at += COUNT.size
    members, end = [], at
    for _ in range(count):
        offset, size, name_bytes = ENTRY.unpack_from(data, at)
        at += ENTRY.size + name_bytes
        target = data[at - name_bytes : at].decode()
        if at > len(data) or start + offset + size > len(data):
            raise ValueError(f"member {target} of {size} bytes at byte {offset} leaves the file")
        end = max(end, at, start + offset + size)
        if size and not target.startswith(HOST):
            members.append(Entry(target, method, data[start + offset : start + offset + size]))
    return members, end
