"""Tensors of an operator: where they lie, and which part of them a row of the work touches."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from tracer.gemm.problem import FIRST_ADDRESS, next_region
from traces.errors import UserError
from traces.schema import Pipe

__all__ = ["ADDRESS_END", "FIRST_ADDRESS", "Tensor", "Use", "arithmetic_pipe", "regions"]

ADDRESS_END = 1 << 62
ALIGNMENT_BYTES = 16


class Use(IntEnum):
    """What a kernel does with a tensor."""

    READ = 0
    WRITE = 1
    UPDATE = 2  # read, then written at the same place


@dataclass(frozen=True)
class Tensor:
    """A tensor that a kernel works on row by row, column by column.

    Attributes:
        address: first byte.
        bytes: of an element.
        use: read, written or both.
        share: neighbouring rows of the work that use one row of this tensor (all rows: a vector of `cols` elements).
        pitch_bytes: from row to row of this tensor; 0 = the rows are adjacent.
        repeat: number of slices of this tensor that are read for each element.
        step_bytes: from slice to slice.
        per_row: one element per row instead of `cols`.
        indexed: its place is read from the tensor before it, so its load waits for that one.
    """

    address: int
    bytes: int
    use: Use = Use.READ
    share: int = 1
    pitch_bytes: int = 0
    repeat: int = 1
    step_bytes: int = 0
    per_row: bool = False
    indexed: bool = False

    def whole_bytes(self, rows: int, cols: int) -> int:
        """Size of all that `rows` rows of the work touch."""
        return -(-rows // self.share) * (1 if self.per_row else cols) * self.bytes * self.repeat

    def pitch(self, cols: int) -> int:
        """Bytes from row to row."""
        return self.pitch_bytes or (1 if self.per_row else cols) * self.bytes


def arithmetic_pipe(element_bytes: Iterable[int]) -> Pipe:
    """Pipe of additions and multiplications of elements of these sizes: an operand of 8 bytes makes them fp64."""
    return Pipe.FP64 if 8 in element_bytes else Pipe.FMA


def regions(address: int, sizes_bytes: Iterable[int]) -> tuple[int, ...]:
    """Addresses of buffers of these sizes: the first at `address`, each further one at a multiple of 2 MiB.

    Raises:
        UserError: the address is negative or not a multiple of 16, or a buffer ends beyond the address space.
    """
    if address < 0 or address % ALIGNMENT_BYTES:
        raise UserError(f"address = {address}: must be >= 0 and a multiple of {ALIGNMENT_BYTES}")
    addresses = [address]
    for size_bytes in sizes_bytes:
        addresses.append(next_region(addresses[-1] + size_bytes))
    if addresses[-1] > ADDRESS_END:
        raise UserError(f"a buffer of {max(sizes_bytes, default=0):,} bytes: ends beyond the 62-bit address space")
    return tuple(addresses[:-1])
