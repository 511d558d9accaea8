"""Read and describe trace archives. Writing is in `traces.write`, the list of datasets in `traces.layout`."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from traces.checksum import archive_digest
from traces.compress import load_plugin
from traces.errors import UserError
from traces.hdf5_file import known_version, open_hdf5, read_text
from traces.layout import (
    CHUNK_ROWS,
    COMMAND_DATASETS,
    COMMAND_KERNEL,
    COMMAND_PREFILL,
    EVENT_COLUMNS,
    KERNEL_ATTRIBUTES,
    KERNEL_DATASETS,
    dimension_sizes,
    kernel_group,
)
from traces.schema import EVENT, FORMAT_NAME, FORMAT_VERSION, SEALED_FROM
from traces.source import KernelInfo, KernelSource, Prefill, TraceSource, Workgroup, check_copy
from traces.write import Progress, Summary, write_archive

__all__ = [
    "Archive", "ArchiveKernel", "KernelInfo", "KernelSource", "Prefill", "Progress", "Summary", "TraceSource",
    "Workgroup", "describe", "open_archive", "write_archive",
]  # fmt: skip

WORKGROUPS_PER_READ = 1024
"""Number of workgroups whose offsets are read together."""


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn HDF5's errors while reading `path` into UserErrors: the user must replace a truncated or damaged file."""
    try:
        yield
    except (OSError, KeyError, IndexError, RuntimeError, ValueError, TypeError, OverflowError) as error:
        text = " ".join(str(error).split())
        raise UserError(f"{path}: damaged or truncated archive ({text})") from error


def _extents(attributes: Any, name: str) -> tuple[int, int, int]:
    """A kernel attribute of three whole numbers."""
    x, y, z = (int(n) for n in attributes[name])
    return x, y, z


def _json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"attributes: found {text[:40]!r}, allowed is a JSON object")
    return value


def _json_texts(text: str) -> list[str]:
    value = json.loads(text)
    if not isinstance(value, list) or not all(isinstance(line, str) for line in value):
        raise ValueError(f"warnings: found {text[:40]!r}, allowed is a JSON list of texts")
    return value


