"""Read the text of a trace file, plain, compressed with xz or in a .tracez, in blocks of whole lines."""

import lzma
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tracer.accelsim.problems import BadData, Problems, TraceError
from tracer.accelsim.tracez import tracez_text

TRACEZ = ".tracez"
OTHERS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""First bytes of files of other compressors."""
BLOCK_BYTES = 1 << 22
XZ_BYTES = 1 << 13
"""Read at a time where this process decompresses. Text of earlier pieces is not lost with damage in a later one."""
PROCESS_BYTES = 1 << 20
"""Smaller files are decompressed in this process, which is faster than starting another."""
LINE_BYTES_MAX = 1 << 20
"""A file with a longer line is no trace."""


def _plain(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _xz_library(path: Path) -> Iterator[bytes]:
    """Decompress in this process. `lzma.open` would ignore what is no stream behind the first one."""
    try:
        with open(path, "rb") as file:
            data = file.read(XZ_BYTES)
            while data:
                stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
                while not stream.eof:
                    if stream.needs_input and not data and not (data := file.read(XZ_BYTES)):
                        raise EOFError("it ends inside a stream")
                    yield stream.decompress(data, BLOCK_BYTES)
                    data = b""
                data = stream.unused_data.lstrip(b"\0")  # 0 bytes may lie between streams
                while not data and (more := file.read(XZ_BYTES)):
                    data = more.lstrip(b"\0")
    except (lzma.LZMAError, EOFError) as error:
        raise BadData(path, "xz", str(error)) from error


def _xz_process(path: Path, program: str) -> Iterator[bytes]:
    """Decompress in another process. This process can parse at the same time."""
    command = [program, "--decompress", "--stdout", "--quiet", "--keep", "--force", "--", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        ended = False
        try:
            while block := process.stdout.read(BLOCK_BYTES):
                yield block
            ended = True
        finally:
            if not ended:
                process.kill()
        messages = process.stderr.read()
        if process.wait() != 0:
            text = " ".join(messages.decode(errors="replace").rpartition(": ")[2].split())
            raise BadData(path, "xz", text[:200] or "xz failed")


def refuse_compressed(path: Path, head: bytes) -> None:
    """Refuse data of a compressor that Accel-Sim does not have. head: the first bytes of the file."""
    for begin, name in OTHERS.items():
        if head.startswith(begin):
            raise TraceError(f"{path}: found {name} data, allowed are plain text, xz and .tracez: unpack it first")


def read_bytes(path: Path) -> Iterator[bytes]:
    """Text of a trace file in blocks of about BLOCK_BYTES.

    Raises:
        TraceError: the file is missing or unreadable.
        BadData: the rest of its compressed data is bad.
    """
    try:
        if path.suffix == TRACEZ:
            yield from tracez_text(path, BLOCK_BYTES)
            return
        with open(path, "rb") as file:
            head = file.read(6)
        is_xz = head == b"\xfd7zXZ\0"
        if path.suffix == ".xz" and not is_xz:
            raise BadData(path, "xz", "not an xz file")
        refuse_compressed(path, head)
        program = shutil.which("xz") if is_xz and path.stat().st_size >= PROCESS_BYTES else None
        if program:
            yield from _xz_process(path, program)
        elif is_xz:
            yield from _xz_library(path)
        else:
            yield from _plain(path)
    except OSError as error:
        raise TraceError(f"{path}: cannot read: {error.strerror or error}") from error


def line_blocks(path: Path, blocks: Iterator[bytes], problems: Problems) -> Iterator[bytes]:
    """The same bytes, cut after newlines. If the last line has no newline, it is added and a warning counted.

    Raises:
        TraceError: a line longer than LINE_BYTES_MAX.
    """
    rest = b""
    for block in blocks:
        cut = block.rfind(b"\n") + 1
        if cut == 0:
            rest += block
            if len(rest) > LINE_BYTES_MAX + BLOCK_BYTES:
                raise TraceError(f"{path}: a line of more than {LINE_BYTES_MAX} bytes: not a text trace")
            continue
        yield rest + block[:cut]
        rest = block[cut:]
    if rest:
        problems.warn("unterminated", str(path), "the last line has no newline")
        yield rest + b"\n"
