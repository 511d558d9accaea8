"""The kernels of the steps of a schedule on a machine."""

from sim.gemm_facts import gpu_facts
from sim.occupancy import occupancy_of
from sim.spec import Machine
from tracer.kernels import make_kernels
from traces.errors import UserError
from traces.source import KernelSource


def kernels_on(machine: Machine, text: str) -> tuple[KernelSource, ...]:
    """The kernels that a text names.

    Raises:
        UserError: an impossible one, or one of which no workgroup fits on a CU.
    """
    kernels = make_kernels(text, gpu_facts(machine))
    for info in (kernel.info for kernel in kernels):
        occupancy_of(machine.cu, info)
    return kernels


def kernels_of_step(text: str, machine: Machine) -> tuple[KernelSource, ...]:
    """The kernels of a step.

    Raises:
        UserError: as `kernels_on`. Other software has no limits of fused attention.
    """
    try:
        return kernels_on(machine, text)
    except UserError as reason:
        other = (
            "; with --no-flash scores, softmax and values are kernels of their own" if text.startswith("flash_") else ""
        )
        raise UserError(f"{reason}{other}") from None
