"""Kernel resources of AMD code objects.

They are in two places: the metadata note and the kernel descriptor, 64 bytes that the packet processor reads (LLVM's
"User Guide for AMDGPU Backend", "Kernel Descriptor"). The metadata has the exact counts. The descriptor has allocation
granules and the start of the accumulation registers. The descriptor is used if a code object has no note.
"""

import struct
from typing import NamedTuple

from tracer.elf.amd_metadata import KernelMetadata, kernel_metadata
from tracer.elf.image import SYMBOL_OBJECT, Image, Symbol, reading
from tracer.elf.names import plain_name
from tracer.elf.nvinfo import Parameter
from tracer.elf.resources import KernelResources
from traces.errors import UserError

DESCRIPTOR_SUFFIX = ".kd"
DESCRIPTOR_BYTES = 64
LIMITS = struct.Struct("<II")  # at 0: LDS bytes, scratch bytes
REGISTERS = struct.Struct("<IIIH")  # at 44: COMPUTE_PGM_RSRC3, RSRC1, RSRC2, kernel_code_properties
REGISTERS_AT = 44
WAVE32 = 1 << 10  # of kernel_code_properties
SGPR_GRANULE = 8

# EF_AMDGPU_MACH, low byte of e_flags (LLVM user guide, "AMDGPU ELF Header e_flags")
MACHINES = {
    0x02C: "gfx900",
    0x02F: "gfx906",
    0x030: "gfx908",
    0x033: "gfx1010",
    0x036: "gfx1030",
    0x03F: "gfx90a",
    0x040: "gfx940",
    0x041: "gfx1100",
    0x046: "gfx1101",
    0x047: "gfx1102",
    0x048: "gfx1200",
    0x04B: "gfx941",
    0x04C: "gfx942",
    0x04E: "gfx1201",
    0x04F: "gfx950",
}
UNIFIED_FILE = ("gfx90a", "gfx940", "gfx941", "gfx942", "gfx950")  # accumulation registers share the vector file
WITH_WAVE32 = ("gfx10", "gfx11", "gfx12")


class Descriptor(NamedTuple):
    """The fields of a kernel descriptor that give resources."""

    lds_bytes: int
    scratch_bytes: int
    vector_granules: int
    scalar_granules: int
    accumulation_start: int  # first accumulation register of a unified file
    lanes: int


def is_code_object(image: Image) -> bool:
    return image.machine == "EM_AMDGPU"


def architecture(image: Image) -> str:
    number = image.flags & 0xFF
    if number not in MACHINES:
        raise UserError(f"{image.where}: AMD machine {number:#x} is not known, only {', '.join(MACHINES.values())}")
    return MACHINES[number]


def vector_granule(machine: str, lanes: int) -> int:
    """Vector registers per granule of the descriptor's count (LLVM user guide, GRANULATED_WORKITEM_VGPR_COUNT)."""
    if machine in UNIFIED_FILE or (machine.startswith(WITH_WAVE32) and lanes == 32):
        return 8
    return 4


def kernels(image: Image, source: str) -> list[KernelResources]:
    """Resources of every kernel of a code object, in order of name."""
    with reading(image.where):
        metadata = kernel_metadata(image)
        resources = []
        for symbol in image.symbols():
            if symbol.name.endswith(DESCRIPTOR_SUFFIX) and symbol.kind == SYMBOL_OBJECT:
                name = symbol.name.removesuffix(DESCRIPTOR_SUFFIX)
                resources.append(
                    _kernel(architecture(image), name, _descriptor(image, symbol), metadata.get(name), source)
                )
        return sorted(resources, key=lambda kernel: kernel.name)


def _kernel(
    machine: str, name: str, descriptor: Descriptor, stated: KernelMetadata | None, source: str
) -> KernelResources:
    facts = stated or KernelMetadata(symbol=name + DESCRIPTOR_SUFFIX)
    lanes = _known(facts.wavefront_lanes, descriptor.lanes)
    registers = _known(facts.vgprs, descriptor.vector_granules * vector_granule(machine, lanes))
    agprs = facts.agprs
    if agprs is None and machine in UNIFIED_FILE:
        agprs = max(0, registers - descriptor.accumulation_start)  # compilers before LLVM 15 do not list them
    return KernelResources(
        name=name,
        plain_name=plain_name(name),
        architecture=machine,
        registers=registers,
        agprs=agprs,
        sgprs=_known(facts.sgprs, descriptor.scalar_granules * SGPR_GRANULE),
        shared_static_bytes=_known(facts.lds_bytes, descriptor.lds_bytes),
        shared_reserved_bytes=0,
        local_bytes=_known(facts.scratch_bytes, descriptor.scratch_bytes),
        constant_bytes=(),
        max_threads=facts.max_threads,
        required_threads=facts.required_threads,
        barriers=None,
        parameters=tuple(
            Parameter(argument.offset, argument.size)
            for argument in facts.arguments
            if not argument.kind.startswith("hidden_")
        ),
        lanes_per_warp=lanes,
        source=source,
    )


def _known(stated: int | None, otherwise: int) -> int:
    return otherwise if stated is None else stated


def _descriptor(image: Image, symbol: Symbol) -> Descriptor:
    section = image.sections[symbol.section]
    start = symbol.value - section.address
    data = section.data[start : start + DESCRIPTOR_BYTES] if start >= 0 else b""
    if len(data) != DESCRIPTOR_BYTES:
        raise ValueError(f"kernel descriptor {symbol.name} leaves section {section.name}")
    lds, scratch = LIMITS.unpack_from(data)
    rsrc3, rsrc1, _, properties = REGISTERS.unpack_from(data, REGISTERS_AT)
    return Descriptor(
        lds_bytes=lds,
        scratch_bytes=scratch,
        vector_granules=(rsrc1 & 0x3F) + 1,
        scalar_granules=(rsrc1 >> 6 & 0xF) + 1,
        accumulation_start=((rsrc3 & 0x3F) + 1) * 4,
        lanes=32 if properties & WAVE32 else 64,
    )
