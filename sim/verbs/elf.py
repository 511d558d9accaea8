"""`t3sim elf info`: kernel resources of a CUDA or AMD binary."""

import click

from sim.occupancy import kernel_occupancy
from sim.presets import load_preset
from sim.spec import ComputeUnit
from sim.verbs.completions import PRESET
from tracer.elf.describe import describe_image
from tracer.elf.device_images import DeviceImage, device_images
from tracer.elf.resources import KernelResources
from traces.command.output_format import with_format
from traces.command.tables import print_json, print_table, print_text
from traces.errors import UserError

COLUMNS = (
    "kernel", "architecture", "source", "registers", "shared_static_bytes", "local_bytes", "barriers", "max_threads",
    "parameters",
)  # fmt: skip
OCCUPANCY_COLUMNS = ("workgroups/CU", "warps/CU", "limited by")


@click.command("info")
@click.argument("file", type=click.Path())
@click.option("--preset", shell_complete=PRESET, help="Also show how many workgroups fit on a CU of this machine.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads per workgroup; default: the value in the binary.")
@click.option(
    "--dynamic-shared",
    "dynamic_bytes",
    type=click.IntRange(min=0),
    default=0,
    help="Dynamic shared memory, bytes per workgroup.",
)
@with_format
def elf_info(file: str, preset: str | None, threads: int | None, dynamic_bytes: int, as_json: bool) -> None:
    """Resources of every kernel in FILE: a CUDA cubin or fat binary, an AMD code object, or a host program with these.

    Example: t3sim elf info app --preset v100 --threads 256
    """
    if preset is None and (threads is not None or dynamic_bytes):
        raise UserError("elf info: --threads and --dynamic-shared need the machine that they are for: give --preset")
    cu = load_preset(preset).machine.cu if preset else None
    images = device_images(file)
    if as_json:
        described = [_described(image, cu, threads, dynamic_bytes) for image in images]
        print_json({"file": file, "images": described})
        return
    rows: list[tuple[object, ...]] = []
    texts: list[str] = []
    for image in images:
        if image.image is None:
            content = f"{image.kind} for {image.architecture}, {image.size_bytes:,} bytes"
            texts.append(f"{image.source}: {content}, not machine code")
        rows += [
            _row(kernel) + (_residency(cu, kernel, threads, dynamic_bytes) if cu else ()) for kernel in image.kernels()
        ]
    print_table(file, COLUMNS + (OCCUPANCY_COLUMNS if cu else ()), rows)
    for text in texts:
        print_text(text)


def _described(image: DeviceImage, cu: ComputeUnit | None, threads: int | None, dynamic_bytes: int) -> dict:
    """An image for JSON. With a machine, every kernel has its occupancy, or the reason why it does not fit."""
    described = describe_image(image)
    if cu is not None:
        for kernel, stated in zip(image.kernels(), described["kernels"], strict=True):
            try:
                stated["occupancy"] = vars(kernel_occupancy(cu, kernel, threads, dynamic_bytes))
            except UserError as reason:
                stated["occupancy"] = {"error": str(reason)}
    return described


def _row(kernel: KernelResources) -> tuple[object, ...]:
    size = "x".join(map(str, kernel.required_threads)) if kernel.required_threads else kernel.max_threads
    return (
        kernel.plain_name, kernel.architecture, kernel.source, kernel.registers, kernel.shared_static_bytes,
        kernel.local_bytes, kernel.barriers, size, " ".join(str(p.size_bytes) for p in kernel.parameters),
    )  # fmt: skip


def _residency(cu: ComputeUnit, kernel: KernelResources, threads: int | None, dynamic_bytes: int) -> tuple[object, ...]:
    try:
        fit = kernel_occupancy(cu, kernel, threads, dynamic_bytes)
    except UserError as reason:
        return None, None, str(reason)
    return fit.workgroups, fit.warps, fit.limiter
