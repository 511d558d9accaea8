"""The archive: what goes in comes out, equal content gives equal bytes, damage is refused in one line."""

import dataclasses
import hashlib
import json
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.paths import SMALL_TRACE
from tests.support.programs import Kernel, random_cluster_kernel
from tests.support.sealed import changed_archive
from tests.support.trace_samples import ListSource, assert_same_workgroup, random_kernel, random_source
from tracer.verify import verify_archive
from traces import archive as archive_module
from traces.archive import describe, open_archive, write_archive
from traces.compress import CHOICES
from traces.errors import UserError
from traces.frames import events_frame
from traces.layout import CHUNK_ROWS, EVENT_COLUMNS, KERNEL_DATASETS
from traces.source import Prefill, warnings_of


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "trace.h5"
    write_archive(path, random_source())
    return path


def test_what_goes_in_comes_out(tmp_path):
    source = random_source(workgroups=7)
    summary = write_archive(tmp_path / "t.h5", source)
    with open_archive(tmp_path / "t.h5") as archive:
        assert archive.fingerprint() == summary.checksum
        commands = list(archive.commands())
        assert [type(c) is Prefill for c in commands] == [True, False, True, False]
        assert commands[0] == source.items[0]
        for kernel, expected in zip(archive.kernels, (source.items[1], source.items[3]), strict=True):
            assert kernel.info == expected.info
            for left, right in zip(kernel.workgroups(), expected.workgroups(), strict=True):
                assert_same_workgroup(left, right)


@pytest.mark.parametrize("start", [0, 1, 6, 7])
def test_iteration_starts_anywhere(tmp_path, start):
    kernel = random_kernel(workgroups=7)
    write_archive(tmp_path / "t.h5", ListSource([kernel]))
    with open_archive(tmp_path / "t.h5") as archive:
        for left, right in zip(archive.kernels[0].workgroups(start), kernel.workgroups(start), strict=True):
            assert_same_workgroup(left, right)
        with pytest.raises(UserError, match="workgroup 8: allowed 0 to 7"):
            next(archive.kernels[0].workgroups(8))


@pytest.mark.slow
def test_columns_longer_than_a_chunk_and_many_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(archive_module, "WORKGROUPS_PER_READ", 3)
    kernel = random_kernel(workgroups=40, warps=8, events_per_warp=700)
    summary = write_archive(tmp_path / "t.h5", ListSource([kernel]))
    assert summary.events > CHUNK_ROWS
    with open_archive(tmp_path / "t.h5") as archive:
        for left, right in zip(archive.kernels[0].workgroups(), kernel.workgroups(), strict=True):
            assert_same_workgroup(left, right)
    assert verify_archive(tmp_path / "t.h5").checksum == summary.checksum
    with h5py.File(tmp_path / "t.h5") as file:
        assert file["/kernels/0000/kind"].chunks == (CHUNK_ROWS,)


def test_empty_kernel_and_empty_list(tmp_path):
    write_archive(tmp_path / "none.h5", ListSource([]))
    assert verify_archive(tmp_path / "none.h5").kernels == 0
    write_archive(tmp_path / "empty.h5", ListSource([random_kernel(workgroups=0)]))
    assert verify_archive(tmp_path / "empty.h5").kernels == 1
    with open_archive(tmp_path / "empty.h5") as archive:
        assert list(archive.kernels[0].workgroups()) == []


def test_same_input_same_bytes(tmp_path):
    for name in ("a.h5", "b.h5"):
        write_archive(tmp_path / name, random_source())
    assert sha256(tmp_path / "a.h5") == sha256(tmp_path / "b.h5")


@pytest.mark.slow
def test_the_checksum_is_of_content_not_of_bytes(tmp_path):
    pytest.importorskip("hdf5plugin")
    sums = {write_archive(tmp_path / f"{c}.h5", random_source(), compression=c).checksum for c in CHOICES}
    assert len(sums) == 1
    assert len({sha256(tmp_path / f"{c}.h5") for c in CHOICES}) == 3
    for choice in CHOICES:
        verify_archive(tmp_path / f"{choice}.h5")


@pytest.mark.slow
def test_the_checksum_sees_every_column_attribute_and_command(tmp_path):
    source = random_source()
    sums = {write_archive(tmp_path / "t.h5", source).checksum}
    kernel = source.items[1]
    for column in EVENT_COLUMNS:
        changed = [item._replace(events=item.events.copy()) for item in kernel.items]
        changed[0].events[column][:1] += 1
        altered = [source.items[0], dataclasses.replace(kernel, items=changed), *source.items[2:]]
        sums.add(write_archive(tmp_path / "t.h5", ListSource(altered)).checksum)
    renamed = dataclasses.replace(kernel, info=dataclasses.replace(kernel.info, attributes={"source": "other"}))
    sums.add(write_archive(tmp_path / "t.h5", ListSource([source.items[0], renamed, *source.items[2:]])).checksum)
    sums.add(write_archive(tmp_path / "t.h5", ListSource(source.items[1:])).checksum)
    assert len(sums) == 1 + len(EVENT_COLUMNS) + 2


def test_zstd_without_the_plugin_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    with pytest.raises(UserError, match="need the package hdf5plugin"):
        write_archive(tmp_path / "t.h5", random_source(), compression="zstd")
    with pytest.raises(UserError, match="found 'lzma', allowed gzip, zstd, blosc2"):
        write_archive(tmp_path / "t.h5", random_source(), compression="lzma")
    assert list(tmp_path.iterdir()) == []


def test_every_dataset_is_in_the_registry_and_says_what_it_is(stored):
    with h5py.File(stored) as file:
        group = file["/kernels/0000"]
        for name, entry in KERNEL_DATASETS.items():
            assert group[name].attrs["units"] == entry.unit
            assert group[name].attrs["long_name"] == entry.meaning
            assert group[name].dims[0][0].name.endswith(f"/{entry.dimension}")
        dimensions = {entry.dimension for entry in KERNEL_DATASETS.values()}
        assert set(group) == set(KERNEL_DATASETS) | dimensions


def test_opens_in_pandas(stored):
    with open_archive(stored) as archive:
        frame = events_frame(archive.kernels[0], 3, 40)
        assert list(frame.index[:2]) == [3, 4]
        assert list(frame.columns[:2]) == ["workgroup", "warp"]
        rows = [
            (item.index, int(item.warp[w]), int(event["pc"]))
            for item in archive.kernels[0].workgroups()
            for w in range(len(item.warp))
            for event in item.events[item.first_event[w] : item.first_event[w + 1]]
        ]
        assert list(zip(frame["workgroup"], frame["warp"], frame["pc"], strict=True)) == rows[3:40]


def test_opens_in_xarray(stored):
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    with (
        open_archive(stored) as archive,
        xarray.open_dataset(stored, group="/kernels/0000", engine="h5netcdf") as data,
    ):
        assert data["mask"].dims == ("event",)
        assert data.sizes["workgroup_edge"] == data.sizes["workgroup"] + 1
        np.testing.assert_array_equal(data["base"], archive.kernels[0].read_column("base"))


def test_describe(stored):
    facts = describe(stored)
    assert [kernel["name"] for kernel in facts["kernels"]] == ["sample", "second"]
    assert facts["prefill_bytes"] == 4096 + 123
    json.dumps(facts)


def test_refuses_what_is_not_an_archive(tmp_path, stored):
    with pytest.raises(UserError, match="no such file"):
        open_archive(tmp_path / "missing.h5")
    text = tmp_path / "text.h5"
    text.write_text("not hdf5")
    with pytest.raises(UserError, match="not an HDF5 file"):
        open_archive(text)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    with pytest.raises(UserError, match="file_type is None, expected 't3sim-trace'"):
        open_archive(tmp_path / "other.h5")
    with changed_archive(stored) as file:
        file.attrs["format_version"] = 99
    with pytest.raises(UserError, match="format_version is 99, allowed is 1 to 2"):
        open_archive(stored)


def test_clusters_come_out_as_they_went_in(tmp_path):
    source = random_cluster_kernel(5)
    write_archive(tmp_path / "t.h5", ListSource([source]))
    with open_archive(tmp_path / "t.h5") as archive:
        (kernel,) = archive.kernels
        assert kernel.info == source.info and kernel.info.cluster == 3
        for left, right in zip(kernel.workgroups(), source.workgroups(), strict=True):
            assert_same_workgroup(left, right)
    verify_archive(tmp_path / "t.h5")
    alone = dataclasses.replace(source.info, cluster=1)
    write_archive(tmp_path / "alone.h5", ListSource([Kernel(alone, source.items)]))
    with open_archive(tmp_path / "alone.h5") as archive:
        assert archive.fingerprint() != open_archive(tmp_path / "t.h5").fingerprint()
    with pytest.raises(UserError, match="cycles: found"):  # ranks of a cluster that there is not
        verify_archive(tmp_path / "alone.h5")


@pytest.mark.parametrize(("cluster", "message"), [(5, "does not divide its 12 workgroups"), (24, "allowed 1 to 16")])
def test_impossible_clusters_are_refused(tmp_path, cluster, message):
    source = random_cluster_kernel(5)
    wrong = dataclasses.replace(source.info, cluster=cluster)
    write_archive(tmp_path / "t.h5", ListSource([Kernel(wrong, source.items)]))
    with pytest.raises(UserError, match=message):
        verify_archive(tmp_path / "t.h5")


def test_reads_version_1(tmp_path):
    """Written by t3sim before archives had a seal."""
    old = Path(__file__).parent / "archives" / "trace_v1.h5"
    with open_archive(old) as archive, open_archive(SMALL_TRACE) as same:
        assert (archive.version, same.version) == (1, 2)
        assert archive.fingerprint() == same.fingerprint() == verify_archive(old).checksum
        write_archive(tmp_path / "new.h5", archive)
    assert (tmp_path / "new.h5").read_bytes() == SMALL_TRACE.read_bytes()


@pytest.mark.parametrize("count", [0, 1, 4000])
def test_warnings_of_the_source_come_out(tmp_path, count):
    """Also more than the 64 KiB of a usual attribute. They are no part of the checksum."""
    path, source = tmp_path / "a.h5", random_source()
    checksum = write_archive(path, source).checksum
    source.warnings = [f"kernel-1.traceg:{number}: odd \N{SNOWMAN}\n{'x' * 40}" for number in range(count)]
    assert write_archive(path, source).checksum == checksum
    with open_archive(path) as archive:
        assert archive.warnings == source.warnings == warnings_of(archive)
        write_archive(tmp_path / "b.h5", archive)
    assert describe(tmp_path / "b.h5")["warnings"] == source.warnings


@pytest.mark.parametrize("text", ["", "{}", "[1]", "3"])
def test_warnings_that_are_no_list_of_texts_are_refused(stored, text):
    with changed_archive(stored) as file:
        file.attrs["warnings"] = text
    with pytest.raises(UserError, match="damaged or truncated archive"):
        open_archive(stored)


def test_the_bytes_do_not_depend_on_when_python_frees_a_dataset(stored, tmp_path, monkeypatch):
    held, create = [], h5py.Group.create_dataset

    def create_and_hold(*args, **options):
        held.append(create(*args, **options))
        return held[-1]

    monkeypatch.setattr(h5py.Group, "create_dataset", create_and_hold)
    write_archive(tmp_path / "held.h5", random_source())
    assert held and sha256(tmp_path / "held.h5") == sha256(stored)


def test_refuses_missing_and_misshapen_datasets(stored):
    with changed_archive(stored) as file:
        del file["/kernels/0001/mask"]
    with pytest.raises(UserError, match="/kernels/0001 lacks mask"):
        open_archive(stored)
    with changed_archive(stored) as file:
        file["/kernels/0001/mask"] = np.zeros(3)
    with pytest.raises(UserError, match="/kernels/0001/mask: found float64"):
        open_archive(stored)


@pytest.mark.parametrize("where", ["/kernels/0001/base", "/kernels/0000/warp_index", "/commands/command_bytes"])
def test_verify_finds_a_changed_value(stored, where):
    with changed_archive(stored) as file:
        file[where][0] += 1
    with pytest.raises(UserError, match="checksum mismatch"):
        verify_archive(stored)


def test_verify_finds_offsets_that_do_not_rise(stored):
    with changed_archive(stored) as file:
        file["/kernels/0000/warp_first_event"][1] = 10**9
    with open_archive(stored) as archive, pytest.raises(UserError, match="warp_first_event: offsets do not rise"):
        list(archive.kernels[0].workgroups())


def test_a_truncated_archive_is_refused_at_every_length(tmp_path, stored):
    content = stored.read_bytes()
    cut = tmp_path / "cut.h5"
    for length in range(0, len(content), 4999):
        cut.write_bytes(content[:length])
        with pytest.raises(UserError, match=r"cut\.h5"):
            verify_archive(cut)


@pytest.mark.slow
def test_a_flipped_byte_never_crashes(tmp_path, stored):
    content = bytearray(stored.read_bytes())
    good = verify_archive(stored).checksum
    rng = np.random.default_rng(3)
    for offset in rng.choice(len(content), 100, replace=False):
        damaged = tmp_path / "damaged.h5"
        flipped = bytearray(content)
        flipped[offset] ^= 0xFF
        damaged.write_bytes(flipped)
        with suppress(UserError):
            assert verify_archive(damaged).checksum == good  # unused bytes, units and remarks are not content


def test_a_failing_source_leaves_nothing(tmp_path):
    kernel = random_kernel()

    def broken(start=0):
        yield kernel.items[0]
        raise UserError("line 7: broken")

    kernel.workgroups = broken
    (tmp_path / "t.h5").write_text("the previous archive")
    with pytest.raises(UserError, match="line 7"):
        write_archive(tmp_path / "t.h5", ListSource([kernel]))
    assert [p.name for p in tmp_path.iterdir()] == ["t.h5"]
    assert (tmp_path / "t.h5").read_text() == "the previous archive"


def test_folder_missing(tmp_path):
    with pytest.raises(UserError, match="cannot write"):
        write_archive(tmp_path / "no" / "t.h5", random_source())


FULL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from tests.support.trace_samples import random_source
from traces.archive import write_archive
from traces.errors import UserError
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    write_archive(sys.argv[1], random_source(workgroups=40, warps=8, events_per_warp=700))
except UserError as error:
    print(error)
    sys.exit(2)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on file size")
@pytest.mark.parametrize("limit", [0, 4096, 100_000, 1_000_000])
def test_full_disk(tmp_path, limit):
    script = FULL_DISK.format(limit=limit)
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "t.h5"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "cannot write" in done.stdout
    assert list(tmp_path.iterdir()) == []
