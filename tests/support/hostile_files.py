"""HDF5 files that name other files, announce more than they hold or have a damaged heap, made by name."""

import h5py
import numpy as np

from tests.support.hostile import ordinary_kernel
from tests.support.sealed import changed_archive
from tests.support.trace_samples import ListSource
from traces.archive import write_archive

COLUMN = "/kernels/0000/base"


def one_kernel_archive(path):
    """A good trace archive of one kernel."""
    write_archive(path, ListSource([ordinary_kernel()]))
    return path


def _changed(change):
    """A maker of an archive in which a column was replaced by what `change(file, rows)` puts there."""

    def make(path):
        one_kernel_archive(path)
        with changed_archive(path) as file:
            rows = len(file[COLUMN])
            del file[COLUMN]
            change(file, rows, path)

    return make


def _external(file, rows, path):
    (path.parent / "secret").write_bytes(bytes(8 * rows))
    file.create_dataset(COLUMN, (rows,), "<u8", external=[(str(path.parent / "secret"), 0, 8 * rows)])


def _soft_link(file, rows, path):
    file[COLUMN] = h5py.SoftLink("/kernels/0000/mask")


def _external_link(file, rows, path):
    file[COLUMN] = h5py.ExternalLink("other.h5", "/kernels/0000/base")


def _virtual(file, rows, path):
    layout = h5py.VirtualLayout((rows,), "<u8")
    layout[:] = h5py.VirtualSource("other.h5", COLUMN, (rows,))
    file.create_virtual_dataset(COLUMN, layout)


def _hard_link(file, rows, path):
    file[COLUMN] = file["/kernels/0000/mask"]


def _cycle(file, rows, path):
    file["/kernels/0000/again"] = file["/kernels"]


def _named_type(file, rows, path):
    file[COLUMN] = np.dtype("<u8")


def _unknown_filter(file, rows, path):
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((rows,))
    plan.set_filter(h5py.h5z.FILTER_SCALEOFFSET, h5py.h5z.FLAG_OPTIONAL, (2, 0))
    space = h5py.h5s.create_simple((rows,))
    h5py.h5d.create(file.id, COLUMN.encode(), h5py.h5t.STD_U64LE, space, plan).close()


def _sparse(file, rows, path):
    file.create_dataset(COLUMN, (1 << 47,), "<u8", chunks=(1 << 16,), maxshape=(None,))


def _sparse_fixed(file, rows, path):
    file.create_dataset(COLUMN, (1 << 56,), "u1", chunks=(1 << 16,))


def _few_chunks(file, rows, path):
    dataset = file.create_dataset(COLUMN, (1 << 20,), "<u8", chunks=(1 << 10,))
    dataset[:5] = 1


def _huge_chunk(file, rows, path):
    file.create_dataset(COLUMN, (1 << 30,), "<u8", chunks=(1 << 28,))


def _contiguous(file, rows, path):
    file.create_dataset(COLUMN, (1 << 47,), "<u8")


def _sparse_file(path):
    one_kernel_archive(path)
    with open(path, "r+b") as file:
        file.truncate(1 << 40)


def _looping_heap(path):
    """An attribute in a heap whose object is so long that its end wraps to its begin."""
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["file_type"] = "t3sim-trace"
    content = bytearray(path.read_bytes())
    head = content.find(b"GCOL") + 16
    content[head + 8 : head + 16] = ((1 << 64) - 16).to_bytes(8, "little")
    path.write_bytes(content)


HOSTILE_FILES = {
    "external": (_changed(_external), "base: found external storage"),
    "soft_link": (_changed(_soft_link), "base: found a link to elsewhere"),
    "external_link": (_changed(_external_link), "base: found a link to elsewhere"),
    "virtual": (_changed(_virtual), "base: found virtual dataset"),
    "hard_link": (_changed(_hard_link), "found a second link"),
    "cycle": (_changed(_cycle), "found a second link"),
    "named_type": (_changed(_named_type), "base: found a second link to an object or a named type"),
    "unknown_filter": (_changed(_unknown_filter), "base: found filter 6, allowed are gzip"),
    "sparse": (_changed(_sparse), "base: announces .* values, more than the file holds"),
    "sparse_fixed": (_changed(_sparse_fixed), "base: announces .* values, more than the file holds"),
    "few_chunks": (_changed(_few_chunks), "base: announces .* values, more than the file holds"),
    "huge_chunk": (_changed(_huge_chunk), "base: chunks of 2,147,483,648 bytes, allowed are up to 16,777,216"),
    "contiguous": (_changed(_contiguous), "base: announces .* values, more than the file holds"),
    "sparse_file": (_sparse_file, "1,099,511,627,776 bytes, of which the disk holds .*: a sparse file"),
    "looping_heap": (_looping_heap, "damaged archive .heap of texts at byte"),
}
"""Name -> (makes the file at a path, words of the refusal)."""
