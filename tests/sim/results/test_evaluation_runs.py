"""Evaluation archives opened as runs: figures, parts, series; shown, drawn, compared and merged like results."""

import json

import h5py
import pytest

from sim import results
from sim.presets import load_preset
from sim.results import ResultsError, write_results
from sim.scenario.configurations import Case, evaluate
from sim.scenario.evaluation_archive import open_evaluation, write_evaluation
from tests.support.result_samples import sample_results
from tracer.workloads import DEFAULT_KERNEL, aligned_problem
from traces.command.cli import main
from traces.errors import UserError


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("evaluation") / "case.h5"
    case = Case(load_preset("t3_2024"), aligned_problem(256, 256, 64), DEFAULT_KERNEL, 2, interval_ps=1_000_000)
    write_evaluation(path, evaluate(case))
    return path


def test_a_run_per_part_and_one_of_figures(archive):
    found = results.open(archive)
    assert [run.point["part"] for run in found.runs] == ["all", "gemm", "rs", "rs_nmc", "ag", "t3", "t3_mca"]
    summary, parts = open_evaluation(archive)
    figures = found.runs[0].figures
    assert figures["T3.speedup"] == summary["configurations"]["T3"]["speedup"]
    assert figures["T3.dram_rs_reads_bytes"] == summary["configurations"]["T3"]["dram_bytes"]["rs_reads"]
    fused = found.runs[5]
    assert fused.time_ps == parts["t3"].time_ps and fused.totals == parts["t3"].totals
    assert fused.preset == load_preset("t3_2024")


def test_frames(archive):
    found = results.open(archive)
    frame = found.runs_frame()
    assert frame["time_ns"].iloc[1] * 1000 == open_evaluation(archive)[1]["gemm"].time_ps
    intervals = found.intervals_frame()
    assert intervals.loc[5, "dram_comm_write_bytes"].sum() > 0 and (intervals.loc[5, "part"] == "t3").all()


def test_verbs(archive, tmp_path, capsys):
    assert main(["show", str(archive)]) == 0
    assert "7 runs, 0 failed" in capsys.readouterr().out
    assert main(["show", str(archive), "--run", "0"]) == 0
    assert "T3-MCA.speedup" in capsys.readouterr().out
    assert main(["show", str(archive), "--run", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["Sequential.speedup"] == 1
    for kind in ("traffic", "queue", "rates", "roofline"):
        assert main(["plot", kind, str(archive), "--run", "5", "-o", str(tmp_path / f"{kind}.png")]) == 0
    assert main(["merge", str(archive), "-o", str(tmp_path / "runs.h5")]) == 0
    assert len(results.open(tmp_path / "runs.h5").runs) == 7
    assert main(["diff", str(archive), str(tmp_path / "runs.h5")]) == 0


@pytest.mark.parametrize("arguments", [["--names", "nsight"], ["--unit", "hbm"], ["--energy", "hbm2_12nm"]])
def test_a_run_without_kernels_has_no_counters(arguments, archive, capsys):
    assert main(["show", str(archive), "--run", "0", *arguments]) == 2
    assert "has no kernels" in capsys.readouterr().err


def test_results_archives_still_open(tmp_path):
    write_results(tmp_path / "run.h5", sample_results())
    assert len(results.open(tmp_path / "run.h5").runs) == 1
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(UserError, match=r"text\.h5: damaged"):
        results.open(tmp_path / "text.h5")


def test_a_newer_or_damaged_evaluation_is_refused(archive, tmp_path):
    newer = tmp_path / "newer.h5"
    newer.write_bytes(archive.read_bytes())
    with h5py.File(newer, "r+") as file:
        file.attrs["format_version"] = 99
    with pytest.raises(ResultsError, match=r"newer\.h5: format_version is 99, allowed is 1 to 1"):
        results.open(newer)
    newer.write_bytes(archive.read_bytes()[:-1000])
    with pytest.raises(ResultsError, match=r"newer\.h5: damaged, truncated"):
        results.open(newer)
