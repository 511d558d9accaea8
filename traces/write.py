"""Write a trace archive, one workgroup at a time.

The file is written under a temporary name, sealed (`traces.seal`), synced and renamed (`traces.output`). So a reader
never sees half an archive. If anything fails, the temporary file is removed.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from traces.checksum import archive_digest
from traces.compress import dataset_options
from traces.hdf5_file import fixed_text
from traces.kernel_writer import KernelWriter, attach_dimensions
from traces.layout import COMMAND_DATASETS, COMMAND_KERNEL, COMMAND_PREFILL, kernel_group
from traces.output import replacing
from traces.schema import FORMAT_NAME, FORMAT_VERSION
from traces.sink import Sink
from traces.source import KernelInfo, KernelSource, Prefill, TraceSource, check_copy, warnings_of
from traces.version import VERSION

Progress = Callable[[int, KernelInfo, int], None]
"""Called after each workgroup with (kernel number, the kernel's info, workgroups of the kernel done)."""


@dataclass
class Summary:
    """Counts and checksum of a written archive."""

    kernels: int = 0
    prefills: int = 0
    workgroups: int = 0
    warps: int = 0
    events: int = 0
    instructions: int = 0
    addresses: int = 0
    file_bytes: int = 0
    checksum: str = ""


class _ArchiveWriter:
    """Adds commands to a new HDF5 file in program order."""

    def __init__(self, file: Any, sink: Sink, compression: str) -> None:
        self._file, self._sink, self._compression = file, sink, compression
        self._options = dataset_options(compression)
        self._checksums: list[str] = []
        self._commands: list[tuple[int, int, int, int]] = []
        self.summary = Summary()

    def add_prefill(self, prefill: Prefill) -> None:
        check_copy(prefill, f"command {len(self._commands)}")
        self._commands.append((COMMAND_PREFILL, -1, prefill.address, prefill.bytes))
        self.summary.prefills += 1

    def add_kernel(self, kernel: KernelSource, progress: Progress | None) -> None:
        number = len(self._checksums)
        self._commands.append((COMMAND_KERNEL, number, 0, 0))
        writer = KernelWriter(self._file.create_group(kernel_group(number)), self._options)
        for done, workgroup in enumerate(kernel.workgroups(), 1):
            writer.append(workgroup)
            self._sink.check()
            if progress is not None:
                progress(number, kernel.info, done)
        self._checksums.append(writer.close(kernel.info))
        summary = self.summary
        summary.kernels += 1
        for name in ("workgroups", "warps", "events", "instructions", "addresses"):
            setattr(summary, name, getattr(summary, name) + getattr(writer, name))

    def finish(self, warnings: list[str]) -> Summary:
        """Write the commands and the file's attributes."""
        commands = {
            name: np.array([command[position] for command in self._commands], entry.dtype)
            for position, (name, entry) in enumerate(COMMAND_DATASETS.items())
        }
        group = self._file.create_group("commands")
        datasets = {name: group.create_dataset(name, data=values) for name, values in commands.items()}
        attach_dimensions(group, {"command": len(self._commands)}, datasets, COMMAND_DATASETS)
        self.summary.checksum = archive_digest(self._checksums, commands)
        attributes = self._file.attrs
        attributes["file_type"] = fixed_text(FORMAT_NAME)
        attributes["format_version"] = FORMAT_VERSION
        attributes["writer"] = fixed_text(f"t3sim {VERSION}")
        attributes["compression"] = fixed_text(self._compression)
        attributes["kernels"] = self.summary.kernels
        attributes["checksum"] = fixed_text(self.summary.checksum)
        if warnings:
            attributes["warnings"] = fixed_text(json.dumps(warnings))
        return self.summary


@contextmanager
def new_file(path: Path) -> Iterator[tuple[Any, Sink]]:
    """A new HDF5 file and its sink. It is sealed and synced if the block succeeds.

    Chunks are not cached: HDF5 would write them when Python frees the dataset, and that can be later, for example if a
    thread looks at the frames of this one (the profiler of a Dask worker does). Then they lie elsewhere in the file.
    """
    sink = Sink(path)
    try:
        with h5py.File(sink, "w", libver=("v110", "v110"), rdcc_nbytes=0) as file:
            yield file, sink
        sink.close()
    finally:
        sink.discard()


def write_archive(
    path: str | os.PathLike[str],
    source: TraceSource,
    *,
    compression: str = "gzip",
    progress: Progress | None = None,
) -> Summary:
    """Store all commands of `source` in a new archive at `path` (replaced if it exists).

    Args:
        path: the file to write.
        source: kernels and copies in program order. They are read once, one workgroup at a time.
        compression: gzip, zstd or blosc2 (the last two need hdf5plugin, here and for every reader).
        progress: called after each workgroup.

    Raises:
        UserError: unknown compression, folder missing or not writable, disk full. No file remains.
    """
    path = Path(path)
    dataset_options(compression)  # refuses a wrong name before the file exists
    with replacing(path) as temporary:
        with new_file(temporary) as (file, sink):
            writer = _ArchiveWriter(file, sink, compression)
            for command in source.commands():
                if isinstance(command, Prefill):
                    writer.add_prefill(command)
                else:
                    writer.add_kernel(command, progress)
            summary = writer.finish(warnings_of(source))
        summary.file_bytes = temporary.stat().st_size
    return summary
