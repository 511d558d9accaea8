"""Files that reach outside themselves, announce what they cannot hold or loop in the library: refused at once."""

import h5py
import numpy as np
import pytest

from sim.results import ResultsError
from sim.results import open as open_results
from tests.support.hostile_files import HOSTILE_FILES, one_kernel_archive
from tests.support.sealed import write_sealed
from tests.support.trace_samples import random_source
from traces.archive import open_archive, write_archive
from traces.errors import UserError
from traces.hdf5_file import HEAP, open_hdf5, read_text
from traces.seal import SEAL_BYTES


@pytest.mark.parametrize("name", HOSTILE_FILES)
def test_refused_by_the_readers_of_traces_and_of_results(tmp_path, name):
    make, words = HOSTILE_FILES[name]
    path = tmp_path / "t.h5"
    make(path)
    for opener in (open_hdf5, open_archive):
        with pytest.raises(UserError, match=words) as refused:
            opener(path)
        assert str(path) in str(refused.value)
    with pytest.raises(ResultsError, match=words):
        open_results(path)


def test_a_trace_archive_has_no_text_in_a_heap_that_a_reader_reads(tmp_path):
    path = one_kernel_archive(tmp_path / "t.h5")
    content = path.read_bytes()[:-SEAL_BYTES]
    damaged = content.replace(HEAP, b"GONE" + HEAP[4:])
    assert damaged != content  # references of dimensions and units lie in heaps
    write_sealed(path, damaged)
    with open_archive(path) as archive:
        assert archive.kernels[0].info.name == "k" and archive.kernels[0].info.attributes == {}


def test_texts_of_any_length_and_alphabet_come_back(tmp_path):
    source = random_source()
    names = ["", "Ω" * 70_000]
    for kernel, name in zip((source.items[1], source.items[3]), names, strict=True):
        object.__setattr__(kernel.info, "name", name)
    write_archive(tmp_path / "t.h5", source)
    with open_archive(tmp_path / "t.h5") as archive:
        assert [kernel.info.name for kernel in archive.kernels] == names


def test_an_attribute_that_is_no_text(tmp_path):
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file.attrs["name"] = np.arange(3)
        with pytest.raises(ValueError, match="attribute name: found ndarray"):
            read_text(file.attrs, "name")


@pytest.mark.parametrize("step", range(6))
def test_flipped_bytes_of_a_heap_never_loop(tmp_path, step):
    """Every byte of the heads of a heap of texts, the sort of damage in which the library looped."""
    path = tmp_path / "t.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file.attrs["file_type"], file.attrs["other"] = "t3sim-trace", "x" * 40
    content = path.read_bytes()
    start = content.find(HEAP)
    assert start > 0
    for place in range(start + 8 + step, start + 128, 6):
        flipped = bytearray(content)
        flipped[place] ^= 0xFF
        path.write_bytes(flipped)
        with pytest.raises(UserError):
            open_archive(path)
