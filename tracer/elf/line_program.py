"""Run the line-number programs of `.debug_line` (DWARF 5 standard, section 6.2) and give rows of address and line.

The rows of a CUDA binary are relative to an address that is known only from a relocation. So each row keeps the offset
in the section at which its base address is written (`origin`).
"""

from collections.abc import Iterator
from typing import NamedTuple

from tracer.elf.cursor import Cursor
from tracer.elf.line_header import Header, Strings, read_header

# standard opcodes (section 6.2.5.2)
COPY, ADVANCE_PC, ADVANCE_LINE, SET_FILE, CONST_ADD_PC, FIXED_ADVANCE_PC = 1, 2, 3, 4, 8, 9
# extended opcodes (section 6.2.5.3); NVIDIA's own opcodes, which name inlined functions, are skipped
END_SEQUENCE, SET_ADDRESS = 1, 2
SPECIAL_OF_CONST_ADD = 255


class Row(NamedTuple):
    """Code that begins at `address` belongs to `line` of `file`. A row with `ends` closes its sequence."""

    origin: int  # offset in the section of the base address; -1 = none yet
    address: int
    file: str
    line: int
    ends: bool


def line_rows(data: bytes, strings: Strings) -> Iterator[Row]:
    """Rows of all programs of a `.debug_line` section, in program order.

    Raises:
        ValueError: the section is damaged.
    """
    section = Cursor(data)
    while section.at < section.end:
        header = read_header(section, strings)
        yield from _Machine(header).run(section.part(header.start, header.end))
        section.at = header.end


class _Machine:
    """The line-number state machine (section 6.2.2), with the registers that are needed here."""

    def __init__(self, header: Header):
        self.header = header
        self.reset()

    def reset(self) -> None:
        self.origin, self.address, self.file, self.line = -1, 0, 1, 1

    def row(self, ends: bool = False) -> Row:
        files = self.header.files
        name = files[self.file] if self.file < len(files) else ""
        return Row(self.origin, self.address, name, self.line, ends)

    def run(self, program: Cursor) -> Iterator[Row]:
        opcode_base = len(self.header.operands) + 1
        while program.at < program.end:
            opcode = program.unsigned(1)
            if opcode >= opcode_base:
                self.special(opcode - opcode_base)
                yield self.row()
            elif opcode == 0:
                if self.extended(program):
                    yield self.row(ends=True)
                    self.reset()
            elif opcode == COPY:
                yield self.row()
            else:
                self.standard(opcode, program)

    def special(self, adjusted: int) -> None:
        self.address += adjusted // self.header.line_range * self.header.instruction_bytes
        self.line += self.header.line_base + adjusted % self.header.line_range

    def standard(self, opcode: int, program: Cursor) -> None:
        if opcode == ADVANCE_PC:
            self.address += program.uleb() * self.header.instruction_bytes
        elif opcode == ADVANCE_LINE:
            self.line += program.sleb()
        elif opcode == SET_FILE:
            self.file = program.uleb()
        elif opcode == CONST_ADD_PC:
            adjusted = SPECIAL_OF_CONST_ADD - len(self.header.operands) - 1
            self.address += adjusted // self.header.line_range * self.header.instruction_bytes
        elif opcode == FIXED_ADVANCE_PC:
            self.address += program.unsigned(2)
        else:
            for _ in range(self.header.operands[opcode - 1]):
                program.uleb()

    def extended(self, program: Cursor) -> bool:
        """Run an extended opcode. True if it ends the sequence."""
        count = program.uleb()
        start = program.at
        program.skip(count)
        kind = program.data[start] if count else 0
        if kind == SET_ADDRESS:
            self.origin = start + 1
            self.address = int.from_bytes(program.data[start + 1 : start + count], "little")
        return kind == END_SEQUENCE
