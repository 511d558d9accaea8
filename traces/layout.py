"""The registry of a trace archive: every dataset's name, dtype, dimensions, unit and meaning.

    /                        attributes file_type ("t3sim-trace"), format_version, writer, compression (filter of the
                             event columns), kernels (their number), checksum (SHA-256 of the kernels' checksums and of
                             the commands, not of the compressed bytes); warnings of the reader of the text from which
                             it was made (a JSON list), if there are any
    /commands/               COMMAND_DATASETS: kernels and host copies in program order
    /kernels/0000/, 0001/    attributes KERNEL_ATTRIBUTES, KERNEL_DATASETS: one group per kernel; attribute `cluster`
                             if it is not 1

Every dimension is an HDF5 dimension scale of the same name without values, so xarray can open a kernel group directly.
Columns of events are stored in chunks of CHUNK_ROWS rows.
"""

from typing import NamedTuple

import numpy as np

from traces.schema import EVENT

CHUNK_ROWS = 1 << 16
"""Rows of a chunk and of the writer's buffer."""
EVENT_COLUMNS = tuple(name for name in EVENT.names or () if name not in ("array", "pad"))
"""Fields of EVENT that are stored. The two others are padding in the file."""


class Dataset(NamedTuple):
    """One dataset of the format."""

    dtype: str
    dimension: str
    unit: str
    meaning: str


_EVENT_MEANING = {
    "kind": ("1", "traces.schema.Kind"),
    "space": ("1", "traces.schema.Space of a memory event; BARRIER: 1 = the warp arrives without waiting"),
    "cache": ("1", "traces.schema.Cache of a memory event"),
    "pipe": ("1", "traces.schema.Pipe of a COMPUTE event"),
    "width_bytes": ("byte", "bytes per lane"),
    "slot": ("1", "scoreboard slot set (255 = none); barrier number of a BARRIER"),
    "inner": ("lane", "lanes per row of the address pattern (255 = plain, 0 = explicit)"),
    "stride": ("byte", "between neighbouring active lanes of a row"),
    "count": ("instruction", "warp instructions that the row stands for"),
    "cycles": ("core clock", "COMPUTE: least time from first issue to the last result needed later"),
    "work": ("1", "COMPUTE on TENSOR: multiply-accumulates; BARRIER: threads expected (0 = all)"),
    "pc": ("byte", "program counter of the first instruction"),
    "row_stride": ("byte", "between rows of a two-level address pattern"),
    "base": ("byte", "address of the first active lane; EXPLICIT: index into the workgroup's addresses"),
    "mask": ("1", "active lanes, bit 0 = lane 0"),
    "wait": ("1", "scoreboard slots that must be empty before issue, bit s = slot s"),
}


def _column_dtype(name: str) -> str:
    return np.dtype(EVENT[name]).str


KERNEL_DATASETS: dict[str, Dataset] = {
    "workgroup_index": Dataset("<i8", "workgroup", "1", "linear workgroup id in the grid, in launch order"),
    "workgroup_first_warp": Dataset("<i8", "workgroup_edge", "1", "row of the workgroup's first warp; ends with warps"),
    "workgroup_first_address": Dataset(
        "<i8", "workgroup_edge", "1", "row of the workgroup's first explicit address; ends with addresses"
    ),
    "warp_index": Dataset("<u2", "warp", "1", "warp index within its workgroup"),
    "warp_first_event": Dataset("<i8", "warp_edge", "1", "row of the warp's first event; ends with events"),
    **{name: Dataset(_column_dtype(name), "event", *_EVENT_MEANING[name]) for name in EVENT_COLUMNS},
    "addresses": Dataset("<u8", "address", "byte", "lane addresses of EXPLICIT events"),
}

COMMAND_DATASETS: dict[str, Dataset] = {
    "command_kind": Dataset("|u1", "command", "1", "0 = kernel, 1 = host copy that fills L2"),
    "command_kernel": Dataset("<i8", "command", "1", "kernel number; -1 for a copy"),
    "command_address": Dataset("<u8", "command", "byte", "destination of a copy"),
    "command_bytes": Dataset("<u8", "command", "byte", "length of a copy"),
}
COMMAND_KERNEL, COMMAND_PREFILL = 0, 1

KERNEL_ATTRIBUTES = {
    "name": "kernel name",
    "grid": "workgroups in x, y, z",
    "block": "threads in x, y, z",
    "lanes_per_warp": "32 or 64",
    "registers": "per thread, 0 = unknown",
    "shared_bytes": "shared memory of a workgroup in bytes",
    "stream": "stream; kernels of one stream run in order",
    "warps_per_workgroup": "warps of a full workgroup",
    "workgroups": "workgroups in the trace",
    "attributes": "provenance, a JSON object",
    "checksum": "SHA-256 of the kernel's attributes and datasets",
}


def kernel_group(number: int) -> str:
    """Path of the group of kernel `number`."""
    return f"/kernels/{number:04d}"


def dimension_sizes(workgroups: int, warps: int, events: int, addresses: int) -> dict[str, int]:
    """Length of each dimension of a kernel group."""
    return {
        "workgroup": workgroups,
        "workgroup_edge": workgroups + 1,
        "warp": warps,
        "warp_edge": warps + 1,
        "event": events,
        "address": addresses,
    }
