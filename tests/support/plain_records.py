"""Records for kernels without a compiler: with NUMBA_DISABLE_JIT=1 kernels are plain Python functions, and these views
give them attributes and Python's whole numbers, so that one code runs both ways."""

import numpy as np
from numba.core import config


def kernel_view(array):
    """What a kernel takes: the array itself, or a plain view of it. Records of either have attributes.

    Of a named tuple: the tuple of such views.
    """
    if isinstance(array, tuple):
        return type(array)(*map(kernel_view, array))
    if config.DISABLE_JIT:
        return PlainArray(array)
    return array.view(np.recarray) if array.dtype.names else array


class PlainArray:
    """An array of records or numbers; scalars come out as int (u8 as np.uint64, which the kernels' masks need)."""

    __slots__ = ("_data",)

    def __init__(self, data):
        self._data = data

    def __len__(self):
        return len(self._data)

    @property
    def size(self):
        return self._data.size

    def __getitem__(self, place):
        return plain(self._data[owned(place)])

    def __setitem__(self, place, value):
        self._data[owned(place)] = owned(value)


class PlainRecord:
    """One record, its fields as attributes."""

    __slots__ = ("_data",)

    def __init__(self, data):
        object.__setattr__(self, "_data", data)

    def __getattr__(self, name):
        return plain(self._data[name])

    def __setattr__(self, name, value):
        self._data[name] = owned(value)


def plain(value):
    if isinstance(value, np.ndarray):
        return PlainArray(value)
    if isinstance(value, np.void):
        return PlainRecord(value)
    return value if isinstance(value, np.uint64) else value.item()


def owned(value):
    """What a view looks at."""
    if isinstance(value, tuple):
        return tuple(owned(part) for part in value)
    return value._data if isinstance(value, (PlainArray, PlainRecord)) else value
