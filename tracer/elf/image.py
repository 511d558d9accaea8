"""An ELF image in memory: header, sections and symbols. Every kind of damage gives a UserError.

pyelftools reads the header and the section table. Symbols are read here, because CUDA marks kernels with a bit of
`st_other` that pyelftools does not keep. Relocations are read here, because pyelftools refuses the CUDA types.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any, NamedTuple

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

from traces.errors import UserError

DAMAGE = (
    ELFError,
    DWARFError,
    ConstructError,
    struct.error,
    zlib.error,
    # raised by pyelftools and our decoders if an offset or a count in the file is wrong
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    EOFError,
    OSError,
    OverflowError,
    MemoryError,
)
SYMBOL = struct.Struct("<IBBHQQ")  # st_name, st_info, st_other, st_shndx, st_value, st_size
SYMBOL_FUNCTION = 2
SYMBOL_OBJECT = 1
WITHOUT_BYTES = ("SHT_NOBITS", "SHT_NULL")
HEADER_BYTES = 64
SECTION_HEADER_BYTES = 64
SECTION_TABLE = struct.Struct("<40xQ10xHH")  # of the ELF header: e_shoff, e_shentsize, e_shnum
COUNT_OF_MANY = struct.Struct("<32xQ")  # sh_size of the first section header
RELOCATION = {"SHT_REL": struct.Struct("<QQ"), "SHT_RELA": struct.Struct("<QQq")}


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn the errors of a damaged file inside the block into one UserError that names `where`."""
    try:
        yield
    except DAMAGE as cause:
        detail = str(cause) or type(cause).__name__
        raise UserError(f"{where}: damaged or truncated: {detail}") from cause


class Section(NamedTuple):
    """One section. `size` is its size in memory, so it is right for sections without bytes in the file (.nv.shared)."""

    number: int
    name: str
    kind: str  # SHT_...
    flags: int
    info: int
    link: int
    address: int
    size: int
    start: int  # in the file
    whole: bytes  # the file

    @property
    def data(self) -> bytes:
        """A copy of its bytes; empty if it has none in the file."""
        return self.whole[self.start : self.start + self.size]


class Symbol(NamedTuple):
    name: str
    kind: int  # SYMBOL_FUNCTION, SYMBOL_OBJECT, ...
    other: int  # visibility and vendor bits
    section: int
    value: int
    size: int


class Relocation(NamedTuple):
    offset: int  # in the section that is relocated
    symbol: int  # index in the symbol table
    addend: int


class Image:
    """A 64-bit little-endian ELF file held in memory.

    Attributes:
        where: name in errors: the path, and the member if it is inside another file.
        machine: `EM_CUDA`, `EM_AMDGPU`, `EM_X86_64`, ... (or the number).
        os_abi: the EI_OSABI byte.
        flags: e_flags.
        sections: list of Section in file order.
    """

    def __init__(self, data: bytes, where: str):
        self.where = where
        if data[:4] != b"\x7fELF":
            raise UserError(f"{where}: no ELF file (starts with {data[:4].hex(' ') or 'nothing'}, not 7f 45 4c 46)")
        if len(data) < HEADER_BYTES:
            raise UserError(f"{where}: truncated: {len(data)} bytes, an ELF header has {HEADER_BYTES}")
        if data[4:6] != b"\x02\x01":
            raise UserError(
                f"{where}: ELF class {data[4]}, byte order {data[5]}; only 64-bit little-endian (2, 1) is read"
            )
        self.os_abi = data[7]
        with reading(where):
            _check_section_table(data, where)
            elf = ELFFile(BytesIO(data))
            self.machine = elf["e_machine"]
            self.flags = elf["e_flags"]
            self.sections = [_section(i, s.name, s.header, data, where) for i, s in enumerate(elf.iter_sections())]
        self._by_name = {section.name: section for section in reversed(self.sections)}

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return self._by_name.get(name)

    def symbols(self) -> list[Symbol]:
        """The symbol table in file order (relocations use its indices). A stripped file gives its dynamic symbols."""
        for kind in ("SHT_SYMTAB", "SHT_DYNSYM"):
            for table in self.sections:
                if table.kind == kind:
                    with reading(f"{self.where}: section {table.name}"):
                        return _symbols(table.data, self.sections[table.link].data)
        return []

    def relocations(self, name: str) -> list[Relocation]:
        """Relocations of the section `name`. The addend of a SHT_REL entry is in the section itself."""
        target = self.section(name)
        relocations: list[Relocation] = []
        for table in self.sections:
            layout = RELOCATION.get(table.kind)
            if layout is None or target is None or table.info != target.number:
                continue
            with reading(f"{self.where}: section {table.name}"):
                for offset, info, *addend in layout.iter_unpack(table.data):
                    relocations.append(Relocation(offset, info >> 32, addend[0] if addend else 0))
        return relocations


def _check_section_table(data: bytes, where: str) -> None:
    """Refuse a section table that ends outside the file, before any code reads it."""
    start, entry_bytes, count = SECTION_TABLE.unpack_from(data)
    if start == 0:
        raise UserError(f"{where}: no section table, so nothing to read kernels from")
    if entry_bytes != SECTION_HEADER_BYTES or start + entry_bytes > len(data):
        raise UserError(
            f"{where}: truncated or damaged: section table at byte {start} of {len(data)}, "
            f"entries of {entry_bytes} bytes"
        )
    if count == 0:  # too many for the header: the size of the first entry is the number
        (count,) = COUNT_OF_MANY.unpack_from(data, start)
    if start + count * entry_bytes > len(data):
        raise UserError(f"{where}: truncated: {count} sections at byte {start} do not fit in {len(data)} bytes")


def _section(number: int, name: str, header: Mapping[str, Any], whole: bytes, where: str) -> Section:
    start, size = header["sh_offset"], header["sh_size"]
    in_file = header["sh_type"] not in WITHOUT_BYTES
    if in_file and start + size > len(whole):
        raise UserError(f"{where}: truncated: section {name} ends at byte {start + size} of {len(whole)}")
    return Section(
        number=number,
        name=name,
        kind=str(header["sh_type"]),
        flags=header["sh_flags"],
        info=header["sh_info"],
        link=header["sh_link"],
        address=header["sh_addr"],
        size=size,
        start=start if in_file else len(whole),
        whole=whole,
    )


def _symbols(table: bytes, names: bytes) -> list[Symbol]:
    return [
        Symbol(text(names, name), info & 15, other, section, value, size)
        for name, info, other, section, value, size in SYMBOL.iter_unpack(table)
    ]


def text(data: bytes, offset: int) -> str:
    """The zero-terminated string at `offset`.

    Raises:
        ValueError: no terminator before the end.
    """
    return data[offset : data.index(0, offset)].decode("utf-8", "replace")
