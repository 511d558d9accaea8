"""Drills: disks that are full, folders that cannot be written, Ctrl-C, mistakes of every form in configuration files.

More of them stand beside what they try: caches that are damaged, cannot be written or are filled by several processes
in `tests/tracer/compile/test_jit.py`, full disks and devices in `test_output.py`, truncated and changed archives in
`tests/sim/results/test_results.py` and `tests/traces/test_archive.py`, killed and interrupted studies in
`tests/sim/run/test_runner.py` and `tests/sim/study/test_run_study.py`.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.presets import load_preset
from sim.presets.load import FOLDER, machine_fields
from sim.results import write_results
from sim.study import load_study
from tests.support.paths import ROOT
from tests.support.result_samples import sample_results
from traces.command.cli import main
from traces.errors import UserError

PROGRAM = "import sys; from traces.command.cli import main; sys.exit(main())"
PRESET = (FOLDER / "v100.toml").read_text(encoding="utf-8")
STUDY = """
preset = "v100"
flush_l2 = true
kernel = "gemm:m=64,n=64,k=32"
[set]
hbm.queue_entries = 32
[axes]
l2.mshrs = [64, 96]
kernel.order = ["row", "grouped"]
[[points]]
interval_ns = 10
"""
ALPHABET = "[]{}\"'=.,#\n -_0123456789abcdefgxyzTF\\\x00é"


@pytest.fixture
def desk(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path_factory.mktemp("store")))
    write_results("result.h5", sample_results())
    Path("study.toml").write_text("kernel = 'gemm:m=64,n=64,k=32'\n[axes]\nl2.mshrs = [64, 96]\n")
    return tmp_path


WRITERS = {
    "study": ["study", "study.toml", "--workers", "0", "-o", "{}"],
    "merge": ["merge", "result.h5", "result.h5", "-o", "{}/out.h5"],
    "plot": ["plot", "traffic", "result.h5", "-o", "{}/out.png"],
}
EVERY_WRITER = pytest.mark.parametrize("arguments", WRITERS.values(), ids=WRITERS)


def told(capsys, arguments, place):
    """The one line that a command ends with when it cannot write to `place`."""
    capsys.readouterr()
    assert main([argument.format(place) for argument in arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("t3sim") and shown.err.count("\n") == 1, shown.err
    return shown.err


@EVERY_WRITER
def test_places_that_cannot_be_written(arguments, desk, capsys):
    write_results("result.h5", drawable())
    Path("first").mkdir()
    assert main([argument.format("first") for argument in arguments]) == 0  # and now all is compiled
    before = sorted(desk.iterdir())
    places = ("study.toml", "/proc") if arguments[0] == "study" else ("nowhere", "study.toml", "/proc")
    for place in places:  # a study makes its folder
        assert "cannot write" in told(capsys, arguments, place)
    assert sorted(desk.iterdir()) == before


@pytest.mark.slow
@EVERY_WRITER
def test_a_full_disk(arguments, desk, capsys):
    """A limit on the size of files fails as a full disk does; nothing that looks whole is left."""
    write_results("result.h5", drawable())
    Path("full").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        assert "cannot write" in told(capsys, arguments, "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in Path("full").rglob("*") if path.is_file() and path.name != "lock"] == []
    assert main([argument.format("full") for argument in arguments]) == 0  # and when there is room, it goes on


def drawable():
    """Sample results with the time series of a run."""
    results = sample_results()
    streams = ("compute_read", "compute_write", "comm_read", "comm_write")
    results.series = {f"dram_{stream}_bytes": results.series["dram_read_bytes"] for stream in streams}
    return results


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    ["run --gemm 16384x16384x64 -o out.h5", "trace make gemm:m=8192,n=8192,k=8192 -o out.h5"],
)
def test_ctrl_c_leaves_nothing(arguments, desk):
    command = [sys.executable, "-c", PROGRAM, *arguments.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert any("workgroups" in line for line in process.stderr)  # it is at work
    os.killpg(process.pid, signal.SIGINT)
    began_s = time.monotonic()
    rest = process.communicate()[1]
    assert process.returncode == 130 and rest.strip().endswith("t3sim: interrupted") and "Traceback" not in rest
    assert time.monotonic() - began_s < 60
    assert sorted(path.name for path in desk.iterdir()) == ["result.h5", "study.toml"]


@st.composite
def spoilt(draw, text):
    """The text with a few pieces deleted, doubled, or replaced."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 30)))
        piece = draw(st.one_of(st.text(ALPHABET, max_size=6), st.just(text[start:end] * 2)))
        text = text[:start] + piece + text[end:]
    return text


def whole_or_one_line(load, name):
    """What is asked for loads, or the mistake is one line that names the file or option."""
    try:
        load()
    except UserError as mistake:
        assert name in str(mistake) and len(str(mistake).splitlines()) == 1, str(mistake)


FUZZ = settings(
    max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.slow
@FUZZ
@given(text=spoilt(PRESET))
def test_a_spoilt_preset(text, tmp_path):
    path = tmp_path / "spoilt.toml"
    path.write_text(text, encoding="utf-8")
    whole_or_one_line(lambda: load_preset(path), "spoilt.toml")


@pytest.mark.slow
@FUZZ
@given(text=spoilt(STUDY))
def test_a_spoilt_study(text, tmp_path):
    path = tmp_path / "spoilt.toml"
    path.write_text(text, encoding="utf-8")
    whole_or_one_line(lambda: load_study(path), "spoilt.toml")


@pytest.mark.slow
@FUZZ
@given(
    field=st.one_of(st.sampled_from(sorted(machine_fields())), st.text(ALPHABET, max_size=12)),
    value=st.one_of(st.integers().map(str), st.floats().map(str), st.text(ALPHABET, max_size=8)),
)
def test_a_wild_override(field, value):
    override = f"{field}={value}".replace("\n", " ")
    whole_or_one_line(lambda: load_preset("v100", [override]), "")


@pytest.mark.parametrize("override", ["l2.mshr_merges=1000000", "hbm.timing.CL=99999999999", "cu.issue_per_clk=1e-9"])
def test_a_machine_beyond_all_hardware(override, capsys):
    """Numbers that would take all memory or never end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, hard))
    try:
        assert main(["run", "--gemm", "64x64x32", "--set", override]) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and ("not enough memory" in error or override.partition("=")[0] in error)
