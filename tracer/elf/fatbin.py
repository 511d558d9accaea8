"""CUDA fat binaries: containers of cubins and PTX texts for several architectures.

A container has a 16-byte header (magic, version, header size, size of the rest) and entries. An entry has a header of
64 bytes or more and a payload. NVIDIA does not document the layout. It was found from files that nvcc 13.0 made
with every `--compress-mode`.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tracer.elf.compression import decompress
from traces.errors import UserError

MAGIC = 0xBA55ED50
CONTAINER = struct.Struct("<IHHQ")  # magic, version, header bytes, bytes of all entries
# kind, version, header bytes, payload bytes with padding, compressed bytes, options offset, minor, major,
# architecture, name offset, name bytes, flags, unused, plain bytes
ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
SECTIONS = (".nv_fatbin", "__nv_relfatbin")  # of a host program; the second holds relocatable device code
ALIGNMENT_BYTES = 8

FLAG_LZ4 = 0x2000
FLAG_ZSTD = 0x8000
PTX, CUBIN = 1, 2
KINDS = {PTX: "ptx", CUBIN: "cubin"}


class Entry(NamedTuple):
    kind: str  # ptx, cubin, or "kind <number>"
    architecture: str  # sm_90; compute_90 for PTX
    compression: str  # none, lz4, zstd
    data: bytes  # decompressed


def is_fatbin(data: bytes) -> bool:
    return data[:4] == MAGIC.to_bytes(4, "little")


def entries(data: bytes, where: str) -> Iterator[Entry]:
    """Every entry of every container in `data`, in file order.

    Several translation units give several containers, one after the other, aligned to 8 bytes.
    """
    at = 0
    while at < len(data):
        if not any(data[at : at + ALIGNMENT_BYTES]):
            at += ALIGNMENT_BYTES
            continue
        if at + CONTAINER.size > len(data):
            raise UserError(f"{where}: truncated fat binary: {len(data) - at} bytes of a header at byte {at}")
        magic, version, header, size = CONTAINER.unpack_from(data, at)
        if magic != MAGIC:
            raise UserError(f"{where}: byte {at} of the fat binary: magic {magic:#x}, expected {MAGIC:#x}")
        if version != 1 or header < CONTAINER.size:
            raise UserError(f"{where}: fat binary version {version}, header of {header} bytes; known is 1 with 16")
        if at + header + size > len(data):
            raise UserError(f"{where}: truncated fat binary: {header + size} bytes at byte {at} of {len(data)}")
        yield from _container(data[at + header : at + header + size], where)
        at += header + size


def _container(data: bytes, where: str) -> Iterator[Entry]:
    at = 0
    while at < len(data):
        if at + ENTRY.size > len(data):
            raise UserError(f"{where}: truncated entry at byte {at} of the fat binary")
        fields = ENTRY.unpack_from(data, at)
        kind, _, header, padded, compressed = fields[:5]
        capability, flags, size = fields[8], fields[11], fields[13]
        start = at + header
        name = f"{where}: entry at byte {at} of the fat binary"
        if header < ENTRY.size or padded == 0 or start + padded > len(data) or compressed > padded:
            raise UserError(f"{name}: damaged: header of {header} bytes, payload of {compressed} in {padded}")
        method = "zstd" if flags & FLAG_ZSTD else "lz4" if flags & FLAG_LZ4 else "none"
        yield Entry(
            kind=KINDS.get(kind, f"kind {kind}"),
            architecture=f"{'compute' if kind == PTX else 'sm'}_{capability}",
            compression=method,
            data=decompress(data[start : start + (compressed or padded)], method, size, name),
        )
        at = start + padded
