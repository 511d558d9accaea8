"""`t3sim doctor` and `t3sim completion`."""

import json
import os
import subprocess
import sys

import pytest
from click.shell_completion import get_completion_class

from sim.verbs import doctor as verb
from tests.support.paths import ROOT
from traces.command.cli import main, t3sim
from traces.verbs.completion import VARIABLE

PROGRAM = "import sys; from traces.command.cli import main; sys.exit(main())"


def test_a_sound_installation(capsys):
    assert main(["run", "--gemm", "64x64x32"]) == 0
    capsys.readouterr()
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == [] and found["compiled"]["the machine"] == "compiled"
    assert found["libraries"]["numba"][0].isdigit() and found["cache"]["functions"] > 100
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "no problems" in shown and "T3SIM_CACHE_DIR" in shown


@pytest.mark.slow
def test_an_empty_cache_and_a_file_in_its_place(tmp_path):
    def doctor(folder):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "T3SIM_CACHE_DIR": str(folder)}
        command = [sys.executable, "-c", PROGRAM, "doctor", "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    status, found = doctor(tmp_path / "new")
    assert status == 0 and found["compiled"]["the machine"].startswith("not yet")
    assert found["cache"] | {"free_bytes": 0} == {
        "folder": str(tmp_path / "new"),
        "writable": True,
        "functions": 0,
        "bytes": 0,
        "free_bytes": 0,
    }
    (tmp_path / "file").write_text("in the way")
    status, found = doctor(tmp_path / "file")
    assert status == 1 and "set T3SIM_CACHE_DIR" in found["problems"][0]


def test_missing_libraries_and_policies_are_problems(monkeypatch, capsys):
    monkeypatch.setattr(verb, "LIBRARIES", ("numpy", "no-such-library"))
    monkeypatch.setitem(verb.OPTIONAL, "no-such-extra", "plots")
    monkeypatch.setenv("T3SIM_POLICY", "gone.py")
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "problem: no-such-library is not installed" in shown and "problem: T3SIM_POLICY: no file gone.py" in shown
    assert "not installed (pip install 't3sim[plots]')" in shown


def test_numbers_that_no_run_accepts_are_problems(monkeypatch, capsys):
    monkeypatch.setenv("T3SIM_STORE_BYTES", "2 GiB")
    monkeypatch.setenv("T3SIM_THREADS", "none")
    assert main(["doctor"]) == 1
    problems = [line for line in capsys.readouterr().out.splitlines() if line.startswith("problem: ")]
    assert ["T3SIM_STORE_BYTES: found '2 GiB'" in problems[0], "T3SIM_THREADS: found 'none'" in problems[1]] == [
        True
    ] * 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_T3SIM_COMPLETE" in script and "t3sim" in script


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("t3sim stu", ["study"]),
        ("t3sim trace ex", ["export"]),
        ("t3sim run --pol", ["--policy"]),
        ("t3sim plot r", ["rates", "roofline"]),
        ("t3sim run --preset t3", ["t3_2024"]),
        ("t3sim run --preset nothing", ["nothing"]),
        ("t3sim presets gpu", ["gpu_2x_cu"]),
        ("t3sim t3 --set link.e", ["link.efficiency=", "link.egress_fifo="]),
        ("t3sim t3 --model t", ["t-nlg"]),
        ("t3sim t3 --layer f", ["fc2", "fc1"]),
        ("t3sim run --workload mega-gpt-2/op/", ["mega-gpt-2/op/tp8", "mega-gpt-2/op/tp16"]),
        ("t3sim run --kernel lay", ["layernorm:"]),
        ("t3sim t3 --kernel gemm:tile_n=64,tile_", ["gemm:tile_n=64,tile_m=", "gemm:tile_n=64,tile_k="]),
    ],
)
def test_what_a_shell_is_told(words, expected, monkeypatch):
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    shell = get_completion_class("bash")(t3sim, {}, "t3sim", VARIABLE)
    assert [line.partition(",")[2] for line in shell.complete().split()] == expected


@pytest.mark.slow
def test_a_shell_asks_the_command():
    """In a process of its own, as a shell does."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: "bash_complete"}
    environment |= {"COMP_WORDS": "t3sim run --pol", "COMP_CWORD": "2"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,--policy"], done.stderr


def test_another_distribution_with_a_package_of_our_name(tmp_path, monkeypatch, capsys):
    record = tmp_path / "traces-0.6.4.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: traces\nVersion: 0.6.4\n")
    (record / "top_level.txt").write_text("traces\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["doctor", "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem.startswith("traces installs a package traces too")
