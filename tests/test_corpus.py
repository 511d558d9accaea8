"""Every input that ever hurt, given to the verbs that read its kind: they end in time, with a result or one line."""

import faulthandler
import lzma
import shutil

import pytest

from tests.support.paths import ROOT, SMALL_TRACE, SMALL_TRACE_TEXT
from traces.command.cli import main

CORPUS = ROOT / "tests" / "corpus"
INPUTS = sorted(path.name for path in CORPUS.iterdir() if path.name != "README.md")
LIMIT_S = 120
"""A verb that takes longer ends the test run with its stack."""
ARCHIVE_VERBS = (
    ("trace", "info", "IN"), ("trace", "verify", "IN"), ("trace", "export", "IN", "-o", "OUT"), ("run", "IN"),
    ("show", "IN"), ("merge", "IN", "IN", "-o", "OUT.h5"), ("diff", "IN", "IN"), ("timeline", "IN", "-o", "OUT.json"),
    ("plot", "rates", "IN", "-o", "OUT.png"),
)  # fmt: skip
TEXT_VERBS = (("trace", "import", "IN", "-o", "OUT.h5"), ("run", "IN"))
MACHINE_VERBS = (("run", "--gemm", "64x64x32", "--preset", "IN"), ("presets", "IN"))
STUDY_VERBS = (("study", "IN", "-o", "OUT", "--workers", "0"),)
VERBS = {".xz": ARCHIVE_VERBS, ".g": TEXT_VERBS, "machine": MACHINE_VERBS, "study": STUDY_VERBS}
"""End or begin of a file's name -> verbs that read it."""
ACCEPTED = {"cmd_prefill_huge.h5.xz", "memcpy_64GiB.g"}
"""Right inputs that only took for ever."""


@pytest.fixture(scope="module")
def compiled_machine():
    """Not on the clock: what a good trace compiles."""
    assert main(["run", str(SMALL_TRACE)]) == 0


@pytest.fixture(autouse=True)
def watch(compiled_machine):
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def unpacked(name, folder):
    if name.endswith(".xz"):
        path = folder / name.removesuffix(".xz")
        path.write_bytes(lzma.decompress((CORPUS / name).read_bytes()))
        return path
    if name.endswith(".g"):
        for trace in SMALL_TRACE_TEXT.glob("kernel-*"):
            shutil.copy(trace, folder)
    return shutil.copy(CORPUS / name, folder)


@pytest.mark.parametrize("name", INPUTS)
def test_ends_in_time_with_a_result_or_one_line(tmp_path, capsys, name):
    path, ends = unpacked(name, tmp_path), {}
    for verb in next(verbs for part, verbs in VERBS.items() if name.endswith(part) or name.startswith(part)):
        words = [word.replace("IN", str(path)).replace("OUT", str(tmp_path / "out")) for word in verb]
        ends[verb[0]] = main(words)
        err = capsys.readouterr().err
        assert ends[verb[0]] == 0 or (ends[verb[0]] == 2 and len(err.splitlines()) == 1), (words, err)
    assert ends.get("run", ends.get("study")) == (0 if name in ACCEPTED else 2)
