"""The source line of each program counter of one kernel."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tracer.elf import cuda
from tracer.elf.device_images import device_images
from tracer.elf.image import SYMBOL_FUNCTION, Image, Symbol, reading
from tracer.elf.line_header import Strings
from tracer.elf.line_program import Row, line_rows
from tracer.elf.names import plain_name
from traces.errors import UserError

SECTION = ".debug_line"
NO_FILE = -1
NO_LINE = 0
LISTED = 8  # names in an error
PC_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class LineTable:
    """Ranges of program counters, each with its source line.

    Range i is `[pcs[i], pcs[i + 1])`. The last range ends at `end_pc`. Program counters count bytes from the first
    instruction of the kernel, as tracers print them. Inlined code has the line of the inlined function.
    """

    kernel: str
    architecture: str
    files: tuple[str, ...]
    pcs: np.ndarray  # u8 [ranges], ascending
    file_numbers: np.ndarray  # i4 [ranges], index in `files`, NO_FILE between sequences
    lines: np.ndarray  # i4 [ranges], NO_LINE between sequences
    end_pc: int

    def rows(self) -> list[tuple[int, str, int]]:
        """(pc, file, line) of every range."""
        return [
            (int(pc), self.files[number] if number >= 0 else "", int(line))
            for pc, number, line in zip(self.pcs, self.file_numbers, self.lines, strict=True)
        ]

    def ranges_of(self, pcs: np.ndarray) -> np.ndarray:
        """Index of the range of each program counter. If the table has no line for it: the number of ranges."""
        pcs = np.asarray(pcs, np.uint64)
        at = np.searchsorted(self.pcs, pcs, side="right") - 1
        known = (at >= 0) & (pcs < self.end_pc)
        known[known] = self.lines[at[known]] != NO_LINE
        return np.where(known, at, len(self.pcs))

    def place_of(self, pc: int) -> str:
        """ "file:line" of a program counter; "" = not in the table."""
        at = int(self.ranges_of(np.array([pc]))[0])
        return f"{self.files[self.file_numbers[at]]}:{self.lines[at]}" if at < len(self.pcs) else ""


def line_table(path: str | Path, kernel: str, architecture: str | None = None) -> LineTable:
    """The line table of a kernel.

    Args:
        path: any file that `device_images` reads, built with line information.
        kernel: name as in the binary, or a plain name that only one kernel has.
        architecture: the member to read if several have the kernel.

    Raises:
        UserError: no kernel matches, several kernels match, or there is no line information.
    """
    matches = [
        (image, device.architecture, symbol)
        for device in device_images(path)
        if (image := device.image) is not None and architecture in (None, device.architecture)
        for symbol in _kernels(image)
        if kernel in (symbol.name, plain_name(symbol.name))
    ]
    if not matches:
        raise UserError(_no_such_kernel(path, kernel, architecture))
    if len(matches) > 1:
        choices = ", ".join(f"{symbol.name} for {machine}" for _, machine, symbol in matches[:LISTED])
        raise UserError(f"{path}: {len(matches)} kernels are called {kernel}: {choices}; name one and its architecture")
    image, machine, symbol = matches[0]
    with reading(f"{image.where}: section {SECTION}"):
        if rows := _rows_of(image, symbol):
            return _table(symbol, machine, rows)
    raise UserError(
        f"{path}: no line table for kernel {kernel}; build it with -lineinfo (nvcc) or -gline-tables-only (clang)"
    )


def _kernels(image: Image) -> list[Symbol]:
    marked = cuda.ENTRY if cuda.is_cubin(image) else 0
    return [s for s in image.symbols() if s.kind == SYMBOL_FUNCTION and s.section and s.other & marked == marked]


def _no_such_kernel(path, kernel, architecture) -> str:
    names = {
        f"{plain_name(symbol.name)} ({device.architecture})"
        for device in device_images(path)
        if device.image is not None
        for symbol in _kernels(device.image)
    }
    wanted = kernel if architecture is None else f"{kernel} for {architecture}"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{path}: no kernel {wanted}, only {', '.join(sorted(names)[:LISTED]) or 'none'}{more}"


def _rows_of(image: Image, kernel: Symbol) -> list[Row]:
    """Rows of one kernel. Their addresses count from its first instruction."""
    section = image.section(SECTION)
    if section is None:
        return []
    strings = [image.section(name) for name in (".debug_str", ".debug_line_str")]
    rows = line_rows(section.data, Strings(*(s.data if s else b"" for s in strings)))
    relocated = {entry.offset: entry for entry in image.relocations(SECTION)}
    symbols = image.symbols()
    kernel_rows = []
    for row in rows:
        address, owner = row.address, kernel.section
        if entry := relocated.get(row.origin):
            target = symbols[entry.symbol]
            address, owner = (address + target.value + entry.addend) & PC_MASK, target.section
        inside = 0 <= address - kernel.value < kernel.size or (row.ends and address - kernel.value == kernel.size)
        if owner == kernel.section and inside:
            kernel_rows.append(row._replace(address=address - kernel.value))
    return kernel_rows


def _table(kernel: Symbol, architecture: str, rows: list[Row]) -> LineTable:
    """Sorted ranges. Of several rows at one address the last counts; it is the innermost inlined line.

    Neighbouring rows of the same line are one range.
    """
    last: dict[int, Row] = {}
    for row in rows:
        if not (row.ends and row.address in last):  # a sequence may begin where another ends
            last[row.address] = row
    ordered: list[Row] = []
    for address in sorted(last):
        row = last[address]
        if not ordered or (row.file, row.line, row.ends) != (ordered[-1].file, ordered[-1].line, ordered[-1].ends):
            ordered.append(row)
    files = tuple(sorted({row.file for row in ordered if not row.ends}))
    number = {file: i for i, file in enumerate(files)}
    return LineTable(
        kernel=kernel.name,
        architecture=architecture,
        files=files,
        pcs=np.array([row.address for row in ordered], np.uint64),
        file_numbers=np.array([NO_FILE if row.ends else number[row.file] for row in ordered], np.int32),
        lines=np.array([NO_LINE if row.ends else row.line for row in ordered], np.int32),
        end_pc=kernel.size,
    )
