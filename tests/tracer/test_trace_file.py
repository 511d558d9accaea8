"""A stored trace is opened as what it is, whatever its name is."""

import shutil

import pytest

from tests.support.checkout import ROOT
from tracer.accelsim.reader import AccelsimTrace
from tracer.trace_file import open_trace
from traces.archive import Archive
from traces.errors import UserError

ARCHIVE = ROOT / "traces" / "small" / "gemm_512x512x256.h5"
TEXT = ROOT / "validation" / "references" / "accelsim_traces" / "gemm_512x512x256_sm70"


def test_an_archive_may_have_any_name(tmp_path):
    other = tmp_path / "gemm.kept"
    shutil.copy(ARCHIVE, other)
    for path in (ARCHIVE, other, str(other)):
        with open_trace(path) as opened:
            assert isinstance(opened, Archive)
    assert isinstance(open_trace(TEXT), AccelsimTrace)


def test_an_archive_that_is_none_is_named_as_such(tmp_path):
    path = tmp_path / "text.h5"
    path.write_text("hello\n")
    with pytest.raises(UserError, match="not a trace archive"):
        open_trace(path)
    with pytest.raises(UserError, match="none: no such file"):
        open_trace(tmp_path / "none")
