"""Write the datasets of one kernel, workgroup by workgroup. Memory holds one chunk per column."""

import dataclasses
from typing import Any

import numpy as np

from traces.checksum import KernelHash, canonical_json, info_values
from traces.hdf5_file import fixed_text
from traces.layout import CHUNK_ROWS, EVENT_COLUMNS, KERNEL_DATASETS, Dataset, dimension_sizes
from traces.schema import EVENT
from traces.source import KernelInfo, Workgroup

WORKGROUPS_PER_FLUSH = 4096
ROW_BYTES = np.dtype(f"V{EVENT.itemsize}")
_DIMENSION_NAME = "This is a netCDF dimension but not a netCDF variable."


class _Column:
    """A growing one-dimensional dataset, written in whole chunks."""

    def __init__(self, group: Any, name: str, options: dict[str, Any], digest: KernelHash) -> None:
        self._group, self._name, self._options, self._digest = group, name, options, digest
        self._dtype = np.dtype(KERNEL_DATASETS[name].dtype)
        self._waiting: list[np.ndarray] = []
        self._waiting_rows = 0
        self._dataset: Any = None

    def append(self, values: np.ndarray) -> None:
        self._waiting.append(np.array(values, self._dtype))
        self._waiting_rows += len(values)
        if self._waiting_rows >= CHUNK_ROWS:
            self._write(CHUNK_ROWS * (self._waiting_rows // CHUNK_ROWS))

    def close(self) -> Any:
        """Write the waiting rows and return the dataset."""
        if self._dataset is None:  # all rows fit one chunk: a dataset of fixed length needs a third of the space
            values = self._take(self._waiting_rows)
            self._dataset = self._create(len(values), None)
            self._dataset[:] = values
        elif self._waiting_rows:
            self._write(self._waiting_rows)
        return self._dataset

    def _write(self, rows: int) -> None:
        values = self._take(rows)
        if self._dataset is None:
            self._dataset = self._create(0, (None,))
        done = self._dataset.shape[0]
        self._dataset.resize((done + rows,))
        self._dataset[done:] = values

    def _create(self, rows: int, maxshape: tuple[None] | None) -> Any:
        chunk = CHUNK_ROWS if maxshape else rows
        options = {"chunks": (chunk,), "fletcher32": True, **self._options} if chunk else {}
        return self._group.create_dataset(self._name, (rows,), self._dtype, maxshape=maxshape, **options)

    def _take(self, rows: int) -> np.ndarray:
        """Remove the first `rows` waiting rows, add them to the checksum and return them."""
        values = np.concatenate(self._waiting) if self._waiting else np.zeros(0, self._dtype)
        self._waiting = [values[rows:].copy()] if rows < len(values) else []
        self._waiting_rows = len(values) - rows
        self._digest.update(self._name, values[:rows])
        return values[:rows]


def _edges(lengths: list[int]) -> np.ndarray:
    """Offsets of pieces with these lengths, and the end of the last piece."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


class KernelWriter:
    """Writes one kernel into its group."""

    def __init__(self, group: Any, options: dict[str, Any]) -> None:
        self._group = group
        self._digest = KernelHash()
        self._columns = {name: _Column(group, name, options, self._digest) for name in KERNEL_DATASETS}
        self._waiting: list[Workgroup] = []
        self._waiting_rows = 0
        self.workgroups = self.warps = self.events = self.addresses = self.instructions = 0

    def append(self, workgroup: Workgroup) -> None:
        """Add the next workgroup. Its arrays must not change afterwards."""
        self._waiting.append(workgroup)
        self._waiting_rows += len(workgroup.events) + len(workgroup.addresses)
        if self._waiting_rows >= CHUNK_ROWS or len(self._waiting) >= WORKGROUPS_PER_FLUSH:
            self._flush()

    def _flush(self) -> None:
        """Move the waiting workgroups into the columns."""
        waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        if not waiting:
            return
        columns = self._columns
        event_edges = _edges([len(workgroup.events) for workgroup in waiting]) + self.events
        columns["workgroup_index"].append(np.array([workgroup.index for workgroup in waiting]))
        columns["workgroup_first_warp"].append(_edges([len(w.warp) for w in waiting])[:-1] + self.warps)
        columns["workgroup_first_address"].append(_edges([len(w.addresses) for w in waiting])[:-1] + self.addresses)
        columns["warp_index"].append(np.concatenate([workgroup.warp for workgroup in waiting]))
        firsts = [w.first_event[:-1] + edge for w, edge in zip(waiting, event_edges[:-1], strict=True)]
        columns["warp_first_event"].append(np.concatenate(firsts))
        columns["addresses"].append(np.concatenate([workgroup.addresses for workgroup in waiting]))
        # joined as raw bytes: for structured arrays numpy would search a common dtype each time
        events = np.concatenate([np.ascontiguousarray(w.events).view(ROW_BYTES) for w in waiting]).view(EVENT)
        for name in EVENT_COLUMNS:
            columns[name].append(events[name])
        self.instructions += int(events["count"].sum(dtype=np.int64))
        self.workgroups += len(waiting)
        self.warps += sum(len(workgroup.warp) for workgroup in waiting)
        self.events += len(events)
        self.addresses += sum(len(workgroup.addresses) for workgroup in waiting)

    def close(self, info: KernelInfo) -> str:
        """Finish the group and return the kernel's checksum."""
        self._flush()
        self._columns["workgroup_first_warp"].append(np.array([self.warps]))
        self._columns["workgroup_first_address"].append(np.array([self.addresses]))
        self._columns["warp_first_event"].append(np.array([self.events]))
        datasets = {name: column.close() for name, column in self._columns.items()}
        sizes = dimension_sizes(self.workgroups, self.warps, self.events, self.addresses)
        attach_dimensions(self._group, sizes, datasets, KERNEL_DATASETS)
        info = dataclasses.replace(info, workgroups=self.workgroups)
        for key, value in info_values(info).items():
            text = canonical_json(value) if key == "attributes" else value
            self._group.attrs[key] = fixed_text(text) if isinstance(text, str) else text
        checksum = self._digest.digest(info)
        self._group.attrs["checksum"] = fixed_text(checksum)
        return checksum


def attach_dimensions(
    group: Any, sizes: dict[str, int], datasets: dict[str, Any], registry: dict[str, Dataset]
) -> None:
    """Create dimension scales without values (netCDF's convention); store unit and meaning of each dataset."""
    for dimension, size in sizes.items():
        chunks = (min(size, CHUNK_ROWS),) if size else None
        scale = group.create_dataset(dimension, (size,), "u1", chunks=chunks)
        scale.make_scale(f"{_DIMENSION_NAME}{size:10d}")  # no values are written: needs no space
    for name, dataset in datasets.items():
        entry = registry[name]
        dataset.dims[0].attach_scale(group[entry.dimension])
        dataset.attrs["units"] = entry.unit
        dataset.attrs["long_name"] = entry.meaning
