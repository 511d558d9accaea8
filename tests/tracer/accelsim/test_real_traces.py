"""Real traces (not in the project): found at $T3SIM_DATA/real-traces; every one imports, verifies and comes back."""

import os
from pathlib import Path

import pytest

from tests.support.accelsim_sectors import sectors_by_kind
from tracer.accelsim.reader import open_accelsim
from tracer.accelsim.writer import export_accelsim, same_events
from tracer.verify import verify_archive
from traces.archive import open_archive, write_archive
from traces.schema import Kind
from traces.source import Prefill

DATA = os.environ.get("T3SIM_DATA", "")
FOLDERS = sorted(path for path in Path(DATA, "real-traces").glob("*") if path.is_dir()) if DATA else []
INSTRUCTIONS = {
    "sm61-v4-matrixmul": 4416,
    "sm61-v4-vectoradd": 344,
    "sm70-v3-cublas-dot": 57114,
    "sm75-v1.2-vecadd": 46941,
    "sm80-v5-flashinfer-prefill": 29024,
}
"""Instruction lines of each folder's files, counted with grep."""

pytestmark = pytest.mark.skipif(not FOLDERS, reason="T3SIM_DATA is not set: no real traces to read")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_imports_verifies_and_comes_back(folder, tmp_path):
    source = open_accelsim(folder)
    summary = write_archive(tmp_path / "trace.h5", source)
    assert source.problems.lines() == []
    if folder.name in INSTRUCTIONS:
        assert summary.instructions == INSTRUCTIONS[folder.name]
    assert verify_archive(tmp_path / "trace.h5").checksum == summary.checksum
    with open_archive(tmp_path / "trace.h5") as archive:
        exported = export_accelsim(archive, tmp_path / "out")
        assert exported.changed_workgroups == 0
        for ours, theirs in zip(archive.commands(), open_accelsim(tmp_path / "out").commands(), strict=True):
            if isinstance(ours, Prefill):
                assert ours == theirs
                continue
            for one, other in zip(ours.workgroups(), theirs.workgroups(), strict=True):
                assert same_events(one, other)
    print(f"{folder.name}: {summary}")


def test_flashinfer_moves_what_accelsim_counted():
    folder = Path(DATA, "real-traces", "sm80-v5-flashinfer-prefill")
    if not folder.is_dir():
        pytest.skip(f"no {folder.name} in T3SIM_DATA")
    (kernel,) = open_accelsim(folder).commands()
    sectors = sectors_by_kind(kernel)
    assert (sectors[Kind.ASYNC_COPY], sectors[Kind.STORE], sectors[Kind.LOAD]) == (5120, 2048, 0)
