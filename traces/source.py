"""A kernel trace in memory, one workgroup at a time. Tracers make it, the archive stores it, the simulator replays it.

The archive reader, the Accel-Sim reader and the GEMM synthesiser all give `KernelSource` objects. So code that replays
or stores a trace does not depend on where the trace comes from. Nothing here holds more than one workgroup.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from traces.errors import UserError

LAST_ADDRESS = (1 << 63) - 1


class Workgroup(NamedTuple):
    """The events of one workgroup (thread block)."""

    index: int  # type: ignore[assignment]  # linear workgroup id in the grid: x + grid_x * (y + grid_y * z)
    warp: np.ndarray  # u2 [warps]: warp index within the workgroup
    first_event: np.ndarray  # i8 [warps + 1]: warp w owns events[first_event[w] : first_event[w + 1]]
    events: np.ndarray  # EVENT [events]
    addresses: np.ndarray  # u8: explicit lane addresses; `base` of an EXPLICIT event is an index into this array


@dataclass(frozen=True)
class KernelInfo:
    """Facts of a kernel that are known before its events are read."""

    name: str
    grid: tuple[int, int, int]  # workgroups
    block: tuple[int, int, int]  # threads
    lanes_per_warp: int
    registers: int  # per thread; 0 = unknown
    shared_bytes: int  # per workgroup, static and dynamic
    stream: int
    warps_per_workgroup: int
    workgroups: int  # in the trace (a tracer that streams gives the size of the grid until it has read all)
    attributes: dict[str, Any] = field(default_factory=dict)  # provenance; values that JSON can hold
    cluster: int = 1  # workgroups of a cluster: so many, next to each other in launch order, run at the same time


class Moved(NamedTuple):
    """Bytes of the data that a kernel reads and writes: tensors, each counted once, without indices and counters."""

    read: int
    written: int


@runtime_checkable
class KernelSource(Protocol):
    """One kernel. Its workgroups are read on demand. Kernels of models also have `moved_bytes` (Moved)."""

    @property
    def info(self) -> KernelInfo: ...

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups in launch order, starting at number `start`."""
        ...

    def fingerprint(self) -> str:
        """SHA-256 (hex) of everything that determines the content."""
        ...


@dataclass(frozen=True)
class Prefill:
    """A copy from the host that leaves `bytes` bytes at `address` in L2 (MemcpyHtoD)."""

    address: int
    bytes: int


def check_copy(copy: Prefill, where: str) -> None:
    """Refuse a copy that begins below address 0 or ends above 2^63.

    Raises:
        UserError: names the place, the field, what was found and what is allowed.
    """
    if not 0 <= copy.address <= LAST_ADDRESS:
        raise UserError(f"{where}: address of a copy: found {copy.address:#x}, allowed 0 to 2^63 - 1")
    if not 0 <= copy.bytes <= LAST_ADDRESS - copy.address:
        raise UserError(f"{where}: bytes of a copy: found {copy.bytes}, allowed 0 to where addresses end, 2^63 - 1")


@runtime_checkable
class TraceSource(Protocol):
    """Commands of one GPU in program order."""

    def commands(self) -> Iterator[KernelSource | Prefill]: ...

    def fingerprint(self) -> str:
        """SHA-256 (hex) of everything that determines the content."""
        ...


def warnings_of(source: TraceSource) -> list[str]:
    """Warnings of a reader of trace text so far (its `problems`) or of an archive, one line each. Others have none."""
    problems = getattr(source, "problems", None)
    return list(problems.lines()) if problems else stored_warnings(source)


def stored_warnings(source: TraceSource) -> list[str]:
    """Warnings that an archive has of the text from which it was made (its `warnings`)."""
    return list(getattr(source, "warnings", ()))


def read_for_warnings(source: TraceSource, kernel: KernelSource) -> None:
    """Read a kernel that needs no simulation, if its source is a text that can have warnings."""
    if hasattr(source, "problems"):
        for _ in kernel.workgroups():
            pass
