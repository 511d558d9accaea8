"""The command that `show` prints: it makes the same result again."""

import shlex

import pytest

from sim import results
from sim.collective.chunks import even_chunks
from sim.presets import load_preset
from sim.results.diff import moves
from sim.run.gpus_run import CollectiveRun, FusedRun, SideBySideRun
from sim.run.software import SoftwareRun
from sim.scenario.result import COPY_ENGINES, DECOMPOSED, FLUX, T3_NVLS
from sim.spec import Arbiter
from sim.view.command_text import again
from tests.support.result_samples import sample_results
from tests.support.t3_cases import TILE, fp16_problem
from tracer.gemm.source import GemmSource
from traces.command.cli import main

SMALL = "tile=32x32x16,warps=1x2,order=grouped,group=2"
T3 = ["t3", "--kernel", "gemm:m=64,n=128,k=32,tile=32x32x16,warps=1x2"]
COMMANDS = {
    "operator": ["run", "--kernel", "gelu:rows=64,cols=512", "--preset", "v100"],
    "library": ["run", "--kernel", "gemm:m=256,n=128,k=64", "--preset", "a100_80g"],
    "gemm": ["run", "--kernel", f"gemm:m=96,n=64,k=40,pad=dense,with_c=true,{SMALL}", "--preset", "h200"],
    "machine": ["run", "--gemm", "64x64x32", "--set", "hbm.queue_entries=32", "--set", "l1.unified_with_shared=false"],
    "options": ["run", "--gemm", "64x64x32", "--keep-l2", "--interval-ns", "250", "--set", "hbm.page=closed"],
    "stream": ["run", "--kernel", "stream:flow=write,buffer_bytes=65536,workgroup_count=8", "--preset", "mi210"],
    "t3": [*T3, "--gpus", "4", "--configuration", "T3-MCA", "--set", "hbm.arbiter=mca_fixed"],
    "chunks": [*T3, "--gpus", "2", "--chunks", "3,5", "--explicit", "--preset", "v100", "--interval-ns", "500"],
}


def printed_command(archive, capsys, *options):
    capsys.readouterr()
    assert main(["show", str(archive), *options]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("made by: t3sim ")]
    return shlex.split(line)[3:]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_printed_command_makes_the_result_again(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lanes = ",lanes=64" if name == "stream" else ""
    command = [word + lanes if word.startswith("stream:") else word for word in COMMANDS[name]]
    assert main([*command, "--fresh", "-o", "first.h5"]) == 0
    again_command = printed_command("first.h5", capsys)
    output = [] if "-o" in again_command else ["-o", "again.h5"]
    assert main([*again_command, *output, "--fresh"]) == 0
    found = moves(results.open("first.h5"), results.open("again.h5"))
    assert [move for move in found if move.name != "input name"] == []


@pytest.mark.slow
def test_a_run_of_a_scenario_names_the_scenario(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*COMMANDS["t3"], "-o", "case.h5"]) == 0
    whole = printed_command("case.h5", capsys)
    assert "T3-MCA" in whole and printed_command("case.h5", capsys, "--run", "1") == whole


def test_files_of_the_user_are_named_by_their_digests():
    run = sample_results()
    run.options = {"kernels": [1, 2], "flush_l2": False, "policy_sha256": "cd" * 32}
    command, files = again(run)
    assert command == (
        "t3sim run TRACE --kernels 1,2 --keep-l2 --preset v100 --set hbm.queue_entries=32 --policy POLICY.py "
        "--interval-ns 1"
    )
    assert files == (f"TRACE: the trace with SHA-256 {'ab' * 32}", f"POLICY.py: the policy with SHA-256 {'cd' * 32}")


def test_runs_of_several_gpus():
    given = {"preset": load_preset("v100"), "source": GemmSource(fp16_problem(96, 96, 32), TILE)}
    given["chunks"] = even_chunks(9, 3)
    fused = FusedRun(arbitration=Arbiter.ROUND_ROBIN, **given).signed(sample_results())
    fused.interval_ps = 0
    assert again(fused).command.endswith("--gpus 3 --configuration T3 --preset v100")
    for run in (
        CollectiveRun(kind="all_gather", **given),
        SideBySideRun(kind="all_gather", collective_cus=2, **given),
    ):
        assert again(run.signed(sample_results())) is None


@pytest.mark.parametrize(
    ("kind", "configuration"),
    [("decomposed", DECOMPOSED), ("copy_engines", COPY_ENGINES), ("flux", FLUX), ("in_switch", T3_NVLS)],
)
def test_a_run_of_software_is_made_again_by_its_configuration(kind, configuration):
    source = GemmSource(fp16_problem(96, 96, 32), TILE)
    run = SoftwareRun(kind=kind, preset=load_preset("h100_sxm"), source=source, chunks=even_chunks(9, 3))
    command, files = again(run.signed(sample_results()))
    assert f"--gpus 3 --configuration {configuration} " in command and files == ()


@pytest.mark.parametrize("kind", ["all_gather_copies", "flux_gather"])
def test_no_verb_makes_these_runs_of_software_alone(kind):
    source = GemmSource(fp16_problem(96, 96, 32), TILE)
    run = SoftwareRun(kind=kind, preset=load_preset("h100_sxm"), source=source, chunks=even_chunks(9, 3))
    assert again(run.signed(sample_results())) is None


def test_a_machine_whose_file_is_not_here():
    run = sample_results()
    run.preset = type(run.preset)("gone.toml", "", run.preset.machine, run.preset.sources)
    assert "--preset gone.toml --set hbm.queue_entries=32 " in again(run).command
