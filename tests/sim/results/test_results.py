"""The results archive: reads back what was written, same bytes for the same content, refuses everything else."""

import json
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray

import sim.results
from sim import counters
from sim.hw.request import STREAMS
from sim.presets import load_preset
from sim.results import Failure, ResultsError, layout, write_results, write_runs
from sim.results.layout import run_digest
from tests.support.result_samples import sample_results
from tests.support.sealed import changed_archive


@pytest.fixture
def results():
    return sample_results()


@pytest.fixture
def archive(results, tmp_path):
    path = tmp_path / "run.h5"
    write_results(path, results)
    return path


def test_reads_back_what_was_written(results, archive):
    found = sim.results.open(archive).run()
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


@pytest.mark.slow
def test_same_content_gives_the_same_bytes(results, archive, tmp_path):
    time.sleep(1.1)  # a time stamp would differ now
    (tmp_path / "elsewhere").mkdir()
    again = tmp_path / "elsewhere" / "other.h5"
    write_results(again, results)
    assert again.read_bytes() == archive.read_bytes()


def test_run_without_kernels_or_series(results, tmp_path):
    results.kernels, results.series, results.interval_ps = [], {}, 0
    write_results(tmp_path / "empty.h5", results)
    found = sim.results.open(tmp_path / "empty.h5").run()
    assert found.totals == {} and found.time_ps == 0
    with pytest.raises(ResultsError, match="no kernel ran"):
        found.frame("l2")


def test_opens_in_pandas_h5py_and_xarray(results, archive):
    found = sim.results.open(archive).run()
    frame = found.frame("l2")
    assert frame.index.names == ["kernel", "instance"] and len(frame) == 4
    assert frame["read_sectors"].sum() == results.totals["l2.read_sectors"]
    channels = found.frame("hbm")
    assert channels["read_columns.comm_write"].sum() == results.totals["hbm.read_columns.comm_write"]
    assert list(found.series_frame().index) == [1000 * (n + 1) for n in range(11)]
    with h5py.File(archive) as file:
        registry = json.loads(file["registry"].asstr()[()])
        fields = file["runs/00000/kernels/0001/units/hbm"].dtype
        assert set(fields.names) <= registry["hbm"].keys() and fields["accepted"].shape == (STREAMS,)
    with xarray.open_dataset(archive, group="runs/00000/series", engine="h5netcdf") as series:
        assert series["dram_read_bytes"].dims == ("time_ps",)
        assert int(series["dram_read_bytes"].sel(time_ps=3000)) == 2


def test_unknown_unit_names_the_known(archive):
    run = sim.results.open(archive).run()
    with pytest.raises(ResultsError, match="unit 'l9': allowed are ") as problem:
        run.frame("l9")
    names = str(problem.value).partition("allowed are ")[2].split(", ")
    assert {"cu", "hbm", "l1", "l2", "noc"} <= set(names) and names == sorted(names)
    for name in names:
        run.frame(name)


def test_refuses_other_files(archive, tmp_path):
    with pytest.raises(ResultsError, match=r"none\.h5: no such file"):
        sim.results.open(tmp_path / "none.h5").run()
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(ResultsError, match=r"text\.h5: .*not an HDF5 file"):
        sim.results.open(tmp_path / "text.h5").run()
    with changed_archive(archive) as file:
        file.attrs["file_type"] = "t3sim-trace"
    with pytest.raises(ResultsError, match="'t3sim-trace', allowed is 't3sim-results'"):
        sim.results.open(archive).run()


def test_refuses_a_newer_version(archive):
    with changed_archive(archive) as file:
        file.attrs["format_version"] = 99
    with pytest.raises(ResultsError, match="format_version is 99, allowed is 1 to 4"):
        sim.results.open(archive).run()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_refuses_a_truncated_file(archive, share):
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ResultsError, match=r"run\.h5: damaged"):
        sim.results.open(archive).run()


@pytest.mark.slow
def test_no_truncated_or_changed_file_opens_as_if_whole(results, archive):
    """Cut anywhere or with any byte changed: refused, or (a byte that means nothing) the same results."""
    content = archive.read_bytes()
    whole = run_digest(results)
    rng = np.random.default_rng(7)
    for end in [*range(64), *rng.integers(64, len(content), 60), len(content) - 1]:
        archive.write_bytes(content[:end])
        with pytest.raises(ResultsError):
            sim.results.open(archive).run()
    refused = 0
    for place in rng.integers(0, len(content), 150):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        archive.write_bytes(changed)
        try:
            assert run_digest(sim.results.open(archive).run()) == whole
        except ResultsError as mistake:
            assert "\n" not in str(mistake)
            refused += 1
    assert refused > 50


