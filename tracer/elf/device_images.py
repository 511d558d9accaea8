"""Every device image in a file: a cubin or code object itself, or what a fat binary or host program carries."""

from dataclasses import dataclass
from pathlib import Path

from tracer.elf import amd, bundle, cuda, fatbin
from tracer.elf.image import Image
from tracer.elf.resources import KernelResources
from traces.errors import UserError


@dataclass(frozen=True)
class DeviceImage:
    """One member of a file: device code for one architecture."""

    source: str  # "file", or where in it: ".nv_fatbin 2"
    kind: str  # cubin, ptx, code object, or "kind <number>" of an entry that is listed but not read
    architecture: str
    compression: str  # none, lz4, zstd
    size_bytes: int  # decompressed
    image: Image | None  # None for PTX

    def kernels(self) -> list[KernelResources]:
        """Resources of its kernels; none of a PTX text, whose registers the driver assigns."""
        if self.image is None:
            return []
        read = cuda.kernels if cuda.is_cubin(self.image) else amd.kernels
        return read(self.image, self.source)


def device_images(path: str | Path) -> list[DeviceImage]:
    """Device images of a cubin, fat binary, AMD code object, offload bundle, or host executable/shared object.

    Raises:
        UserError: unreadable, damaged, or without device code.
    """
    data = _content(path)
    where = str(path)
    if fatbin.is_fatbin(data):
        return _of_fatbin(data, where, "entry")
    if bundle.is_bundle(data):
        return _of_bundle(data, where, "entry")
    image = Image(data, where)
    if cuda.is_cubin(image) or amd.is_code_object(image):
        return [_of_elf(image, "file", "none", len(data))]
    found = []
    for name in fatbin.SECTIONS:
        section = image.section(name)
        found += _of_fatbin(section.data, f"{where}: section {name}", name) if section else []
    section = image.section(bundle.SECTION)
    found += _of_bundle(section.data, f"{where}: section {bundle.SECTION}", bundle.SECTION) if section else []
    if not found:
        looked = ", ".join((*fatbin.SECTIONS, bundle.SECTION))
        raise UserError(f"{where}: no device code: a {image.machine} file without any of the sections {looked}")
    return found


def _content(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as cause:
        raise UserError(f"{path}: cannot be read: {cause.strerror}") from cause


def _of_elf(image: Image, source: str, compression: str, size_bytes: int) -> DeviceImage:
    if cuda.is_cubin(image):
        return DeviceImage(source, "cubin", cuda.architecture(image), compression, size_bytes, image)
    if amd.is_code_object(image):
        return DeviceImage(source, "code object", amd.architecture(image), compression, size_bytes, image)
    raise UserError(f"{image.where}: device code for {image.machine}, only CUDA and AMDGPU are read")


def _of_fatbin(data: bytes, where: str, label: str) -> list[DeviceImage]:
    found = []
    for number, entry in enumerate(fatbin.entries(data, where), 1):
        source = f"{label} {number}"
        if entry.kind == "cubin":
            found.append(_of_elf(Image(entry.data, f"{where}: {source}"), source, entry.compression, len(entry.data)))
        else:
            found.append(DeviceImage(source, entry.kind, entry.architecture, entry.compression, len(entry.data), None))
    return found


def _of_bundle(data: bytes, where: str, label: str) -> list[DeviceImage]:
    return [
        _of_elf(Image(entry.data, f"{where}: {entry.target}"), f"{label} {number}", entry.compression, len(entry.data))
        for number, entry in enumerate(bundle.entries(data, where), 1)
    ]
