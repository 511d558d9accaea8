"""Events of an archive as a pandas data frame.

A kernel group can also be opened without this package: `xarray.open_dataset(path, group="/kernels/0000",
engine="h5netcdf")`, or column by column with h5py.
"""

import numpy as np
import pandas as pd

from traces.archive import ArchiveKernel
from traces.layout import EVENT_COLUMNS


def events_frame(kernel: ArchiveKernel, start: int = 0, stop: int | None = None) -> pd.DataFrame:
    """Events [start, stop) of a kernel, one row each.

    The first columns are `workgroup` (linear id) and `warp` (index within the workgroup). The others are the stored
    fields of `traces.schema.EVENT`.
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
