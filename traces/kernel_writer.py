"""One kernel's datasets, written while its workgroups stream past: memory holds one chunk per column."""

import dataclasses
from typing import Any

import numpy as np

from traces.checksum import KernelHash, canonical_json, info_values
from traces.layout import CHUNK_ROWS, EVENT_COLUMNS, KERNEL_DATASETS, Dataset, dimension_sizes
from traces.schema import EVENT
from traces.source import KernelInfo, Workgroup

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
        """Write what waits and return the dataset."""
        if self._dataset is None:  # all within one chunk: of fixed length, which takes a third of the room
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
        """The first `rows` waiting rows, counted into the checksum."""
        values = np.concatenate(self._waiting) if self._waiting else np.zeros(0, self._dtype)
        self._waiting = [values[rows:].copy()] if rows < len(values) else []
        self._waiting_rows = len(values) - rows
        self._digest.update(self._name, values[:rows])
        return values[:rows]


class KernelWriter:
    """Streams one kernel into its group."""

    def __init__(self, group: Any, options: dict[str, Any]) -> None:
        self._group = group
        self._digest = KernelHash()
        self._columns = {name: _Column(group, name, options, self._digest) for name in KERNEL_DATASETS}
        self._events: list[np.ndarray] = []
        self._event_rows = 0
        self.workgroups = self.warps = self.events = self.addresses = self.instructions = 0

    def append(self, workgroup: Workgroup) -> None:
        columns = self._columns
        columns["workgroup_index"].append(np.array([workgroup.index]))
        columns["workgroup_first_warp"].append(np.array([self.warps]))
        columns["workgroup_first_address"].append(np.array([self.addresses]))
        columns["warp_index"].append(workgroup.warp)
        columns["warp_first_event"].append(workgroup.first_event[:-1] + self.events)
        columns["addresses"].append(workgroup.addresses)
        self._events.append(workgroup.events)
        self._event_rows += len(workgroup.events)
        self.workgroups += 1
        self.warps += len(workgroup.warp)
        self.events += len(workgroup.events)
        self.addresses += len(workgroup.addresses)
        if self._event_rows >= CHUNK_ROWS:
            self._flush_events()

    def _flush_events(self) -> None:
        events = np.concatenate(self._events) if self._events else np.zeros(0, EVENT)
        self._events, self._event_rows = [], 0
        self.instructions += int(events["count"].sum(dtype=np.int64))
        for name in EVENT_COLUMNS:
            self._columns[name].append(events[name])

    def close(self, info: KernelInfo) -> str:
        """Finish the group and return the kernel's checksum."""
        self._flush_events()
        self._columns["workgroup_first_warp"].append(np.array([self.warps]))
        self._columns["workgroup_first_address"].append(np.array([self.addresses]))
        self._columns["warp_first_event"].append(np.array([self.events]))
        datasets = {name: column.close() for name, column in self._columns.items()}
        sizes = dimension_sizes(self.workgroups, self.warps, self.events, self.addresses)
        attach_dimensions(self._group, sizes, datasets, KERNEL_DATASETS)
        info = dataclasses.replace(info, workgroups=self.workgroups)
        for key, value in info_values(info).items():
            self._group.attrs[key] = canonical_json(value) if key == "attributes" else value
        checksum = self._digest.digest(info)
        self._group.attrs["checksum"] = checksum
        return checksum


def attach_dimensions(
    group: Any, sizes: dict[str, int], datasets: dict[str, Any], registry: dict[str, Dataset]
) -> None:
    """Dimension scales without values (netCDF's convention), and unit and meaning of each dataset."""
    for dimension, size in sizes.items():
        chunks = (min(size, CHUNK_ROWS),) if size else None
        scale = group.create_dataset(dimension, (size,), "u1", chunks=chunks)
        scale.make_scale(f"{_DIMENSION_NAME}{size:10d}")  # never written: takes no room
    for name, dataset in datasets.items():
        entry = registry[name]
        dataset.dims[0].attach_scale(group[entry.dimension])
        dataset.attrs["units"] = entry.unit
        dataset.attrs["long_name"] = entry.meaning
