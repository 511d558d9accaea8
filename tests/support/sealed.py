"""Change an archive as if it had been written so: its seal is renewed."""

from contextlib import contextmanager

import h5py

from traces.seal import SEAL_BYTES, is_sealed, seal


@contextmanager
def changed_archive(path):
    """The open h5py file of an archive, to be changed."""
    if sealed := is_sealed(path):
        cut_seal(path)
    with h5py.File(path, "r+", libver=("v110", "v110")) as file:
        yield file
    if sealed:
        with open(path, "r+b") as file:
            seal(file)


def write_sealed(path, content):
    """Write the bytes of a file without its seal, and seal it."""
    path.write_bytes(content)
    with open(path, "r+b") as file:
        seal(file)


def cut_seal(path):
    """Cut the seal off, as h5py does when it changes a file."""
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - SEAL_BYTES)
