"""Benchmark of the import of Accel-Sim text into a trace archive: speed and memory.

    python -m validation.bench.trace_import --size 5GB --save

The text is a tiled GEMM (loads with deltas, shared memory, HMMA, barriers). The size gives its number of thread blocks.
The text is generated while it is read (`--via memory`, without the time of a disk) or first written to a temporary file
(`--via file`). The command prints one table row. `--save` stores it in validation/tables. The peak memory is the peak
of this process, with the compiler.
"""

import argparse
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from tracer.accelsim.header import Header, parse_header
from tracer.accelsim.kernel import KernelReader
from tracer.accelsim.problems import Problems
from tracer.accelsim.reader import open_accelsim
from tracer.accelsim.stream import BLOCK_BYTES
from tracer.compile.process import machine_text, process_costs
from traces.archive import KernelSource, Prefill, TraceSource, Workgroup, write_archive
from traces.command.document import Heading, Table, Text, to_markdown

TABLE = Path(__file__).parents[1] / "tables" / "bench_import.md"
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
WARPS = 8
K_STEPS = 32
HEADER = """-kernel name = bench_gemm
-kernel id = 1
-grid dim = ({blocks},1,1)
-block dim = (256,1,1)
-shmem = 32768
-nregs = 128
-binary version = 80
-cuda stream id = 0
-shmem base_addr = 0x00007f0000000000
-local mem base_addr = 0x00007effff000000
-nvbit version = 1.7
-accelsim tracer version = 5
-enable lineinfo = 0

#traces format = [line_num] PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [addresses] immediate
"""
ROW_DELTAS = " ".join(["16"] * 15 + ["784"] + ["16"] * 15)


def warp_lines(warp: int) -> list[str]:
    """Instruction lines of one warp."""
    lines = ["0000 ffffffff 1 R1 IMAD.MOV.U32 2 R255 R255 0 0 ", "0010 ffffffff 1 R0 S2R 0 0 0 "]
    pc = 0x20
    for step in range(K_STEPS):
        offset = step * 0x10000 + warp * 0x1000
        lines.append(f"{pc:04x} ffffffff 1 R8 LDG.E.128 1 R2 16 2 0x7f40{offset:08x} {ROW_DELTAS} 0 ")
        lines.append(f"{pc + 16:04x} ffffffff 1 R12 LDG.E.128 1 R4 16 1 0x7f41{offset:08x} 16 0 ")
        lines.append(f"{pc + 32:04x} ffffffff 0 STS.128 2 R6 R8 16 1 0x7f0000000000 16 0 ")
        lines.append(f"{pc + 48:04x} ffffffff 0 STS.128 2 R6 R12 16 1 0x7f0000001000 16 0 ")
        lines.append(f"{pc + 64:04x} ffffffff 0 BAR.SYNC 0 0 0 ")
        lines += [
            f"{pc + 80 + 16 * k:04x} ffffffff 1 R{24 + 4 * k} LDS.128 1 R7 16 1 0x7f0000000{k:x}00 16 0 "
            for k in range(4)
        ]
        for k in range(16):
            sum_register, operand = 48 + 4 * k, 28 + 4 * (k % 3)
            address = pc + 160 + 16 * k
            lines.append(
                f"{address:04x} ffffffff 1 R{sum_register} HMMA.16816.F32 3 R24 R{operand} R{sum_register} 0 0 "
            )
        lines += [f"{pc + 416 + 16 * k:04x} ffffffff 1 R{112 + k} IADD3 3 R{112 + k} R2 R255 0 {k} " for k in range(6)]
    lines.append("fff0 ffffffff 0 EXIT 0 0 0 ")
    return lines


def block_bodies() -> str:
    """Text of one thread block after its `thread block =` line."""
    parts = []
    for warp in range(WARPS):
        lines = warp_lines(warp)
        parts.append(f"\nwarp = {warp}\ninsts = {len(lines)}\n" + "\n".join(lines) + "\n")
    return "".join(parts) + "\n#END_TB\n"


def text_blocks(blocks: int) -> Iterator[bytes]:
    """The body in blocks of about BLOCK_BYTES. Each block has whole lines."""
    body = block_bodies().encode()
    waiting: list[bytes] = []
    size = 0
    for block in range(blocks):
        waiting.append(b"\n#BEGIN_TB\n\nthread block = %d,0,0\n" % block + body)
        size += len(waiting[-1])
        if size >= BLOCK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


