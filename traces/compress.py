"""HDF5 filters that compress the columns of an archive.

gzip and shuffle come with every h5py. zstd and blosc2 give smaller files and are several times faster, but every
reader then needs the `hdf5plugin` package too. So the user must name them.
"""

import importlib
from typing import Any

from traces.errors import UserError

CHOICES = ("gzip", "zstd", "blosc2")


def _plugin() -> Any:
    try:
        return importlib.import_module("hdf5plugin")
    except ImportError as error:
        raise UserError(
            "compression zstd and blosc2 need the package hdf5plugin, which is not installed (gzip needs nothing)"
        ) from error


def dataset_options(compression: str) -> dict[str, Any]:
    """Keyword arguments of `h5py.Group.create_dataset` for a compression.

    Raises:
        UserError: a name that is not in CHOICES, or hdf5plugin is not installed.
    """
    if compression == "gzip":
        return {"compression": "gzip", "compression_opts": 4, "shuffle": True}
    if compression == "zstd":
        return {"shuffle": True, **_plugin().Zstd(clevel=3)}
    if compression == "blosc2":
        plugin = _plugin()
        return dict(plugin.Blosc2(cname="zstd", clevel=5, filters=plugin.Blosc2.BITSHUFFLE))
    raise UserError(f"compression: found {compression!r}, allowed {', '.join(CHOICES)}")


def load_plugin() -> None:
    """Load the filters that read an archive written with zstd or blosc2."""
    _plugin()
