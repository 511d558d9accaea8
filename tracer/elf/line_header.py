"""The header of one line-number program of `.debug_line`, DWARF 2 to 5.

pyelftools reads these only through the compilation units of `.debug_info`, which `nvcc -lineinfo` does not write.
Section and table numbers refer to the DWARF 5 standard.
"""

from typing import NamedTuple

from tracer.elf.cursor import Cursor
from tracer.elf.image import text

PATH, DIRECTORY_INDEX = 1, 2  # DW_LNCT_... (section 6.2.4.1)
# DW_FORM_... that can describe a file (section 7.5.6): size, or how to read it
FIXED_FORMS = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x1E: 16}
FORM_STRING, FORM_STRP, FORM_LINE_STRP, FORM_UDATA, FORM_BLOCK = 0x08, 0x0E, 0x1F, 0x0F, 0x09
DWARF_64 = 0xFFFFFFFF


class Strings(NamedTuple):
    """The string sections to which a DWARF 5 header can refer."""

    debug_str: bytes
    debug_line_str: bytes


class Header(NamedTuple):
    version: int
    end: int  # of this program, in the section
    start: int  # of its opcodes
    instruction_bytes: int
    line_base: int
    line_range: int
    operands: list[int]  # of the standard opcodes, by opcode - 1
    files: list[str]  # by file number


def read_header(section: Cursor, strings: Strings) -> Header:
    """The header at the cursor.

    Raises:
        ValueError: an unknown version or form, or a program that ends outside the section.
    """
    unit_bytes = section.unsigned(4)
    offset_bytes = 4
    if unit_bytes == DWARF_64:
        offset_bytes, unit_bytes = 8, section.unsigned(8)
    end = section.at + unit_bytes
    if end > section.end:
        raise ValueError(f"line program of {unit_bytes} bytes leaves .debug_line")
    version = section.unsigned(2)
    if not 2 <= version <= 5:
        raise ValueError(f"line program of DWARF version {version}, known are 2 to 5")
    if version >= 5:
        section.skip(2)  # address and segment selector sizes
    header_bytes = section.unsigned(offset_bytes)
    start = section.at + header_bytes
    instruction_bytes = section.unsigned(1)
    section.skip(2 if version >= 4 else 1)  # operations per instruction, default is_stmt
    line_base, line_range = section.signed_byte(), section.unsigned(1)
    operands = [section.unsigned(1) for _ in range(section.unsigned(1) - 1)]
    if line_range == 0 or not section.at <= start <= end:
        raise ValueError(f"line program header of {header_bytes} bytes, line range {line_range}")
    table = section.part(section.at, start)
    files = _files_5(table, strings, offset_bytes) if version >= 5 else _files_2(table)
    return Header(version, end, start, instruction_bytes, line_base, line_range, operands, files)


def _files_2(table: Cursor) -> list[str]:
    """Files of DWARF 2 to 4. Files and directories are numbered from 1. Directory 0 is the compilation folder."""
    directories, files = [""], [""]
    while name := table.string():
        directories.append(name)
    while name := table.string():
        directory = table.uleb()
        table.uleb()  # time
        table.uleb()  # length
        files.append(_joined(directories, directory, name))
    return files


def _files_5(table: Cursor, strings: Strings, offset_bytes: int) -> list[str]:
    """Files of DWARF 5, numbered from 0 and described by forms."""
    directories = [str(entry.get(PATH, "")) for entry in _entries(table, strings, offset_bytes)]
    return [
        _joined(directories, int(entry.get(DIRECTORY_INDEX, 0)), str(entry.get(PATH, "")))
        for entry in _entries(table, strings, offset_bytes)
    ]


def _entries(table: Cursor, strings: Strings, offset_bytes: int) -> list[dict[int, int | str]]:
    """Content type -> value, for each directory or file."""
    columns = [(table.uleb(), table.uleb()) for _ in range(table.unsigned(1))]
    count = table.uleb()
    if count > table.end:  # every entry has at least one byte
        raise ValueError(f"line program lists {count} files")
    return [{content: _value(table, form, strings, offset_bytes) for content, form in columns} for _ in range(count)]


def _value(table: Cursor, form: int, strings: Strings, offset_bytes: int) -> int | str:
    if form == FORM_STRING:
        return table.string()
    if form == FORM_STRP:
        return text(strings.debug_str, table.unsigned(offset_bytes))
    if form == FORM_LINE_STRP:
        return text(strings.debug_line_str, table.unsigned(offset_bytes))
    if form == FORM_UDATA:
        return table.uleb()
    if form == FORM_BLOCK:
        table.skip(table.uleb())
        return 0
    if form in FIXED_FORMS:
        return table.unsigned(FIXED_FORMS[form])
    raise ValueError(f"DWARF form {form:#x} in a line program header")


def _joined(directories: list[str], number: int, name: str) -> str:
    if name.startswith("/") or not directories[number]:
        return name
    return f"{directories[number]}/{name}"
