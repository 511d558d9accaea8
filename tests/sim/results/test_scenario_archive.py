"""The archive of a scenario: a row of figures and its runs; shown, drawn, compared and merged like others."""

import json
from dataclasses import replace

import h5py
import pytest

from sim import results
from sim.presets import load_preset
from sim.results import ResultsError, write_results
from sim.results.check import OF_CONFIGURATION, OF_FUSED
from sim.results.layout import run_digest
from sim.scenario.archive import open_scenario, write_scenario
from sim.scenario.result import COPY_ENGINES
from sim.scenario.scenario import Scenario, simulate_scenario
from tests.support.result_samples import sample_results
from tests.support.sealed import changed_archive
from tracer.workloads import DEFAULT_KERNEL, aligned_problem
from traces.command.cli import main
from traces.errors import UserError

CASE = Scenario(load_preset("t3_2024"), aligned_problem(256, 256, 64), DEFAULT_KERNEL, 2, interval_ps=1_000_000)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("scenario") / "case.h5"
    write_scenario(path, simulate_scenario(CASE))
    return path


@pytest.mark.slow
def test_the_runs_and_a_row_of_figures(archive):
    found = results.open(archive)
    assert [run.point["simulation"] for run in found.runs] == ["all", "gemm", "rs", "rs_nmc", "ag", "t3", "t3_mca"]
    row, runs = open_scenario(archive)
    direct = simulate_scenario(CASE)
    assert row.figures["T3.speedup"] == direct.speedup("T3")
    assert row.figures["T3.dram_rs_reads_bytes"] == direct.configurations["T3"].dram_bytes["rs_reads"]
    assert run_digest(replace(runs["t3"], point={})) == run_digest(replace(direct.runs["t3"], point={}))
    assert row.code == runs["gemm"].code != ""
    fused = found.runs[5]
    assert int(fused.kernels[0].units["tracker"]["triggers"].sum()) > 0
    assert fused.preset == load_preset("t3_2024")


def test_frames(archive):
    found = results.open(archive)
    frame = found.runs_frame()
    assert frame["time_ns"].iloc[1] * 1000 == open_scenario(archive)[1]["gemm"].time_ps
    intervals = found.intervals_frame()
    assert intervals.loc[5, "dram_comm_write_bytes"].sum() > 0 and (intervals.loc[5, "simulation"] == "t3").all()


@pytest.mark.slow
def test_verbs(archive, tmp_path, capsys):
    assert main(["show", str(archive)]) == 0
    shown = capsys.readouterr().out
    assert "Time, us" in shown and "Why the fused kernel" in shown and "made by: t3sim t3 --kernel gemm:" in shown
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


def damaged_figures(file, number):
    """Each figure that a run of a scenario needs: missing, null and a text."""
    figures = json.loads(file[f"runs/{number:05d}"].attrs["figures"])
    for name in [f"T3.{figure}" for figure in OF_CONFIGURATION] if number == 0 else OF_FUSED:
        yield name, {other: value for other, value in figures.items() if other != name}
        yield from ((name, figures | {name: value}) for value in (None, "x", -1))


@pytest.mark.parametrize("number", [0, 5])
def test_a_figure_that_is_missing_or_no_number_is_refused(archive, number, tmp_path):
    path = tmp_path / "case.h5"
    with h5py.File(archive) as file:
        damaged = list(damaged_figures(file, number))
    assert len(damaged) > 20
    for name, figures in damaged:
        path.write_bytes(archive.read_bytes())
        with changed_archive(path) as file:
            file[f"runs/{number:05d}"].attrs["figures"] = json.dumps(figures)
        with pytest.raises(ResultsError, match=f"^{path}: /runs/{number:05d}: figures: {name}: allowed is .*, found"):
            results.open(path)


def test_a_threshold_is_a_number_or_null(archive, tmp_path):
    path = tmp_path / "case.h5"
    path.write_bytes(archive.read_bytes())
    with changed_archive(path) as file:
        figures = json.loads(file["runs/00005"].attrs["figures"])
        assert figures.pop("mca_threshold") is None
        file["runs/00005"].attrs["figures"] = json.dumps(figures)
    with pytest.raises(ResultsError, match="figures: mca_threshold: allowed is a number or null, found nothing"):
        results.open(path)


def test_a_gemm_takes_time(archive, tmp_path):
    path = tmp_path / "case.h5"
    path.write_bytes(archive.read_bytes())
    with changed_archive(path) as file:
        file["runs/00001"].attrs["kernel_ps"] = 0
    with pytest.raises(ResultsError, match="runs/00001: time: allowed is more than 0 ps"):
        results.open(path)


def test_copy_engines_have_no_warps_and_open(tmp_path):
    switch = replace(CASE, preset=load_preset("t3_2024", ["link.topology=switch"]))
    write_scenario(tmp_path / "case.h5", simulate_scenario(switch, [COPY_ENGINES]))
    assert open_scenario(tmp_path / "case.h5")[1]["ag_copies"].kernel_ps == 0


def test_results_archives_still_open(tmp_path):
    write_results(tmp_path / "run.h5", sample_results())
    assert len(results.open(tmp_path / "run.h5").runs) == 1
    (tmp_path / "text.h5").write_text("hello")
    with pytest.raises(UserError, match=r"text\.h5: damaged"):
        results.open(tmp_path / "text.h5")


def test_a_newer_or_damaged_one_is_refused(archive, tmp_path):
    newer = tmp_path / "newer.h5"
    newer.write_bytes(archive.read_bytes())
    with changed_archive(newer) as file:
        file.attrs["format_version"] = 99
    with pytest.raises(ResultsError, match=r"newer\.h5: format_version is 99, allowed is 1 to 4"):
        results.open(newer)
    newer.write_bytes(archive.read_bytes()[:-1000])
    with pytest.raises(ResultsError, match=r"newer\.h5: damaged"):
        results.open(newer)