class GeneratedKernel:
    """A KernelSource whose text is generated while it is read."""

    def __init__(self, header: Header, blocks: int) -> None:
        self.info = header.info()
        self._header, self._blocks = header, blocks

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        reader = KernelReader(self._header, Problems(), ids=False, prefix=0)
        return islice(reader.read(text_blocks(self._blocks)), start, None)

    def fingerprint(self) -> str:
        return f"generated {self._blocks}"


class GeneratedTrace:
    """A TraceSource of one generated kernel."""

    def __init__(self, blocks: int) -> None:
        lines = HEADER.format(blocks=blocks).split("\n")
        body = next(number for number, line in enumerate(lines) if line.startswith("#"))
        header = parse_header(Path("generated"), lines[:body], Problems())
        self._kernel = GeneratedKernel(header, blocks)

    def commands(self) -> Iterator[KernelSource | Prefill]:
        yield self._kernel

    def fingerprint(self) -> str:
        return self._kernel.fingerprint()


def parse_size(text: str) -> int:
    """Bytes of `5GB`, `300MB`."""
    for unit, factor in UNITS.items():
        if text.upper().endswith(unit) and text[: -len(unit)].isdigit():
            return int(text[: -len(unit)]) * factor
    raise argparse.ArgumentTypeError(f"size: found {text!r}, expected a number with {', '.join(UNITS)}")


class Row(NamedTuple):
    """One row of the table."""

    text_MB: float
    via: str
    archive_MB: float
    events: int
    seconds: float
    cpu_seconds: float
    text_MB_per_s: float
    text_MB_per_cpu_s: float
    events_per_s: float
    peak_rss_MB: float


def make_source(blocks: int, via: str, folder: Path) -> TraceSource:
    """The trace, generated while it is read or from a file in `folder`."""
    if via == "memory":
        return GeneratedTrace(blocks)
    file = folder / "kernel-1.traceg"
    with open(file, "wb") as text:
        text.write(HEADER.format(blocks=blocks).encode())
        for block in text_blocks(blocks):
            text.write(block)
    return open_accelsim(file)


def measure(size_bytes: int, via: str, compression: str) -> Row:
    """Import a generated trace of about `size_bytes` once. Compilation is done before."""
    block_bytes = len(block_bodies()) + len("\n#BEGIN_TB\n\nthread block = 0,0,0\n")
    blocks = max(1, size_bytes // block_bytes)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_archive(folder / "warm.h5", GeneratedTrace(1))
        source = make_source(blocks, via, folder)
        began, cpu_began = perf_counter(), process_time()
        summary = write_archive(folder / "out.h5", source, compression=compression)
        seconds, cpu_seconds = perf_counter() - began, process_time() - cpu_began
    text_MB = blocks * block_bytes / 1e6
    peak_bytes = process_costs()["peak_rss_bytes"] or 0
    return Row(
        text_MB,
        via,
        summary.file_bytes / 1e6,
        summary.events,
        seconds,
        cpu_seconds,
        text_MB / seconds,
        text_MB / cpu_seconds,
        summary.events / seconds,
        peak_bytes / 1e6,
    )


def table(row: Row) -> str:
    """The row as Markdown, with the machine."""
    cells = [f"{value:,.1f}" if isinstance(value, float) else str(value) for value in row]
    text = (
        f"Generated by `python -m validation.bench.trace_import --save` on {machine_text()}, shared and noisy, so\n"
        "CPU time is given too; one process."
    )
    return to_markdown(
        [Heading("Import of Accel-Sim text: rate and memory", 1), Text(text), Table(Row._fields, [cells])]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=parse_size, default=parse_size("300MB"), help="text to import, such as 5GB")
    parser.add_argument("--via", choices=("memory", "file"), default="memory")
    parser.add_argument("--compression", default="gzip")
    parser.add_argument("--save", action="store_true", help=f"write the row to {TABLE.parent.name}/{TABLE.name}")
    arguments = parser.parse_args()
    text = table(measure(arguments.size, arguments.via, arguments.compression))
    print(text)
    if arguments.save:
        TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
