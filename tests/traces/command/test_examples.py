"""The examples in the help of every verb do what they say; after `t3sim warm` nothing is left to compile."""

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.support.one_kernel import OneKernel, Trace
from tests.support.paths import BINARIES, ROOT, SMALL_TRACE_TEXT
from tests.support.profiles import layer, write_profile
from traces.archive import write_archive
from traces.command.cli import main, t3sim
from traces.command.verbs import verbs

GROUPS = ("trace", "elf")
VERB_PATHS = [tuple(name.split(".")) for name in verbs() if name not in GROUPS]
PROGRAM = "import sys; from traces.command.cli import main; sys.exit(main())"


TINY_MODEL = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
}


def help_of(path):
    command = t3sim
    for name in path:
        command = command.get_command(None, name)
    return command.help


def examples(path):
    """Commands after `Example:` in the help of a verb."""
    return re.findall(r"Example: (.*)", help_of(path))


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with every file that the examples name."""
    folder = tmp_path_factory.mktemp("desk")
    shutil.copytree(SMALL_TRACE_TEXT, folder / "traces")
    shutil.copy(BINARIES / "lines_sm90.cubin", folder / "app")
    write_archive(folder / "app.h5", Trace(OneKernel("promised", {"architecture": "sm_90"})))
    (folder / "config.json").write_text(json.dumps(TINY_MODEL))
    write_profile(folder / "rank0.pt.trace.json.gz", layer(8), gpus=8)
    (folder / "study.toml").write_text("kernel = 'gemm:m=64,n=64,k=32'\n[axes]\nl2.mshrs = [64, 96]\n")
    (folder / "requests.trace.gz").write_bytes(gzip.compress(b"R 0 0\nW 64 10\nU 4096 10\n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["trace", "make", "gemm:m=256,n=256,k=64", "-o", "gemm.h5"]) == 0
        assert main(["run", "gemm.h5", "-o", "result.h5"]) == 0
        assert main(["t3", "--kernel", "gemm:m=256,n=256,k=64", "--gpus", "2", "-o", "small.h5"]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("path", VERB_PATHS, ids=" ".join)
def test_examples_work(path, desk, monkeypatch, capsys):
    monkeypatch.chdir(desk)
    found = examples(path)
    assert found
    for command in found:
        words = shlex.split(command)
        assert tuple(words[1 : 1 + len(path)]) == path
        assert main(words[1:]) == 0, capsys.readouterr().err


def test_the_first_example_of_the_command_is_the_readmes():
    (command,) = re.findall(r"Example: (.*) -o", t3sim.help)
    assert command in (ROOT / "README.md").read_text()


LATER = """
import os, sys
from tracer.compile.jit import compiled_functions
from traces.command.cli import main
commands = [line.split() for line in sys.stdin]
out, sys.stdout = sys.stdout, open(os.devnull, "w")
for command in commands:
    status = main(command)
    print(status, compiled_functions(), *command, file=out)
"""
COMMANDS = """\
run gemm.h5 --preset v100 --interval-ns 1000
run --kernel gemm:shape=64x64x64,split_k=2,copy=async,epilogue=staged --preset accelsim_qv100 --keep-l2
run --gemm 64x64x64 --line-trace --set hbm.arbiter=round_robin
run traces
trace make gemm:m=64,n=64,k=64,lanes=64,order=grouped,persistent=2,with_c=true -o later.h5
trace export gemm.h5 -o later
trace import later -o later.h5
trace verify later.h5
dram requests.trace.gz --set D --map BG --nmc-updates
"""


@pytest.mark.slow
def test_after_warm_nothing_is_left_to_compile(desk):
    def process(*arguments, given=""):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=desk,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=True,
        )

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = process("-c", PROGRAM, "warm")
    assert re.match(r"\d+ functions compiled in [\d.]+ s; cache: ", first.stdout)
    assert ("functions, once" in first.stderr) == (not first.stdout.startswith("0 "))
    assert process("-c", PROGRAM, "warm").stdout.startswith("0 functions compiled in 0.0 s")
    later = process("-c", LATER, given=COMMANDS).stdout
    assert later.splitlines() == [f"0 0 {command}" for command in COMMANDS.splitlines()]
