"""Checksums of content. Equal events have equal checksums; compression, chunks and order of writing do not matter.

Each column is hashed separately while it is written or read. The digests are then hashed together with the attributes.
"""

import hashlib
import json
from typing import Any

import numpy as np

from traces.layout import COMMAND_DATASETS, KERNEL_DATASETS
from traces.source import KernelInfo

CONTENT_VERSION = 1
"""Version of the content that the checksums describe."""


def canonical_json(value: Any) -> str:
    """JSON text that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def info_values(info: KernelInfo) -> dict[str, Any]:
    """A KernelInfo as plain values."""
    return {
        "name": info.name,
        "grid": [int(n) for n in info.grid],
        "block": [int(n) for n in info.block],
        "lanes_per_warp": int(info.lanes_per_warp),
        "registers": int(info.registers),
        "shared_bytes": int(info.shared_bytes),
        "stream": int(info.stream),
        "warps_per_workgroup": int(info.warps_per_workgroup),
        "workgroups": int(info.workgroups),
        "attributes": info.attributes,
        **({"cluster": int(info.cluster)} if info.cluster > 1 else {}),
    }


class KernelHash:
    """The hashes of a kernel's columns, updated row by row."""

    def __init__(self) -> None:
        self._columns = {name: hashlib.sha256() for name in KERNEL_DATASETS}

    def update(self, name: str, values: np.ndarray) -> None:
        """Add the next rows of column `name`."""
        self._columns[name].update(np.ascontiguousarray(values).data)

    def digest(self, info: KernelInfo) -> str:
        """Checksum of the kernel, over its attributes and all columns."""
        columns = {name: column.hexdigest() for name, column in self._columns.items()}
        text = canonical_json({"info": info_values(info), "columns": columns})
        return hashlib.sha256(text.encode()).hexdigest()


def archive_digest(kernels: list[str], commands: dict[str, np.ndarray]) -> str:
    """Checksum of an archive from its kernels' checksums and the command columns."""
    columns = {
        name: np.asarray(commands[name], COMMAND_DATASETS[name].dtype).tobytes().hex() for name in COMMAND_DATASETS
    }
    text = canonical_json({"version": CONTENT_VERSION, "kernels": kernels, "commands": columns})
    return hashlib.sha256(text.encode()).hexdigest()
