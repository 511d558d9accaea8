"""Content of a device image of a file, as `t3sim elf info` prints it."""

from dataclasses import asdict

from tracer.elf.device_images import DeviceImage
from tracer.elf.resources import KernelResources


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
