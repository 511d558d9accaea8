"""The metadata note of an AMD code object (note type 32, msgpack) as typed structs.

The keys are defined in LLVM's "User Guide for AMDGPU Backend", "Code Object V3 Metadata" and later. Unknown keys are
ignored. A known key of the wrong type is damage.
"""

import struct
from collections.abc import Iterator

import msgspec

from tracer.elf.image import Image

NOTE_METADATA = 32  # NT_AMDGPU_METADATA
OWNER = b"AMDGPU"
NOTE = struct.Struct("<III")  # bytes of the owner's name, bytes of the content, type


class Argument(msgspec.Struct, frozen=True):
    """One argument of a kernel. The runtime adds arguments of `hidden_...` kinds."""

    offset: int = msgspec.field(name=".offset")
    size: int = msgspec.field(name=".size")
    kind: str = msgspec.field(name=".value_kind", default="by_value")


class KernelMetadata(msgspec.Struct, frozen=True):
    """The entries that give resources."""

    symbol: str = msgspec.field(name=".symbol")  # <kernel>.kd
    vgprs: int | None = msgspec.field(name=".vgpr_count", default=None)  # in a unified file with the AGPRs
    agprs: int | None = msgspec.field(name=".agpr_count", default=None)  # LLVM 15 and later
    sgprs: int | None = msgspec.field(name=".sgpr_count", default=None)
    lds_bytes: int | None = msgspec.field(name=".group_segment_fixed_size", default=None)
    scratch_bytes: int | None = msgspec.field(name=".private_segment_fixed_size", default=None)
    max_threads: int | None = msgspec.field(name=".max_flat_workgroup_size", default=None)
    required_threads: tuple[int, int, int] | None = msgspec.field(name=".reqd_workgroup_size", default=None)
    wavefront_lanes: int | None = msgspec.field(name=".wavefront_size", default=None)
    arguments: list[Argument] = msgspec.field(name=".args", default_factory=list)


class _Metadata(msgspec.Struct):
    kernels: list[KernelMetadata] = msgspec.field(name="amdhsa.kernels", default_factory=list)


def kernel_metadata(image: Image) -> dict[str, KernelMetadata]:
    """Kernel name -> its metadata. Empty if the file has no note.

    Raises:
        ValueError: a note ends outside its section, or its content is no metadata.
    """
    for section in image.sections:
        if section.kind != "SHT_NOTE":
            continue
        for owner, kind, content in _notes(section.data):
            if owner == OWNER and kind == NOTE_METADATA:
                listed = msgspec.msgpack.decode(content, type=_Metadata).kernels
                return {kernel.symbol.removesuffix(".kd"): kernel for kernel in listed}
    return {}


def _notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """(owner, type, content) of the notes of one section. Name and content are padded to four bytes."""
    at = 0
    while at + NOTE.size <= len(data):
        name_bytes, content_bytes, kind = NOTE.unpack_from(data, at)
        name = at + NOTE.size
        start = name + (name_bytes + 3 & ~3)
        if start + content_bytes > len(data):
            raise ValueError(f"note at byte {at} leaves its section")
        yield data[name : name + name_bytes].rstrip(b"\0"), kind, data[start : start + content_bytes]
        at = start + (content_bytes + 3 & ~3)
