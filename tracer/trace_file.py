"""Open a stored trace of any kind: a trace archive, or the text of Accel-Sim."""

from os import PathLike
from pathlib import Path

import h5py

from tracer.accelsim.reader import open_accelsim
from traces.archive import open_archive
from traces.source import TraceSource


def open_trace(path: str | PathLike[str]) -> TraceSource:
    """Open a trace archive, which ends with .h5 or is an HDF5 file, or an Accel-Sim list, folder or trace file.

    Raises:
        UserError: as `open_archive` or `open_accelsim`.
    """
    place = Path(path)
    archive = place.suffix == ".h5" or (place.is_file() and h5py.is_hdf5(place))
    return open_archive(place) if archive else open_accelsim(place)
