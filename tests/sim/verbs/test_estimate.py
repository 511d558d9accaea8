"""`--estimate`: time and memory before the runs, and `t3 --workers`."""

import json

import pytest

from sim.presets import load_preset
from sim.run import estimate
from sim.run.store import Store
from traces.command.cli import main

T3 = ["t3", "--kernel", "gemm:m=128,n=128,k=32,tile=32x32x16,warps=2x2", "--gpus", "2", "--configuration", "T3"]


@pytest.fixture
def rate(monkeypatch):
    """A rate that does not depend on this computer."""
    monkeypatch.setattr(estimate, "requests_per_s", lambda preset: 1000.0)


def printed_json(capsys, *arguments):
    capsys.readouterr()
    assert main([*arguments, "--estimate", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_nothing_is_simulated_and_the_store_is_known(rate, capsys):
    before = printed_json(capsys, *T3)
    assert [run["name"] for run in before["runs"]] == ["ag", "t3"] and Store().entries() == []
    for run in before["runs"]:
        assert run["time_s"] == run["line_requests"] / 1000 > 0 and not run["in_store"]
    assert before["time_s"] == pytest.approx(sum(run["time_s"] for run in before["runs"]) + before["compile_s"])
    assert main(T3) == 0
    after = printed_json(capsys, *T3)
    assert all(run["in_store"] and run["time_s"] == 0 for run in after["runs"])


def test_every_gpu_counts_if_every_gpu_is_simulated(rate, capsys):
    one, all_gpus = printed_json(capsys, *T3), printed_json(capsys, *T3, "--explicit")
    for alone, together in zip(one["runs"], all_gpus["runs"], strict=True):
        assert together["line_requests"] == 2 * alone["line_requests"]
        assert together["memory_bytes"] > alone["memory_bytes"] > 100e6


@pytest.mark.parametrize("name", ["v100", "mi210"])
def test_the_rate_is_that_of_a_gemm_which_the_machine_can_run(name, monkeypatch):
    """Warps of mi210 have 64 lanes."""
    monkeypatch.setattr(estimate, "is_compiled", lambda function: True)
    assert estimate.requests_per_s(load_preset(name)) > 0


def test_a_machine_of_much_memory_is_not_made(monkeypatch, capsys):
    def made(*_):
        raise AssertionError("a machine was made")

    monkeypatch.setattr("sim.host.gpu.build", made)
    monkeypatch.setattr(estimate, "is_compiled", lambda function: True)
    found = printed_json(capsys, "run", "--gemm", "64x64x32", "--preset", "t3_2024", "--set", "l2.bytes=68719476736")
    assert 1.5e10 < found["memory_bytes"] < 4e10


@pytest.mark.slow
def test_the_rate_of_a_small_gemm_and_the_table(capsys):
    assert main(["run", "--gemm", "256x256x64", "--estimate"]) == 0
    shown = capsys.readouterr().out
    assert "gemm_256x256x64 on v100" in shown and "MB of memory" in shown and Store().entries() == []


@pytest.mark.slow
def test_workers_find_the_same(capsys, tmp_path):
    paths = [str(tmp_path / name) for name in ("one.h5", "two.h5")]
    assert main([*T3, "-o", paths[0]]) == 0
    assert main([*T3, "--workers", "2", "--fresh", "-o", paths[1]]) == 0
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()
    assert main([*T3, "--workers", "2", "--checkpoint", "5"]) == 2
    assert "--workers: not with --checkpoint" in capsys.readouterr().err
