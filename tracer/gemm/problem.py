"""The matrices of C = A B (+ C): shape, element size, layout and address. Independent of kernel and timing."""

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

from traces.bounds import Bound, check_whole_numbers
from traces.errors import UserError
from traces.source import Moved

REGION_BYTES = 2 << 20
"""Matrices without a given address start at multiples of this (a large page), one after the other."""
FIRST_ADDRESS = 1 << 36
"""Address of the first of these matrices. It is far from 0, so a wrong base is easy to see."""
ELEMENT_BYTES = (1, 2, 4, 8)
EXTENT = Bound(1, 1 << 24, "far more than the rows of any matrix of a model")
EXTENTS = {"m": EXTENT, "n": EXTENT, "k": EXTENT}


class Layout(IntEnum):
    ROW = 0  # elements of a row are adjacent
    COLUMN = 1  # elements of a column are adjacent


@dataclass(frozen=True)
class Matrix:
    """A dense matrix in memory."""

    name: str
    rows: int
    columns: int
    element_bytes: int
    layout: Layout
    leading_dimension: int  # elements from one row (ROW) or column (COLUMN) to the next
    address: int  # byte address of element (0, 0)

    @property
    def pitch_bytes(self) -> int:
        """Bytes from one row (ROW) or column (COLUMN) to the next."""
        return self.leading_dimension * self.element_bytes

    @property
    def span_bytes(self) -> int:
        """Bytes from the first element to the end of the last."""
        runs, run = (self.rows, self.columns) if self.layout == Layout.ROW else (self.columns, self.rows)
        return (runs - 1) * self.pitch_bytes + run * self.element_bytes

    @property
    def end(self) -> int:
        """Address after the last element."""
        return self.address + self.span_bytes

    def adjacent(self, rows: int, columns: int) -> int:
        """Elements side by side in a part of so many rows and columns."""
        return columns if self.layout == Layout.ROW else rows


@dataclass(frozen=True)
class GemmProblem:
    """C[m, n] = A[m, k] B[k, n]. The old C is added if `with_c` is set.

    Sizes are in elements. By default matrices are dense, and each has its own region of addresses. The matrix that the
    epilogue reads (`with_c`) has the shape and layout of C. It has its own region too, unless `c_source_address` gives
    its address (for example the address of C).

    Raises:
        UserError: an impossible size or address.
    """

    m: int
    n: int
    k: int
    a_bytes: int = 2
    b_bytes: int = 2
    c_bytes: int = 2
    accumulate_bytes: int = 4
    a_layout: Layout = Layout.ROW
    b_layout: Layout = Layout.ROW
    c_layout: Layout = Layout.ROW
    lda: int | None = None
    ldb: int | None = None
    ldc: int | None = None
    a_address: int | None = None
    b_address: int | None = None
    c_address: int | None = None
    with_c: bool = False
    c_source_address: int | None = None

    def __post_init__(self):
        check_whole_numbers("GEMM", self, EXTENTS)
        for field in ("a_bytes", "b_bytes", "c_bytes", "accumulate_bytes"):
            if getattr(self, field) not in ELEMENT_BYTES:
                raise UserError(f"GEMM {field} = {getattr(self, field)!r}: must be one of {ELEMENT_BYTES}")
        matrices = (self.a, self.b, self.c, self.c_source)
        for matrix in matrices:
            _check_matrix(matrix)
        for matrix in (self.a, self.b):
            if matrix.address < self.c.end and self.c.address < matrix.end:
                raise UserError(f"GEMM output C at {self.c.address:#x} overlaps {matrix.name} at {matrix.address:#x}")

    @cached_property
    def a(self) -> Matrix:
        return self._matrix("A", self.m, self.k, FIRST_ADDRESS)

    @cached_property
    def b(self) -> Matrix:
        return self._matrix("B", self.k, self.n, next_region(self.a.end))

    @cached_property
    def c(self) -> Matrix:
        """The output."""
        return self._matrix("C", self.m, self.n, next_region(self.b.end))

    @cached_property
    def c_source(self) -> Matrix:
        """The matrix that the epilogue reads with `with_c`."""
        address = next_region(self.c.end) if self.c_source_address is None else self.c_source_address
        c = self.c
        return Matrix("C (source)", c.rows, c.columns, c.element_bytes, c.layout, c.leading_dimension, address)

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return self.m * self.n * self.k

    @property
    def moved_bytes(self) -> Moved:
        """A, B and the old C are read, C is written."""
        operands = self.k * (self.m * self.a_bytes + self.n * self.b_bytes)
        return Moved(operands + self.with_c * self.output_bytes, self.output_bytes)

    @property
    def output_bytes(self) -> int:
        """Elements of C times their size."""
        return self.m * self.n * self.c_bytes

    def _matrix(self, name: str, rows: int, columns: int, default_address: int) -> Matrix:
        letter = name.lower()
        layout = Layout(getattr(self, f"{letter}_layout"))
        leading = getattr(self, f"ld{letter}")
        if leading is None:
            leading = columns if layout == Layout.ROW else rows
        address = getattr(self, f"{letter}_address")
        address = default_address if address is None else address
        return Matrix(name, rows, columns, getattr(self, f"{letter}_bytes"), layout, leading, address)


def spelled_out(problem: GemmProblem) -> GemmProblem:
    """The same problem with all leading dimensions and addresses given."""
    leading = {f"ld{name}": getattr(problem, name).leading_dimension for name in "abc"}
    addresses = {f"{name}_address": getattr(problem, name).address for name in ("a", "b", "c", "c_source")}
    return replace(problem, **leading, **addresses)


def padded_leading_dimension(elements: int, element_bytes: int, alignment_bytes: int) -> int:
    """`elements` rounded up so that every row starts at a multiple of `alignment_bytes`."""
    step = max(1, alignment_bytes // element_bytes)
    return -(-elements // step) * step


def next_region(end: int) -> int:
    """The first multiple of REGION_BYTES from address `end` on."""
    return -(-end // REGION_BYTES) * REGION_BYTES


def _check_matrix(matrix: Matrix) -> None:
    field = f"GEMM matrix {matrix.name}"
    run = matrix.adjacent(matrix.rows, matrix.columns)
    if matrix.leading_dimension < run:
        shape = f"{matrix.layout.name.lower()}-major {matrix.rows} x {matrix.columns}"
        raise UserError(f"{field}: leading dimension {matrix.leading_dimension}, must be >= {run} for a {shape} matrix")
    if matrix.address < 0 or matrix.address % matrix.element_bytes:
        raise UserError(f"{field}: address {matrix.address:#x}, must be >= 0 and a multiple of {matrix.element_bytes}")
    if matrix.end > 1 << 62:
        raise UserError(f"{field}: ends at {matrix.end:#x}, beyond the 62-bit address space")