class ArchiveKernel:
    """One kernel of an open archive (a KernelSource)."""

    def __init__(self, path: Path, group: Any) -> None:
        self._path, self._group = path, group
        attributes = group.attrs
        missing = [name for name in KERNEL_ATTRIBUTES if name not in attributes]
        missing += [name for name in KERNEL_DATASETS if name not in group]
        if missing:
            raise UserError(f"{path}: {group.name} lacks {', '.join(missing)}")
        grid, block = (_extents(attributes, name) for name in ("grid", "block"))
        self.info = KernelInfo(
            name=read_text(attributes, "name"),
            grid=grid,
            block=block,
            lanes_per_warp=int(attributes["lanes_per_warp"]),
            registers=int(attributes["registers"]),
            shared_bytes=int(attributes["shared_bytes"]),
            stream=int(attributes["stream"]),
            warps_per_workgroup=int(attributes["warps_per_workgroup"]),
            workgroups=int(attributes["workgroups"]),
            attributes=_json_object(read_text(attributes, "attributes")),
            cluster=int(attributes.get("cluster", 1)),
        )
        self.checksum = read_text(attributes, "checksum")
        self.warps = group["warp_index"].shape[0]
        self.events = group["kind"].shape[0]
        self.explicit_addresses = group["addresses"].shape[0]
        self._check_shapes()

    def _check_shapes(self) -> None:
        sizes = dimension_sizes(self.info.workgroups, self.warps, self.events, self.explicit_addresses)
        for name, entry in KERNEL_DATASETS.items():
            dataset = self._group[name]
            if dataset.dtype != np.dtype(entry.dtype) or dataset.shape != (sizes[entry.dimension],):
                raise UserError(
                    f"{self._path}: {self._group.name}/{name}: found {dataset.dtype} {dataset.shape}, "
                    f"expected {entry.dtype} ({sizes[entry.dimension]},)"
                )

    def fingerprint(self) -> str:
        """The checksum of the kernel, as stored."""
        return self.checksum

    def workgroups(self, start: int = 0) -> Iterator[Workgroup]:
        """Workgroups in launch order, starting at number `start`. About CHUNK_ROWS events are in memory at a time."""
        if not 0 <= start <= self.info.workgroups:
            raise UserError(f"{self._path}: workgroup {start}: allowed 0 to {self.info.workgroups}")
        for first in range(start, self.info.workgroups, WORKGROUPS_PER_READ):
            with _reading(self._path):
                batches = list(self._batches(first, min(first + WORKGROUPS_PER_READ, self.info.workgroups)))
            for batch in batches:
                with _reading(self._path):
                    workgroups = self._read(*batch)
                yield from workgroups

    def _batches(self, first: int, last: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Offsets of workgroups [first, last), in batches of about CHUNK_ROWS events."""
        group = self._group
        index = group["workgroup_index"][first:last]
        warp_edge = group["workgroup_first_warp"][first : last + 1]
        address_edge = group["workgroup_first_address"][first : last + 1]
        self._check_edges("workgroup_first_warp", warp_edge, self.warps)
        self._check_edges("workgroup_first_address", address_edge, self.explicit_addresses)
        warp = group["warp_index"][warp_edge[0] : warp_edge[-1]]
        event_edge = group["warp_first_event"][warp_edge[0] : warp_edge[-1] + 1]
        self._check_edges("warp_first_event", event_edge, self.events)
        warp_edge = warp_edge - warp_edge[0]
        start = 0
        while start < last - first:
            stop = start + 1
            while stop < last - first and event_edge[warp_edge[stop + 1]] - event_edge[warp_edge[start]] <= CHUNK_ROWS:
                stop += 1
            warps = slice(warp_edge[start], warp_edge[stop])
            yield (
                index[start:stop],
                warp_edge[start : stop + 1] - warp_edge[start],
                address_edge[start : stop + 1],
                warp[warps],
                event_edge[warps.start : warps.stop + 1],
            )
            start = stop

    def _check_edges(self, name: str, edges: np.ndarray, end: int) -> None:
        if edges[0] < 0 or edges[-1] > end or np.any(np.diff(edges) < 0):
            raise UserError(f"{self._path}: {self._group.name}/{name}: offsets do not rise from 0 to {end}")

    def _read(self, index: np.ndarray, warp_edge: np.ndarray, address_edge: np.ndarray, warp: np.ndarray,
              event_edge: np.ndarray) -> list[Workgroup]:  # fmt: skip
        first, last = int(event_edge[0]), int(event_edge[-1])
        events = np.zeros(last - first, EVENT)
        for name in EVENT_COLUMNS:
            events[name] = self._group[name][first:last]
        base = int(address_edge[0])
        addresses = self._group["addresses"][base : address_edge[-1]]
        workgroups = []
        for k, number in enumerate(index):
            warps = slice(warp_edge[k], warp_edge[k + 1])
            edges = event_edge[warps.start : warps.stop + 1]
            workgroups.append(
                Workgroup(
                    index=int(number),
                    warp=warp[warps],
                    first_event=edges - edges[0],
                    events=events[edges[0] - first : edges[-1] - first],
                    addresses=addresses[address_edge[k] - base : address_edge[k + 1] - base],
                )
            )
        return workgroups

    def read_column(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows [start, stop) of one dataset of `traces.layout.KERNEL_DATASETS`.

        Raises:
            UserError: unknown dataset, or a damaged file.
        """
        if name not in KERNEL_DATASETS:
            raise UserError(f"column: found {name!r}, allowed {', '.join(KERNEL_DATASETS)}")
        with _reading(self._path):
            values: np.ndarray = self._group[name][start:stop]
        return values


class Archive:
    """An open trace archive (a TraceSource and a context manager)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise UserError(f"{self.path}: {'is a folder' if self.path.is_dir() else 'no such file'}")
        with _reading(self.path):
            if not h5py.is_hdf5(self.path):
                raise UserError(f"{self.path}: not a trace archive (not an HDF5 file)")
            self._file = open_hdf5(self.path)
            try:
                self._check_header()
                self.kernels = [
                    ArchiveKernel(self.path, self._file[kernel_group(number)])
                    for number in range(int(self._file.attrs["kernels"]))
                ]
                self._commands = {name: self._file["commands"][name][:] for name in COMMAND_DATASETS}
                self._check_commands()
            except BaseException:
                self._file.close()
                raise

    def _check_header(self) -> None:
        attributes = self._file.attrs
        file_type = read_text(attributes, "file_type") if "file_type" in attributes else None
        if file_type != FORMAT_NAME:
            raise UserError(f"{self.path}: not a trace archive: file_type is {file_type!r}, expected {FORMAT_NAME!r}")
        self.version = known_version(self._file, self.path, FORMAT_VERSION, SEALED_FROM)
        self.writer = read_text(attributes, "writer")
        self.compression = read_text(attributes, "compression")
        self.checksum = read_text(attributes, "checksum")
        self.warnings = _json_texts(read_text(attributes, "warnings")) if "warnings" in attributes else []
        if self.compression != "gzip":
            load_plugin()

    def _check_commands(self) -> None:
        """Refuse a command that is no kernel and no copy, kernels out of order and copies outside the addresses."""
        columns = self._commands
        for name, entry in COMMAND_DATASETS.items():
            if columns[name].dtype != np.dtype(entry.dtype) or columns[name].shape != columns["command_kind"].shape:
                raise UserError(f"{self.path}: /commands/{name}: found {columns[name].dtype} {columns[name].shape}, "
                                f"expected {entry.dtype} {columns['command_kind'].shape}")  # fmt: skip
        kernels = columns["command_kernel"][columns["command_kind"] == COMMAND_KERNEL]
        if list(kernels) != list(range(len(self.kernels))):
            raise UserError(f"{self.path}: /commands does not name the {len(self.kernels)} kernels in order")
        for row, kind in enumerate(columns["command_kind"].tolist()):
            if kind not in (COMMAND_KERNEL, COMMAND_PREFILL):
                raise UserError(f"{self.path}: /commands/command_kind: row {row}: found {kind}, allowed 0 or 1")
            if kind == COMMAND_PREFILL:
                check_copy(self._prefill(row), f"{self.path}: /commands, row {row}")

    def _prefill(self, row: int) -> Prefill:
        return Prefill(int(self._commands["command_address"][row]), int(self._commands["command_bytes"][row]))

    def __reduce__(self) -> tuple[Any, ...]:
        return open_archive, (self.path,)

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; its kernels can no longer be read."""
        self._file.close()

    def fingerprint(self) -> str:
        """The checksum of the content, as stored."""
        return self.checksum

    def commands(self) -> Iterator[KernelSource | Prefill]:
        """Kernels and prefills in program order."""
        columns = self._commands
        for row in range(len(columns["command_kind"])):
            if columns["command_kind"][row] == COMMAND_KERNEL:
                yield self.kernels[int(columns["command_kernel"][row])]
            else:
                yield self._prefill(row)

    def content_checksum(self) -> str:
        """Checksum of the commands and of the kernels' stored checksums."""
        return archive_digest([kernel.checksum for kernel in self.kernels], self._commands)


def open_archive(path: str | os.PathLike[str]) -> Archive:
    """Open a trace archive for reading.

    Raises:
        UserError: the file is missing, of another type, of a newer version or truncated, or a dataset is missing or has
            a wrong shape.
    """
    return Archive(path)


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The content of an archive as plain values for a table or JSON. Reads no events."""
    with open_archive(path) as archive:
        kernels = []
        for number, kernel in enumerate(archive.kernels):
            info = kernel.info
            kernels.append(
                {
                    "kernel": number,
                    "name": info.name,
                    "grid": list(info.grid),
                    "block": list(info.block),
                    "registers": info.registers,
                    "shared_bytes": info.shared_bytes,
                    "stream": info.stream,
                    "lanes_per_warp": info.lanes_per_warp,
                    "cluster": info.cluster,
                    "workgroups": info.workgroups,
                    "warps": kernel.warps,
                    "events": kernel.events,
                    "explicit_addresses": kernel.explicit_addresses,
                    "attributes": info.attributes,
                    "checksum": kernel.checksum,
                }
            )
        prefills = [command for command in archive.commands() if isinstance(command, Prefill)]
        return {
            "file": str(path),
            "file_bytes": archive.path.stat().st_size,
            "format_version": archive.version,
            "writer": archive.writer,
            "compression": archive.compression,
            "checksum": archive.checksum,
            "prefills": len(prefills),
            "prefill_bytes": sum(prefill.bytes for prefill in prefills),
            "warnings": archive.warnings,
            "kernels": kernels,
        }
