"""Occupancy: the number of workgroups of a kernel that a CU holds at once, and the resource that limits it.

One rule covers both vendors, because both allocate a warp's registers in one quarter of the CU:

* a warp takes registers_per_thread, rounded up to the granule, in the register file of one scheduler; the CU holds
  schedulers x (warps that fit in one file) warps. NVIDIA: `cuda_occupancy.h` of the CUDA toolkit, 256 registers per
  warp and four sub-partitions. AMD: `hipOccupancyMaxActiveBlocksPerMultiprocessor` of ROCm, four SIMDs.
* a workgroup takes shared memory, plus the part that the system reserves, rounded up to the granule;
* a workgroup takes barriers: on NVIDIA the number that its program names, on AMD one if it has more than one wavefront.
"""

from dataclasses import dataclass
from math import prod

from sim.spec import ComputeUnit
from tracer.elf.resources import KernelResources
from traces.errors import UserError
from traces.source import KernelInfo

REGISTER_BYTES = 4
SCALAR_GRANULE = 16
"""Scalar registers of a wavefront are allocated in this unit (ROCm, gfx8 and gfx9; newer ones have no limit)."""


@dataclass(frozen=True)
class Occupancy:
    """Residency of one kernel on one CU."""

    workgroups: int  # resident at once
    limiter: str  # the field of ComputeUnit that is the limit
    warps_per_workgroup: int
    registers_per_workgroup: int  # allocated
    shared_per_workgroup: int  # bytes allocated
    warps: int  # resident at once
    limits: dict[str, int]  # field of ComputeUnit -> workgroups that this field alone allows
    takes: tuple[int, ...]  # amounts of `sim.hw.residency.RESOURCES` that a workgroup takes


def occupancy(
    cu: ComputeUnit,
    threads: int,
    registers_per_thread: int,
    shared_bytes: int,
    *,
    barriers: int | None = None,
    scalar_registers: int = 0,
) -> Occupancy:
    """Workgroups that fit on a CU.

    Args:
        cu: the machine's compute unit.
        threads: per workgroup.
        registers_per_thread: vector registers; 0 = unknown, no limit.
        shared_bytes: static and dynamic, per workgroup, without the part that the system reserves.
        barriers: hardware barriers of the workgroup; None = one if it has more than one warp.
        scalar_registers: per warp; 0 = unknown, no limit.

    Raises:
        UserError: no workgroup fits; names the resource.
    """
    _check(cu, threads, registers_per_thread, shared_bytes)
    warps = -(-threads // cu.lanes_per_warp)
    registers = _round_up(registers_per_thread, cu.register_granule) * cu.lanes_per_warp
    shared = _round_up(shared_bytes + cu.shared_reserved_bytes, cu.shared_granule_bytes)
    if barriers is None:
        barriers = 1 if warps > 1 else 0
    file_registers = cu.registers_bytes // REGISTER_BYTES // cu.schedulers
    limits = {
        "workgroups": cu.workgroups,
        "warps": cu.warps // warps,
        "threads": cu.threads // (warps * cu.lanes_per_warp),
    }
    if registers:
        limits["registers_bytes"] = file_registers // registers * cu.schedulers // warps
    if scalar_registers and cu.scalar_registers:
        waves = cu.scalar_registers // _round_up(scalar_registers, SCALAR_GRANULE)
        limits["scalar_registers"] = waves * cu.schedulers // warps
    if shared:
        limits["shared_bytes"] = cu.shared_bytes // shared
    if barriers:
        limits["barriers"] = cu.barriers // barriers
    limiter = min(limits, key=lambda name: limits[name])
    if limits[limiter] == 0:
        needs = f"{threads} threads, {registers_per_thread} registers per thread, {shared_bytes} bytes of shared memory"
        raise UserError(f"a workgroup of {needs} does not fit on a CU: cu.{limiter} = {getattr(cu, limiter)}")
    return Occupancy(
        workgroups=limits[limiter],
        limiter=limiter,
        warps_per_workgroup=warps,
        registers_per_workgroup=registers * warps,
        shared_per_workgroup=shared,
        warps=limits[limiter] * warps,
        limits=limits,
        takes=(1, warps, warps * cu.lanes_per_warp, registers * warps, shared, barriers),
    )


def occupancy_of(cu: ComputeUnit, info: KernelInfo) -> Occupancy:
    """As `occupancy`, of a kernel of a trace."""
    return occupancy(cu, prod(info.block), info.registers, info.shared_bytes)


def held(cu: ComputeUnit) -> tuple[int, ...]:
    """Amounts of `sim.hw.residency.RESOURCES` that a CU has."""
    return (cu.workgroups, cu.warps, cu.threads, cu.registers_bytes // REGISTER_BYTES, cu.shared_bytes, cu.barriers)


def kernel_occupancy(
    cu: ComputeUnit, kernel: KernelResources, threads: int | None = None, dynamic_shared_bytes: int = 0
) -> Occupancy:
    """Occupancy of a kernel from the description in its binary.

    Args:
        threads: per workgroup; None = the number that the binary requires, or else the largest that it allows.

    Raises:
        UserError: the workgroup size is unknown or the binary forbids it, the wavefront size differs from that of
            the machine, or no workgroup fits.
    """
    if kernel.lanes_per_warp != cu.lanes_per_warp:
        raise UserError(
            f"kernel {kernel.plain_name}: {kernel.architecture} has {kernel.lanes_per_warp} lanes per warp, "
            f"the machine has cu.lanes_per_warp = {cu.lanes_per_warp}"
        )
    return occupancy(
        cu,
        _threads(kernel, threads),
        kernel.registers,
        kernel.shared_variable_bytes + dynamic_shared_bytes,
        barriers=kernel.barriers,
        scalar_registers=kernel.sgprs or 0,
    )


def _threads(kernel: KernelResources, threads: int | None) -> int:
    """The workgroup's size, checked against the limits of the binary."""
    required = None
    if kernel.required_threads is not None:
        x, y, z = kernel.required_threads
        required = x * y * z
    wanted = threads or required or kernel.max_threads
    if wanted is None:
        raise UserError(f"kernel {kernel.plain_name}: the binary states no workgroup size; give the threads")
    if required is not None and wanted != required:
        raise UserError(f"kernel {kernel.plain_name}: {wanted} threads, the binary requires {required}")
    if kernel.max_threads is not None and wanted > kernel.max_threads:
        raise UserError(f"kernel {kernel.plain_name}: {wanted} threads, the binary allows {kernel.max_threads}")
    return wanted


def _check(cu, threads, registers_per_thread, shared_bytes):
    if not 1 <= threads <= cu.workgroup_threads:
        raise UserError(
            f"workgroup of {threads} threads, allowed are 1 to cu.workgroup_threads = {cu.workgroup_threads}"
        )
    if registers_per_thread < 0 or shared_bytes < 0:
        raise UserError(
            f"{registers_per_thread} registers per thread and {shared_bytes} bytes of shared memory; "
            "neither may be negative"
        )


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule
