"""The committed synthetic traces against what Accel-Sim counted on them, and the archives made from them."""

import csv
from pathlib import Path

import pytest

from tests.support.accelsim_sectors import sectors_by_kind
from tracer.accelsim.make_small import ROOT, SMALL, make
from tracer.accelsim.reader import open_accelsim
from tracer.accelsim.writer import export_accelsim, same_events
from tracer.verify import verify_archive
from traces.archive import open_archive
from traces.schema import Kind

REFERENCES = ROOT / "validation" / "references"
SMALL_BYTES_MAX = 100_000


def reference(case):
    """Row of accelsim.csv."""
    with open(REFERENCES / "accelsim.csv", newline="") as file:
        return next(row for row in csv.DictReader(file) if row["case"] == case)


@pytest.mark.parametrize(("archive", "folder"), SMALL.items())
def test_traffic_and_instructions_equal_accelsims(archive, folder):
    (kernel,) = open_accelsim(REFERENCES / "accelsim_traces" / folder).commands()
    expected = reference(archive.removesuffix(".h5"))
    sectors = sectors_by_kind(kernel)
    assert sectors[Kind.LOAD] == int(expected["l1_read_sectors"])
    assert sectors[Kind.STORE] == int(expected["l1_write_sectors"])
    instructions = sum(int(workgroup.events["count"].sum()) for workgroup in kernel.workgroups())
    assert instructions == int(expected["warp_instructions"])


@pytest.mark.parametrize("archive", SMALL)
def test_committed_archives_verify_and_are_small(archive):
    path = ROOT / "traces" / "small" / archive
    assert path.stat().st_size < SMALL_BYTES_MAX
    verify_archive(path)


def test_committed_archives_are_what_an_import_gives(tmp_path):
    make(tmp_path)
    for archive in SMALL:
        with open_archive(tmp_path / archive) as new, open_archive(ROOT / "traces" / "small" / archive) as committed:
            assert new.checksum == committed.checksum, "run python -m tracer.accelsim.make_small"


@pytest.mark.slow
@pytest.mark.parametrize("folder", SMALL.values())
def test_the_references_come_back_without_notes(tmp_path, folder):
    source = open_accelsim(REFERENCES / "accelsim_traces" / folder)
    summary = export_accelsim(source, tmp_path)
    assert (summary.noted_workgroups, summary.changed_workgroups) == (0, 0)
    for ours, theirs in zip(source.commands(), open_accelsim(tmp_path).commands(), strict=True):
        for one, other in zip(ours.workgroups(), theirs.workgroups(), strict=True):
            assert same_events(one, other)


def test_iteration_starts_anywhere():
    (kernel,) = open_accelsim(Path(REFERENCES / "accelsim_traces" / "copy_512KiB_sm70")).commands()
    everything = list(kernel.workgroups())
    later = list(kernel.workgroups(30))
    assert [w.index for w in later] == [30, 31]
    assert same_events(later[0], everything[30])
