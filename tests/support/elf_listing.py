"""All kernels of a file, and all that `t3sim elf info` says about it."""

from tracer.elf.describe import describe_image
from tracer.elf.device_images import device_images


def kernel_resources(path):
    """Resources of every kernel in a file, for every architecture that it carries as machine code."""
    return [kernel for image in device_images(path) for kernel in image.kernels()]


def describe_elf(path):
    """One dict per device image, with its kernels; a PTX text has none."""
    return [describe_image(image) for image in device_images(path)]
