"""Open an HDF5 file that may come from somebody else. Only content of the file itself is accepted.

An HDF5 file can refer to other files (external storage, links, virtual datasets) and load code (filters). A damaged
heap of strings makes the HDF5 library loop for ever. A few bytes can announce petabytes. `open_hdf5` refuses all of
these before a value is read, and first of all a file that does not fit its seal (`traces.seal`). Every reader of an
archive opens it with `open_hdf5` and calls `known_version`. Every writer stores the texts of attributes with
`fixed_text`, which uses no heap.
"""

import mmap
import os
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5l, h5o, h5t, h5z

from traces.errors import UserError
from traces.seal import check_seal, is_sealed

FILTERS = {h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32, 32015, 32026}
"""HDF5's numbers of gzip, shuffle, fletcher32, zstd and blosc2."""
CHUNK_BYTES = 1 << 24
"""Largest size of a chunk."""
ENTRY_BYTES = 8
"""Smallest entry of a chunk in the index of a dataset."""
SCANNED_BYTES = 1 << 28
"""A file up to this size is always searched for damaged heaps. A larger one is searched if it has texts in heaps."""
HEAP, HEAP_HEAD_BYTES, OBJECT_HEAD_BYTES = b"GCOL\x01\x00\x00\x00", 16, 16
DENSEST = 1000
"""Largest ratio of the size of a file to the bytes stored on disk. A file with a larger ratio is sparse."""


def open_hdf5(path: str | os.PathLike[str]) -> h5py.File:
    """Open an HDF5 file for reading.

    Raises:
        UserError: the file does not fit its seal, refers to something outside itself, or announces more than it can
            hold. Names the object.
        OSError, RuntimeError: from h5py, for a damaged file.
    """
    path = Path(path)
    size_bytes = _file_bytes(path)
    check_seal(path)
    file = h5py.File(path, "r")
    try:
        in_heap = size_bytes <= SCANNED_BYTES
        for name, item in _objects(file.id, path):
            if isinstance(item, h5d.DatasetID):
                _check_dataset(item, f"{path}: {name}", size_bytes)
                in_heap |= item.get_type().get_class() == h5t.VLEN or _is_variable_text(item.get_type())
            else:
                in_heap |= any(_is_variable_text(attribute.get_type()) for attribute in _attributes(item))
        if in_heap:
            _check_heaps(path)
    except BaseException:
        file.close()
        raise
    return file


def known_version(file: h5py.File, path: str | os.PathLike[str], newest: int, sealed_from: int) -> int:
    """Version of the format of an archive.

    Args:
        file: open file.
        path: of the file.
        newest: newest version that can be read; the oldest is 1.
        sealed_from: first version with a seal.

    Raises:
        UserError: another version, or the seal is missing.
        KeyError: no version.
    """
    version = file.attrs["format_version"]
    if not isinstance(version, np.integer) or not 1 <= version <= newest:
        raise UserError(f"{path}: format_version is {version}, allowed is 1 to {newest}")
    if version >= sealed_from and not is_sealed(path):
        raise UserError(f"{path}: damaged: its seal is missing, it was changed after it was written")
    return int(version)


def fixed_text(text: str) -> np.ndarray:
    """A text as a value of fixed length for an attribute. It needs no heap."""
    content = text.encode()
    return np.array(content, h5py.string_dtype("utf-8", max(1, len(content))))


def read_text(attributes: Any, name: str) -> str:
    """A text attribute, of fixed or variable length.

    Raises:
        KeyError: there is no such attribute. ValueError: it is no text.
    """
    value = attributes[name]
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise ValueError(f"attribute {name}: found {type(value).__name__}, allowed is a text")
    return value


def _file_bytes(path: Path) -> int:
    """Size of a file. Refuses a sparse file."""
    status = os.stat(path)
    stored_bytes = getattr(status, "st_blocks", status.st_size) * 512
    if status.st_size > SCANNED_BYTES and stored_bytes * DENSEST < status.st_size:
        raise UserError(f"{path}: {status.st_size:,} bytes, of which the disk holds {stored_bytes:,}: a sparse file")
    return status.st_size


