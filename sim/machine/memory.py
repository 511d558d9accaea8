"""The memory that a machine takes in the simulator, estimated before it is taken."""

from contextlib import suppress
from pathlib import Path

from sim.hw.cu_record import CU
from sim.hw.hbm.record import CHANNEL
from sim.hw.l1 import L1
from sim.hw.l2_record import waiting_places
from sim.hw.link_record import ring_places
from sim.hw.lsu_record import LSU
from sim.hw.peers_record import MESSAGE, mail_places
from sim.hw.request import LINE_BYTES, REQUEST
from sim.hw.tags import CACHE_SET
from sim.hw.warp import WARPS
from sim.machine.wiring import wire
from sim.spec import Machine
from traces.errors import UserError
from traces.units import KIB, bytes_text

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

TILE_BYTES = 1024
"""Of the tables of a plan, for each tile of each GPU: twice the records of tile, wavefront, send and dry run."""
MEMINFO, STATM = Path("/proc/meminfo"), Path("/proc/self/statm")
CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def machine_bytes(machine: Machine, ports: int = 0, loads: bool = False) -> dict[str, int]:
    """Bytes of one GPU by the fields that decide them. loads: its CUs load from other GPUs."""
    cu, l1, l2, msc = machine.cu, machine.l1, machine.l2, machine.msc
    rings = sum(1 << (depth - 1).bit_length() for depth in wire(machine, ports, loads)[0].depths)
    credits = max(machine.link.credits, machine.network.credits if machine.network.node_gpus else 0)
    sets = {"l1": l1.bytes // (l1.ways * LINE_BYTES) * cu.count, "l2": l2.bytes // (l2.ways * LINE_BYTES)}
    return {
        "fifos (l2.mshrs, l2.mshr_merges, fifo depths)": rings * REQUEST.itemsize,
        "l2.mshrs x l2.mshr_merges": l2.banks * waiting_places(l2) * REQUEST.itemsize,
        "l1.bytes x cu.count": sets["l1"] * CACHE_SET.itemsize,
        "l2.bytes": sets["l2"] * CACHE_SET.itemsize,
        "msc.bytes": msc.bytes // (msc.ways * LINE_BYTES) * CACHE_SET.itemsize,
        "msc.mshrs x msc.mshr_merges": (
            machine.hbm.channels * msc.mshrs * msc.mshr_merges * REQUEST.itemsize if msc.bytes else 0
        ),
        "cu.count": cu.count * sum(record.itemsize for record in (CU, LSU, L1, WARPS)),
        "hbm.channels": machine.hbm.channels * CHANNEL.itemsize,
        "link.credits": ports * ring_places(credits) * (REQUEST.itemsize + 8),
    }


def check_memory(machine: Machine, ports: int, gpus: int = 1, loads: bool = False) -> None:
    """Refuse GPUs that do not fit into the available memory.

    Args:
        ports: links of each GPU in each direction.
        gpus: number of simulated GPUs.
        loads: their CUs load from other GPUs.

    Raises:
        UserError: names what takes most, the needed and the available memory.
    """
    parts, available = machine_bytes(machine, ports, loads), available_bytes()
    needed = gpus * sum(parts.values())
    if available is not None and needed > available:
        largest = max(parts, key=lambda part: parts[part])
        raise UserError(
            f"machine: needs about {bytes_text(needed)} of memory for {gpus} simulated GPU{'s' * (gpus > 1)}, most of "
            f"it for {largest}; {bytes_text(available)} are available"
        )


def check_plan_memory(tiles: int, gpus: int) -> None:
    """Refuse plans whose tables do not fit into the available memory. All GPUs have a plan, simulated or not.

    Args:
        tiles: of the output. gpus: number of GPUs.

    Raises:
        UserError: names the needed and the available memory.
    """
    needed, available = tiles * gpus * TILE_BYTES, available_bytes()
    if available is not None and needed > available:
        raise UserError(
            f"plan: {tiles:,} tiles on {gpus} GPUs need about {bytes_text(needed)} of memory, {bytes_text(available)} "
            "are available; larger tiles, or fewer GPUs"
        )


def check_mail_memory(machine: Machine) -> None:
    """Refuse a kernel with clusters of workgroups if the mail of the CUs does not fit into the available memory.

    Raises:
        UserError: names what decides it, the needed and the available memory.
    """
    needed, available = machine.cu.count * mail_places(machine) * MESSAGE.itemsize, available_bytes()
    if available is not None and needed > available:
        raise UserError(
            f"clusters of workgroups need about {bytes_text(needed)} of memory (cu.count x l1.mshrs x CUs of a "
            f"group), {bytes_text(available)} are available; more cu.groups, or fewer l1.mshrs"
        )


def available_bytes() -> int | None:
    """Memory that this process can still take; None = unknown on this system."""
    found = []
    with suppress(OSError):
        lines = (line.split() for line in MEMINFO.read_text().splitlines())
        found += [int(line[1]) * KIB for line in lines if line[0] == "MemAvailable:"]
    with suppress(OSError, ValueError):
        found.append(int(CONTAINER_LIMIT.read_text()))
    with suppress(OSError):
        limit = resource.getrlimit(resource.RLIMIT_AS)[0] if resource else -1
        if resource and limit != resource.RLIM_INFINITY:
            found.append(limit - int(STATM.read_text().split()[0]) * resource.getpagesize())
    return min(found, default=None)
