"""Find every device image in a file: a cubin or code object, or the members of a fat binary or host program."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tracer.elf import amd, bundle, cuda, fatbin
from tracer.elf.image import Image
from tracer.elf.resources import KernelResources
from traces.errors import UserError


@dataclass(frozen=True)
class DeviceImage:
    """One member of a file: device code for one architecture."""

    source: str  # "file", or the place in it: ".nv_fatbin 2"
    kind: str  # cubin, ptx, code object, or "kind <number>" of an entry that is listed but not read
    architecture: str
    compression: str  # none, lz4, zstd
    size_bytes: int  # decompressed
    image: Image | None  # None for PTX

    def kernels(self) -> list[KernelResources]:
        """Resources of its kernels. A PTX text has none, because the driver assigns its registers."""
        if self.image is None:
            return []
        read = cuda.kernels if cuda.is_cubin(self.image) else amd.kernels
        return read(self.image, self.source)


def device_images(path: str | Path) -> Iterator[DeviceImage]:
    """Device images of a cubin, fat binary, AMD code object, offload bundle, or host executable or shared object.

    One image is in memory at a time, besides the file.

    Raises:
        UserError: during iteration: the file is not readable, damaged, or has no device code.
    """
    data = _content(path)
    where = str(path)
    if fatbin.is_fatbin(data):
        yield from _of_fatbin(data, where, "entry")
    elif bundle.is_bundle(data):
        yield from _of_bundle(data, where, "entry")
    else:
        image = Image(data, where)
        if cuda.is_cubin(image) or amd.is_code_object(image):
            yield _of_elf(image, "file", "none", len(data))
        else:
            yield from _of_host(image)


def _of_host(image: Image) -> Iterator[DeviceImage]:
    """Device images in the sections of a host program."""
    has_device_code = False
    for name, read in HOST_SECTIONS.items():
        section = image.section(name)
        if section is not None and section.size:
            has_device_code = True
            yield from read(section.data, f"{image.where}: section {name}", name)
    if not has_device_code:
        looked = ", ".join(HOST_SECTIONS)
        raise UserError(f"{image.where}: no device code: {image.machine} without any of the sections {looked}")


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


def _of_fatbin(data: bytes, where: str, label: str) -> Iterator[DeviceImage]:
    for number, entry in enumerate(fatbin.entries(data, where), 1):
        source = f"{label} {number}"
        if entry.kind == "cubin":
            yield _of_elf(Image(entry.data, f"{where}: {source}"), source, entry.compression, len(entry.data))
        else:
            yield DeviceImage(source, entry.kind, entry.architecture, entry.compression, len(entry.data), None)


def _of_bundle(data: bytes, where: str, label: str) -> Iterator[DeviceImage]:
    for number, entry in enumerate(bundle.entries(data, where), 1):
        image = Image(entry.data, f"{where}: {entry.target}")
        yield _of_elf(image, f"{label} {number}", entry.compression, len(entry.data))


HOST_SECTIONS = {**dict.fromkeys(fatbin.SECTIONS, _of_fatbin), bundle.SECTION: _of_bundle}