def _objects(root: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Name and identifier of every group and dataset, each once. The root comes first."""
    top = h5g.open(root, b"/")
    seen, left = {h5o.get_info(top).addr}, [("/", top)]
    while left:
        name, group = left.pop()
        yield name, group
        for link in group:
            place = f"{name.rstrip('/')}/{link.decode(errors='replace')}"
            if group.links.get_info(link).type != h5l.TYPE_HARD:
                raise UserError(f"{path}: {place}: found a link to elsewhere, allowed is what the file itself holds")
            item = h5o.open(group, link)
            address = h5o.get_info(item).addr
            if address in seen or not isinstance(item, h5g.GroupID | h5d.DatasetID):
                raise UserError(f"{path}: {place}: found a second link to an object or a named type, allowed are "
                                "groups and datasets with one name each")  # fmt: skip
            seen.add(address)
            if isinstance(item, h5g.GroupID):
                left.append((place, item))
            else:
                yield place, item


def _attributes(item: Any) -> Iterator[Any]:
    for number in range(h5a.get_num_attrs(item)):
        yield h5a.open(item, index=number)


def _is_variable_text(kind: Any) -> bool:
    return isinstance(kind, h5t.TypeStringID) and kind.is_variable_str()


def _check_dataset(dataset: Any, where: str, size_bytes: int) -> None:
    """Refuse a dataset with values outside the file, with unknown filters, or larger than the file can hold."""
    plan = dataset.get_create_plist()
    layout = plan.get_layout()
    if layout == h5d.VIRTUAL or plan.get_external_count():
        kind = "virtual dataset" if layout == h5d.VIRTUAL else "external storage"
        raise UserError(f"{where}: found {kind}, allowed are values in the file itself")
    for number in range(plan.get_nfilters()):
        code = plan.get_filter(number)[0]
        if code not in FILTERS:
            raise UserError(f"{where}: found filter {code}, allowed are gzip, shuffle, fletcher32, zstd and blosc2")
    row_bytes = dataset.get_type().get_size()
    if layout != h5d.CHUNKED:
        held, needed = size_bytes, row_bytes * prod(dataset.shape)
    else:
        held, needed = _chunks(dataset, plan.get_chunk(), row_bytes, where, size_bytes)
    if needed > held:
        raise UserError(f"{where}: announces {dataset.shape} values, more than the file holds")


def _chunks(dataset: Any, chunk: tuple[int, ...], row_bytes: int, where: str, size_bytes: int) -> tuple[int, int]:
    """Number of chunks that the dataset has, and that it needs. A dimension of a netCDF file has 0 and needs 0."""
    if prod(chunk) * row_bytes > CHUNK_BYTES:
        raise UserError(f"{where}: chunks of {prod(chunk) * row_bytes:,} bytes, allowed are up to {CHUNK_BYTES:,}")
    needed = prod(-(-rows // length) for rows, length in zip(dataset.shape, chunk, strict=True))
    if needed > max(1, size_bytes // ENTRY_BYTES):
        return 0, needed
    stored = dataset.get_num_chunks()
    return stored, 0 if stored == 0 and row_bytes == 1 else needed


def _check_heaps(path: Path) -> None:
    """Refuse a file with a heap of texts that its objects do not fill without gaps."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        place = content.find(HEAP)
        while place >= 0:
            if not _is_whole_heap(content, place):
                raise UserError(f"{path}: damaged archive (heap of texts at byte {place})")
            place = content.find(HEAP, place + len(HEAP))


def _is_whole_heap(content: mmap.mmap, place: int) -> bool:
    """True if the objects of the heap end at its end, or leave too little room for one more."""
    end = place + int.from_bytes(content[place + 8 : place + 16], "little")
    if end > len(content):
        return False
    place += HEAP_HEAD_BYTES
    while place + OBJECT_HEAD_BYTES <= end:
        number = int.from_bytes(content[place : place + 2], "little")
        length = int.from_bytes(content[place + 8 : place + 16], "little")
        if number == 0:  # the free rest of the heap, with its head
            return place + length == end
        place += OBJECT_HEAD_BYTES + (length + 7) // 8 * 8
    return place <= end
