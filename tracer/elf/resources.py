"""Resources that one kernel needs of a compute unit, from its binary."""

from dataclasses import dataclass

from tracer.elf.nvinfo import Parameter


@dataclass(frozen=True)
class KernelResources:
    """Resources of one kernel for one architecture. None = the binary does not give the value.

    `shared_static_bytes` is the shared memory that the binary allocates. It contains the part that the system reserves
    (`shared_reserved_bytes`, 1,024 for sm_90 and newer) but no memory that a launch adds at run time.
    """

    name: str  # as in the binary, mangled
    plain_name: str  # readable, without template arguments and parameters
    architecture: str  # sm_90, gfx90a, ...
    registers: int  # vector registers per thread; AMD: architectural and accumulation registers together
    agprs: int | None  # AMD: accumulation registers; part of `registers` if the file is unified
    sgprs: int | None  # AMD: scalar registers per wavefront
    shared_static_bytes: int
    shared_reserved_bytes: int
    local_bytes: int  # stack and spills per thread
    constant_bytes: tuple[tuple[int, int], ...]  # (bank, bytes)
    max_threads: int | None  # per workgroup, promised to the compiler
    required_threads: tuple[int, int, int] | None  # exact workgroup size
    barriers: int | None  # hardware barriers used
    parameters: tuple[Parameter, ...]
    lanes_per_warp: int
    source: str  # member of the file

    @property
    def shared_variable_bytes(self) -> int:
        """Static shared memory of the program's variables, as `ptxas -v` prints it."""
        return self.shared_static_bytes - self.shared_reserved_bytes
