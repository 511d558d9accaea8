"""What `t3sim elf info` says about a file, and the list of its kernels."""

from dataclasses import asdict
from pathlib import Path

from tracer.elf.device_images import DeviceImage, device_images
from tracer.elf.resources import KernelResources


def kernel_resources(path: str | Path) -> list[KernelResources]:
    """Resources of every kernel in a file, for every architecture that it carries as machine code.

    Args:
        path: cubin, fat binary, AMD code object, offload bundle, or host executable or shared object with them.

    Raises:
        UserError: unreadable, damaged, or without device code.
    """
    return [kernel for image in device_images(path) for kernel in image.kernels()]


def describe_elf(path: str | Path) -> list[dict]:
    """One JSON-ready dict per device image, with its kernels; a PTX text has none."""
    return [describe_image(image) for image in device_images(path)]


def describe_image(image: DeviceImage) -> dict:
    """One device image and its kernels, in the order of `image.kernels()`."""
    return {
        "source": image.source,
        "kind": image.kind,
        "architecture": image.architecture,
        "compression": image.compression,
        "size_bytes": image.size_bytes,
        "kernels": [_kernel(kernel) for kernel in image.kernels()],
    }


def _kernel(kernel: KernelResources) -> dict:
    described = asdict(kernel)
    del described["source"]
    described["shared_variable_bytes"] = kernel.shared_variable_bytes
    described["parameters"] = [{"offset_bytes": p.offset_bytes, "size_bytes": p.size_bytes} for p in kernel.parameters]
    described["constant_bytes"] = {str(bank): size for bank, size in kernel.constant_bytes}
    return described
