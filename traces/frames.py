"""Events of an archive as a pandas data frame or an xarray dataset.

A kernel group also opens without this package: `xarray.open_dataset(path, group="/kernels/0000",
engine="h5netcdf")`, or column by column with h5py.
"""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from traces.archive import ArchiveKernel
from traces.layout import EVENT_COLUMNS, KERNEL_DATASETS

if TYPE_CHECKING:
    import xarray


def events_frame(kernel: ArchiveKernel, start: int = 0, stop: int | None = None) -> pd.DataFrame:
    """Events [start, stop) of a kernel, one row each.

    Columns: the stored fields of `traces.schema.EVENT`, and before them `workgroup` (linear id) and `warp`
    (index within the workgroup).
    """
    columns = {name: kernel.read_column(name, start, stop) for name in EVENT_COLUMNS}
    rows = np.arange(start, start + len(columns["kind"]))
    warp = np.searchsorted(kernel.read_column("warp_first_event"), rows, side="right") - 1
    workgroup = np.searchsorted(kernel.read_column("workgroup_first_warp"), warp, side="right") - 1
    place = {
        "workgroup": kernel.read_column("workgroup_index")[workgroup],
        "warp": kernel.read_column("warp_index")[warp],
    }
    return pd.DataFrame(place | columns, index=pd.RangeIndex(start, start + len(rows), name="event"))


def kernel_dataset(kernel: ArchiveKernel) -> "xarray.Dataset":
    """All datasets of a kernel with their dimensions, units and meanings, in memory."""
    import xarray  # optional: only who asks for xarray pays for it

    variables = {
        name: (entry.dimension, kernel.read_column(name), {"units": entry.unit, "long_name": entry.meaning})
        for name, entry in KERNEL_DATASETS.items()
    }
    return xarray.Dataset(variables, attrs={"name": kernel.info.name, "checksum": kernel.checksum})
