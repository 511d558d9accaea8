"""The header of a kernel's trace file: `-name = value` lines before the first line that begins with #."""

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path

from tracer.accelsim.clusters import SINGLE, Triple
from tracer.accelsim.instruction import LANES
from tracer.accelsim.latency import DEFAULT_ARCHITECTURE, TABLE_OF, TABLES, table_version
from tracer.accelsim.problems import Problems, TraceError
from traces.source import KernelInfo
from traces.version import VERSION

REGISTERS_MAX = 255
SHARED_BYTES_MAX = 1 << 20
GRID_MAX = 1 << 31
BLOCK_THREADS_MAX = 1024
ARCHITECTURE_END = 1000
VERSIONS = (1, 2, 3, 4, 5, 6)
OPTIONAL = ("enable lineinfo",)
"""Numbers that tracers before version 4 do not write."""
_TRIPLE = re.compile(r"\((\d+),(\d+),(\d+)\)")


@dataclass
class Header:
    """Values of the header."""

    path: Path
    name: str
    grid: Triple
    block: Triple
    kernel_id: int = 0
    shared_bytes: int = 0
    registers: int = 0
    architecture: int = DEFAULT_ARCHITECTURE
    stream: int = 0
    shared_base: int = 0
    local_base: int = 0
    nvbit: str = ""
    version: int = 0
    version_text: str = ""
    lineinfo: int = 0
    lines: int = 0  # lines read, with blank lines
    cluster: Triple = SINGLE  # workgroups of a cluster; not a line of the header

    @property
    def threads(self) -> int:
        return prod(self.block)

    @property
    def warps(self) -> int:
        """Number of warps of a workgroup."""
        return -(-self.threads // LANES)

    @property
    def workgroups(self) -> int:
        """Number of workgroups of the grid."""
        return prod(self.grid)

    def info(self) -> KernelInfo:
        """The header as a KernelInfo. `workgroups` is the size of the grid; the trace may have fewer."""
        return KernelInfo(
            name=self.name,
            grid=self.grid,
            block=self.block,
            lanes_per_warp=LANES,
            registers=self.registers,
            shared_bytes=self.shared_bytes,
            stream=self.stream,
            warps_per_workgroup=self.warps,
            workgroups=self.workgroups,
            cluster=prod(self.cluster),
            attributes={
                "source": "accelsim",
                "file": self.path.name,
                "kernel_id": self.kernel_id,
                "architecture": f"sm_{self.architecture}",
                "shared_base": self.shared_base,
                "local_base": self.local_base,
                "nvbit_version": self.nvbit,
                "tracer_version": self.version_text,
                "importer": f"t3sim {VERSION}",
            },
        )


def split_fields(path: Path, lines: list[str], problems: Problems) -> dict[str, tuple[int, str]]:
    """Name -> (line number, value). If a name occurs twice, the last value counts.

    Raises:
        TraceError: a line is not `-name = value`.
    """
    fields: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        name, equals, value = text.partition("=")
        if not text.startswith("-") or not equals:
            raise TraceError(f"{path}:{number}: header: found {text[:60]!r}, expected `-name = value`")
        name = name[1:].strip()
        if name in fields:
            message = f"-{name} for the second time: this one counts"
            problems.warn("header twice", f"{path}:{number}", message)
        fields[name] = (number, value.strip())
    return fields


def parse_header(path: Path, lines: list[str], problems: Problems) -> Header:
    """Header from the lines before the first # line.

    Raises:
        TraceError: a line is not `-name = value`, or grid, block or tracer version is missing or impossible.
    """
    reader = _Fields(path, split_fields(path, lines, problems), problems)
    header = Header(
        path=path,
        name=reader.name(),
        grid=reader.triple("grid dim", GRID_MAX),
        block=reader.triple("block dim", BLOCK_THREADS_MAX),
        kernel_id=reader.number("kernel id", GRID_MAX),
        shared_bytes=reader.number("shmem", SHARED_BYTES_MAX),
        registers=reader.number("nregs", REGISTERS_MAX),
        stream=reader.number("cuda stream id", (1 << 63) - 1),
        shared_base=reader.address("shmem base_addr"),
        local_base=reader.address("local mem base_addr"),
        nvbit=reader.text("nvbit version"),
        version=reader.version(),
        version_text=reader.text("accelsim tracer version"),
        lineinfo=reader.number("enable lineinfo", 1),
        lines=len(lines),
    )
    header.architecture = reader.architecture()
    if header.threads > BLOCK_THREADS_MAX:
        raise TraceError(f"{reader.where('block dim')}: {header.threads} threads, allowed 1 to {BLOCK_THREADS_MAX}")
    if header.workgroups >= 1 << 48:
        raise TraceError(f"{reader.where('grid dim')}: {header.workgroups} workgroups, allowed up to 2^48")
    return header


class _Fields:
    """Header values by name, with their line numbers for errors."""

    def __init__(self, path: Path, fields: dict[str, tuple[int, str]], problems: Problems) -> None:
        self._path, self._fields, self._problems = path, fields, problems

    def where(self, name: str) -> str:
        return f"{self._path}:{self._fields[name][0] if name in self._fields else 1}"

    def text(self, name: str, missing: str = "") -> str:
        """A value as it is written; `missing` if the header has none."""
        return self._fields.get(name, (0, missing))[1]

    def name(self) -> str:
        """Kernel name; `unnamed` if the header has none."""
        name = self.text("kernel name")
        if not name:
            self._problems.warn("header kernel name", self.where("kernel name"), "no kernel name: taken as `unnamed`")
        return name or "unnamed"

    def triple(self, name: str, limit: int) -> Triple:
        """Three sizes. A trace without them is refused."""
        text = self.text(name)
        match = _TRIPLE.fullmatch(text.replace(" ", ""))
        values = tuple(int(part[:12]) for part in match.groups()) if match else ()
        if len(values) != 3 or not all(1 <= value <= limit for value in values):
            raise TraceError(f"{self.where(name)}: {name}: found {text[:60]!r}, expected (x,y,z), each 1 to {limit}")
        return values[0], values[1], values[2]

    def number(self, name: str, high: int) -> int:
        """An optional number. A missing or impossible number is reported and counts as unknown (0)."""
        if name not in self._fields:
            if name not in OPTIONAL:
                self._problems.warn(f"header {name}", self.where(name), f"no `-{name} =`: taken as unknown")
            return 0
        text = self.text(name)
        value = int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else -1
        if 0 <= value <= high:
            return value
        self._problems.warn(
            f"header {name}", self.where(name), f"{name} = {text[:40]}: expected 0 to {high}, taken as unknown"
        )
        return 0

    def address(self, name: str) -> int:
        """A hexadecimal address; 0 if it is missing or not readable."""
        text = self.text(name, "(missing)")
        try:
            value = int(text, 16)
        except ValueError:
            value = -1
        if 0 <= value < 1 << 64:
            return value
        self._problems.warn(f"header {name}", self.where(name), f"{name} = {text[:40]}: no address, taken as unknown")
        return 0

    def version(self) -> int:
        """Tracer version: the number before the dot."""
        text = self.text("accelsim tracer version")
        number = text.split(".")[0]
        if number.isascii() and number.isdigit() and len(number) < 4 and int(number) in VERSIONS:
            return int(number)
        raise TraceError(
            f"{self.where('accelsim tracer version')}: accelsim tracer version: found {text[:40]!r}, "
            f"allowed {', '.join(map(str, VERSIONS))} (1.2 counts as 1)"
        )

    def architecture(self) -> int:
        """Binary version (compute capability times ten). DEFAULT_ARCHITECTURE replaces an impossible one."""
        text = self.text("binary version", "(missing)")[:40]
        value = int(text) if text.isascii() and text.isdigit() else 0
        possible = min(TABLES) <= value < ARCHITECTURE_END
        if value not in TABLE_OF:
            table = table_version(value) if possible else DEFAULT_ARCHITECTURE
            known = ", ".join(map(str, TABLE_OF))
            message = f"binary version = {text}: known are {known}; latencies of sm_{table} assumed"
            self._problems.warn("header binary version", self.where("binary version"), message)
        return value if possible else DEFAULT_ARCHITECTURE
