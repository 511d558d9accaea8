"""Where the verbs write: places that cannot be written, full disks, and a standard output that is full or gone."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import SMALL_TRACE, SMALL_TRACE_TEXT
from traces.command.cli import main

WRITING_VERBS = {
    "run": ["run", SMALL_TRACE],
    "gemm": ["trace", "make", "gemm:m=256,n=256,k=64"],
    "import": ["trace", "import", SMALL_TRACE_TEXT],
}
EVERY_WRITING_VERB = pytest.mark.parametrize("arguments", WRITING_VERBS.values(), ids=WRITING_VERBS)


def refused(capsys, *arguments):
    """The mistake that a command reports, after progress."""
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err.splitlines()[-1]


@EVERY_WRITING_VERB
def test_a_place_that_cannot_be_written(arguments, tmp_path, capsys):
    assert "no/out.h5: cannot write: no such folder" in refused(capsys, *arguments, "-o", tmp_path / "no" / "out.h5")
    assert f"{tmp_path}: cannot write: is a folder" in refused(capsys, *arguments, "-o", tmp_path)
    assert "cannot write" in refused(capsys, *arguments, "-o", "")
    assert list(tmp_path.iterdir()) == []


@EVERY_WRITING_VERB
def test_a_device_is_not_replaced(arguments, tmp_path, capsys):
    """Renaming a finished file onto a device would take the device away; a fifo stands for it here."""
    device = tmp_path / "device"
    os.mkfifo(device)
    assert "device: cannot write: no regular file" in refused(capsys, *arguments, "-o", device)
    assert device.is_fifo()


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "far").mkdir()
    link = tmp_path / "link.h5"
    link.symlink_to(tmp_path / "far" / "out.h5")
    assert main([*WRITING_VERBS["gemm"], "-o", str(link)]) == 0
    assert link.is_symlink() and (tmp_path / "far" / "out.h5").is_file()


@pytest.fixture
def disk_of_4096_bytes():
    """A limit on the size of files, which fails as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # Python ignores the signal of it
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@EVERY_WRITING_VERB
def test_full_disk(arguments, tmp_path, capsys, request):
    assert main([*map(str, arguments), "-o", str(tmp_path / "first.h5")]) == 0  # and now all kernels are compiled
    request.getfixturevalue("disk_of_4096_bytes")
    assert "out.h5: cannot write" in refused(capsys, *arguments, "-o", tmp_path / "out.h5")
    assert [path.name for path in tmp_path.iterdir()] == ["first.h5"]


def test_full_disk_while_exporting(tmp_path, capsys, request):
    export = ["trace", "export", SMALL_TRACE, "-o"]
    assert main([*map(str, export), str(tmp_path / "first")]) == 0
    request.getfixturevalue("disk_of_4096_bytes")
    assert "cannot write" in refused(capsys, *export, tmp_path / "second")
    assert not (tmp_path / "second").exists() or list((tmp_path / "second").iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["presets"], ["presets", "--json"], ["--help"], ["trace", "info", SMALL_TRACE]])
def test_full_standard_output(arguments):
    with open("/dev/full", "w") as full:
        program = "import sys; from traces.command.cli import main; sys.exit(main())"
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (2, "t3sim: standard output: No space left on device\n")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["presets"], ["presets", "--json"], ["trace", "info", SMALL_TRACE]])
def test_closed_standard_output(arguments):
    program = "import sys; from traces.command.cli import main; sys.exit(main())"
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_input_is_not_replaced(tmp_path, capsys):
    """The trace, the machine or the program of the user would be lost."""
    trace, text, preset = tmp_path / "trace.h5", tmp_path / "kernel-1.traceg.xz", tmp_path / "own.toml"
    trace.write_bytes(Path(SMALL_TRACE).read_bytes())
    text.write_bytes((Path(SMALL_TRACE_TEXT) / "kernel-1.traceg.xz").read_bytes())
    preset.write_text('extends = "v100"\n')
    (tmp_path / "link.h5").symlink_to(trace)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    t3 = ["t3", "--kernel", "gemm:m=256,n=256,k=64", "--gpus", "2", "--preset", preset]
    for *command, output in (
        ["run", trace, trace],
        ["run", trace, tmp_path / "link.h5"],
        ["run", trace, "--preset", preset, preset],
        [*t3, preset],
        ["trace", "import", text, text],
    ):
        assert f"{output}: cannot write: it is an input of this command" in refused(capsys, *command, "-o", output)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
