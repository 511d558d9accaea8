"""Which HDF5 filter compresses the columns of an archive.

gzip and shuffle come with every h5py. zstd and blosc2 are smaller and several times faster, but reading them needs
the `hdf5plugin` package too, so they are asked for by name.
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
    """Keyword arguments of `h5py.Group.create_dataset` for a compression, one of CHOICES."""
    if compression == "gzip":
        return {"compression": "gzip", "compression_opts": 4, "shuffle": True}
    if compression == "zstd":
        return {"shuffle": True, **_plugin().Zstd(clevel=3)}
    if compression == "blosc2":
        plugin = _plugin()
        return dict(plugin.Blosc2(cname="zstd", clevel=5, filters=plugin.Blosc2.BITSHUFFLE))
    raise UserError(f"compression: found {compression!r}, allowed {', '.join(CHOICES)}")


def load_plugin() -> None:
    """Make the filters of an archive that was written with one of them readable."""
    _plugin()
