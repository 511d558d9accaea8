"""Open an Accel-Sim trace: a kernelslist.g, or the trace of one kernel."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path

from tracer.accelsim.kernel import AccelsimKernel, file_digest
from tracer.accelsim.problems import Problems, TraceError
from tracer.accelsim.stream import refuse_compressed
from tracer.accelsim.ungrouped import UngroupedKernel
from traces.errors import UserError
from traces.source import KernelSource, Prefill, check_copy

GROUPED, UNGROUPED = (".traceg", ".traceg.xz", ".tracez"), (".trace", ".trace.xz")
_COPY = re.compile(r"MemcpyHtoD\s*,\s*(-?(?:0x)?[0-9a-fA-F]{1,32})\s*,\s*(-?[0-9]{1,32})\s*(?:,.*)?")


def is_trace_name(name: str) -> bool:
    """True for names of trace files."""
    return name.endswith((*GROUPED, *UNGROUPED))


def parse_memcpy(path: Path, number: int, line: str, problems: Problems) -> Prefill | None:
    """Read `MemcpyHtoD,0x<address>,<bytes>[,...]`. None if the line is broken and the reader is lenient."""
    fields, where = _COPY.fullmatch(line), f"{path}:{number}"
    if fields is None:
        problems.damage("MEMCPY", where, f"found {line[:80]!r}, expected MemcpyHtoD,<hex address>,<bytes>")
        return None
    try:
        copy = Prefill(int(fields[1], 16), int(fields[2]))
        check_copy(copy, where)
    except UserError as refused:
        problems.damage("MEMCPY", where, str(refused).removeprefix(f"{where}: "))
    else:
        return copy
    return None


def parse_list(path: Path, problems: Problems) -> list[Path | Prefill]:
    """Commands of a kernelslist.g, with the paths of the kernels' files.

    Raises:
        TraceError: the list cannot be read, is no text, or names a file that does not exist.
    """
    try:
        content = path.read_bytes()
        refuse_compressed(path, content)
        text = content.decode()
    except OSError as error:
        raise TraceError(f"{path}: cannot read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not a text file (byte {error.start})") from error
    commands: list[Path | Prefill] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        word = line.split(",")[0].strip()
        if word == "MemcpyHtoD":
            prefill = parse_memcpy(path, number, line, problems)
            if prefill is not None:
                commands.append(prefill)
        elif line.startswith("kernel"):
            file = path.parent / line
            if "\0" not in line and file.is_file():
                commands.append(file)
            else:
                problems.damage("MISSING_FILE", f"{path}:{number}", f"no such file: {line[:200]!r}")
        elif line:
            problems.warn(f"list {word[:40]}", f"{path}:{number}", f"unknown command {word[:40]!r}, ignored")
    return commands


def open_kernel(path: Path, problems: Problems) -> AccelsimKernel:
    """Open the trace of one kernel. The ending of its name gives its kind.

    Raises:
        TraceError: an ending that cannot be read.
    """
    name = path.name
    if name.endswith(GROUPED):
        return AccelsimKernel(path, problems)
    if name.endswith(UNGROUPED):
        return UngroupedKernel(path, problems)
    raise TraceError(f"{path}: found the ending {path.suffix!r}, allowed {', '.join((*GROUPED, *UNGROUPED))}")


def open_or_skip(path: Path, problems: Problems) -> AccelsimKernel | None:
    """Open the trace of one kernel. If it cannot be opened and the reader is lenient, count it and return None."""
    try:
        return open_kernel(path, problems)
    except TraceError as error:
        if not problems.lenient:
            raise
        problems.skip("KERNEL", f"{error}; the whole kernel is left out")
        return None


class AccelsimTrace:
    """Commands of one GPU (a TraceSource). `problems`: of the list, and of the latest reading of the kernels."""

    def __init__(self, path: Path, commands: list[Path | Prefill], problems: Problems) -> None:
        self.path, self.problems = path, problems
        self._of_list = deepcopy(problems.oddities)
        self._commands = commands

    @property
    def files(self) -> list[Path]:
        """Trace files in program order."""
        return [command for command in self._commands if isinstance(command, Path)]

    def commands(self) -> Iterator[KernelSource | Prefill]:
        """Kernels and prefills in program order. The file of a kernel is opened when the kernel is reached."""
        for _, command in self.numbered_commands():
            yield command

    def numbered_commands(self) -> Iterator[tuple[int, AccelsimKernel | Prefill]]:
        """The same commands with numbers: the index in `files` for a kernel, -1 for a prefill.

        A lenient reader skips and counts a kernel with a broken header.

        Raises:
            TraceError: a header is broken, or no kernel can be read.
        """
        self.problems.oddities = deepcopy(self._of_list)
        opened, number = 0, -1
        for command in self._commands:
            if isinstance(command, Prefill):
                yield -1, command
                continue
            number += 1
            kernel = open_or_skip(command, self.problems)
            if kernel is not None:
                opened += 1
                yield number, kernel
        if not opened:
            raise TraceError(f"{self.path}: no kernel that can be read: {'; '.join(self.problems.lines())[:300]}")

    def fingerprint(self) -> str:
        """SHA-256 of the commands and of the files' bytes."""
        digest = hashlib.sha256()
        for command in self._commands:
            if isinstance(command, Prefill):
                digest.update(f"prefill {command.address:x} {command.bytes}\n".encode())
            else:
                digest.update(f"kernel {file_digest(command)}\n".encode())
        return digest.hexdigest()


def choose(commands: list[Path | Prefill], kernels: Iterable[int]) -> list[Path | Prefill]:
    """All prefills, and the kernels with these numbers (from 0, in order of the list)."""
    wanted = set(kernels)
    total = sum(isinstance(command, Path) for command in commands)
    if wanted and not 0 <= min(wanted) <= max(wanted) < total:
        raise UserError(f"kernels: found {min(wanted)} to {max(wanted)}, allowed 0 to {total - 1}")
    numbers = count()
    return [command for command in commands if isinstance(command, Prefill) or next(numbers) in wanted]


def open_accelsim(path: str | Path, *, lenient: bool = False, kernels: Iterable[int] | None = None) -> AccelsimTrace:
    """Open a kernelslist.g, a folder with one, or a single trace file.

    Args:
        path: the list, folder or file.
        lenient: skip broken parts and count them in `problems`, instead of raising.
        kernels: numbers (from 0) of the kernels to read; None = all. Prefills are always kept.

    Raises:
        UserError: something cannot be read; names file and line. Damage in a kernel's file is found when it is read.
    """
    path = Path(path)
    if path.is_dir():
        path = find_list(path)
    if not path.is_file():
        raise TraceError(f"{path}: no such file")
    problems = Problems(lenient=lenient, folder=os.path.join(path.parent, ""))
    commands: list[Path | Prefill] = [path] if is_trace_name(path.name) else parse_list(path, problems)
    if not any(isinstance(command, Path) for command in commands):
        raise TraceError(f"{path}: names no kernel (lines that begin with `kernel`)")
    if kernels is not None:
        commands = choose(commands, kernels)
    return AccelsimTrace(path, commands, problems)


def find_list(folder: Path) -> Path:
    """The only kernelslist*.g of a folder, or the only kernelslist* of raw traces."""
    lists = sorted(folder.glob("kernelslist*.g")) or sorted(folder.glob("kernelslist*"))
    if len(lists) == 1:
        return lists[0]
    names = ", ".join(entry.name for entry in lists) or "none"
    raise TraceError(f"{folder}: expected one kernelslist.g, found {names}: give the path of one of them")