def test_reads_version_1(tmp_path):
    """Written by t3sim before archives of several runs: no checksum, one run in the root."""
    old = Path(__file__).parent / "archives" / "results_v1.h5"
    found = sim.results.open(old).run()
    assert found.totals["l1.read_sectors"] == 512 * 1024 // 32 and found.preset.name == "v100"
    assert found.point == {} and len(found.series_frame()) > 1
    assert found.headline()["dram_read_sectors"] == 16384 and found.ratios()["dram_row_hit_rate"] > 0.9
    write_runs(tmp_path / "new.h5", sim.results.open(old).runs)
    again = sim.results.open(tmp_path / "new.h5").run()
    assert run_digest(again) == run_digest(found)
    with h5py.File(tmp_path / "new.h5") as file:
        assert file.attrs["format_version"] == 4


def test_reads_version_2(results, tmp_path):
    """Written by t3sim before there was one class of results: the trace's fingerprint, no input, no ledger."""
    old = sim.results.open(Path(__file__).parent / "archives" / "results_v2.h5")
    run, failure = old.runs
    assert run.trace_fingerprint == results.trace_fingerprint and len(run.totals) == 100
    assert all(counters.totals(kernel.units) == kernel.totals for kernel in run.kernels)
    known = {"cu.events": 209, "hbm.row_hits": 265, "link.bytes": 265, "dma.out_max": 31}
    assert {name: run.totals[name] for name in known} == known
    assert (run.point, run.figures) == ({"hbm.queue_entries": 32}, {"speedup": 1.5}) and old.study == "ab" * 32
    assert run.exactly_once and run.code == "" and len(run.spans) == 0 and failure.reason == "does not fit"
    assert run.dram_bytes.sum() == 32 * sum(run.totals[f"hbm.{kind}_columns"] for kind in ("read", "write", "update"))
    write_runs(tmp_path / "new.h5", old.runs, old.study)
    again = sim.results.open(tmp_path / "new.h5")
    assert [run_digest(one) for one in again.runs] == [run_digest(one) for one in old.runs]


def test_reads_version_3(tmp_path):
    """Written by t3sim before archives had a seal: a checksum of each run."""
    old = sim.results.open(Path(__file__).parent / "archives" / "results_v3.h5")
    run, failure = old.runs
    assert (run.figures, failure.reason, old.study) == ({"speedup": 1.5}, "does not fit", "ab" * 32)
    assert run.input == {"trace": "ab" * 32} and run.totals["cu.events"] == 209
    write_runs(tmp_path / "new.h5", old.runs, old.study)
    again = sim.results.open(tmp_path / "new.h5")
    assert [run_digest(one) for one in again.runs] == [run_digest(one) for one in old.runs]


@pytest.mark.parametrize(("version", "name"), [(2, "trace_fingerprint"), (3, "input"), (3, "point"), (3, "checksum")])
def test_a_changed_value_of_an_older_version_is_noticed(tmp_path, version, name):
    path = tmp_path / "changed.h5"
    path.write_bytes((Path(__file__).parent / "archives" / f"results_v{version}.h5").read_bytes())
    with changed_archive(path) as file:
        file["runs/00000"].attrs[name] = "{}"
    with pytest.raises(ResultsError, match="checksum"):
        sim.results.open(path)


def test_a_field_that_came_later_does_not_spoil_the_checksum(results, archive, monkeypatch):
    """An older archive lacks values that this version fills in: its checksum is that of what it holds."""
    fields = results.preset.as_dict()["fields"]
    monkeypatch.setattr(layout, "_read_spec", lambda text: (json.loads(text), load_preset("v100")))
    assert sim.results.open(archive).run().preset.as_dict()["fields"] != fields


def test_a_run_of_several_or_failed_is_not_taken_for_the_one(results, tmp_path):
    path = tmp_path / "many.h5"
    write_runs(path, [results, Failure({"hbm.channels": 3}, "does not fit")], "ab")
    found = sim.results.open(path)
    assert found.study == "ab" and [number for number, _ in found.failures()] == [1]
    with pytest.raises(ResultsError, match="found 2 runs"):
        found.run()
    with pytest.raises(ResultsError, match="run: found 2, allowed are 0 to 1"):
        found.run(2)
    assert found.run(0).totals == results.totals
    with pytest.raises(ResultsError, match="run 1 has failed: does not fit"):
        found.run(1)


def test_missing_folder_is_named(results, tmp_path):
    with pytest.raises(Exception, match=r"nowhere/run\.h5") as caught:
        write_results(tmp_path / "nowhere" / "run.h5", results)
    assert "\n" not in str(caught.value)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import sim.results
from traces.errors import UserError
results = sim.results.open(sys.argv[1]).run()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
try:
    sim.results.write_results(sys.argv[2], results)
except UserError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits the file size with POSIX means")
def test_full_disk_leaves_nothing(archive):
    folder = archive.parent / "full"
    folder.mkdir()
    command = [sys.executable, "-c", FULL_DISK, str(archive), str(folder / "out.h5")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "out.h5: cannot write" in done.stdout
    assert list(folder.iterdir()) == []
