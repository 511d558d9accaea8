"""The results archive: reads back what was written, same bytes for the same content, refuses everything else."""

import json
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest
import xarray

from sim.hw.request import STREAMS
from sim.results import ResultsError, open_results, write_results
from tests.sim.result_samples import sample_results


@pytest.fixture
def results():
    return sample_results()


@pytest.fixture
def archive(results, tmp_path):
    path = tmp_path / "run.h5"
    write_results(path, results)
    return path


def test_reads_back_what_was_written(results, archive):
    found = open_results(archive)
    assert found.preset == results.preset
    assert (found.trace_fingerprint, found.options, found.interval_ps, found.writer) == (
        results.trace_fingerprint,
        results.options,
        results.interval_ps,
        results.writer,
    )
    assert found.totals == results.totals and found.time_ps == 11000
    for one, other in zip(found.kernels, results.kernels, strict=True):
        assert (one.name, one.start_ps, one.end_ps, one.totals) == (
            other.name,
            other.start_ps,
            other.end_ps,
            other.totals,
        )
        assert all(np.array_equal(one.units[unit], other.units[unit]) for unit in other.units)
    assert all(np.array_equal(found.series[name], results.series[name]) for name in results.series)


def test_same_content_gives_the_same_bytes(results, archive, tmp_path):
    time.sleep(1.1)  # a time stamp would differ now
    (tmp_path / "elsewhere").mkdir()
    again = tmp_path / "elsewhere" / "other.h5"
    write_results(again, results)
    assert again.read_bytes() == archive.read_bytes()


def test_run_without_kernels_or_series(results, tmp_path):
    results.kernels, results.series, results.interval_ps = [], {}, 0
    write_results(tmp_path / "empty.h5", results)
    found = open_results(tmp_path / "empty.h5")
    assert found.totals == {} and found.time_ps == 0
    with pytest.raises(ResultsError, match="no kernel ran"):
        found.frame("l2")


def test_opens_in_pandas_h5py_and_xarray(results, archive):
    found = open_results(archive)
    frame = found.frame("l2")
    assert frame.index.names == ["kernel", "instance"] and len(frame) == 4
    assert frame["read_sectors"].sum() == results.totals["l2.read_sectors"]
    channels = found.frame("hbm")
    assert channels["read_columns.comm_write"].sum() == results.totals["hbm.read_columns.comm_write"]
    assert list(found.series_frame().index) == [1000 * (n + 1) for n in range(11)]
    with h5py.File(archive) as file:
        registry = json.loads(file["registry"].asstr()[()])
        fields = file["kernels/0001/units/hbm"].dtype
        assert set(fields.names) <= registry["hbm"].keys() and fields["accepted"].shape == (STREAMS,)
    with xarray.open_dataset(archive, group="series", engine="h5netcdf") as series:
        assert series["dram_read_bytes"].dims == ("time_ps",)
        assert int(series["dram_read_bytes"].sel(time_ps=3000)) == 2


def test_unknown_unit_names_the_known(archive):
    with pytest.raises(ResultsError, match="allowed are cu, hbm, l1, l2, lsu, noc"):
        open_results(archive).frame("l9")


def test_refuses_other_files(archive, tmp_path):
    with pytest.raises(ResultsError, match=r"none\.h5: no such file"):
        open_results(tmp_path / "none.h5")
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(ResultsError, match=r"text\.h5: .*not an HDF5 file"):
        open_results(tmp_path / "text.h5")
    with h5py.File(archive, "r+") as file:
        file.attrs["file_type"] = "t3sim-trace"
    with pytest.raises(ResultsError, match="'t3sim-trace', allowed is 't3sim-results'"):
        open_results(archive)


def test_refuses_a_newer_version(archive):
    with h5py.File(archive, "r+") as file:
        file.attrs["format_version"] = 99
    with pytest.raises(ResultsError, match="format_version is 99, allowed is 1 to 1"):
        open_results(archive)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_refuses_a_truncated_file(archive, share):
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ResultsError, match=r"run\.h5: damaged"):
        open_results(archive)


def test_missing_folder_is_named(results, tmp_path):
    with pytest.raises(Exception, match=r"nowhere/run\.h5") as caught:
        write_results(tmp_path / "nowhere" / "run.h5", results)
    assert "\n" not in str(caught.value)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from sim.results import open_results, write_results
from traces.errors import UserError
results = open_results(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    write_results(sys.argv[2], results)
except UserError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits the file size with POSIX means")
def test_full_disk_leaves_nothing(archive):
    folder = archive.parent / "full"
    folder.mkdir()
    command = [sys.executable, "-c", FULL_DISK, str(archive), str(folder / "out.h5")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "out.h5: cannot write" in done.stdout
    assert list(folder.iterdir()) == []
