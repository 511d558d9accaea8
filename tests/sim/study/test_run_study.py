"""Sweeps: the same archive from one process, from workers, after any interruption; what fails, what is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from distributed import LocalCluster

from sim import results
from sim.presets import load_preset
from sim.run.one_gpu import simulate
from sim.scenario.scenario import Scenario, simulate_scenario
from sim.study import load_study, sweep
from tests.support.paths import ROOT
from tracer.gemm.source import GemmProblem, GemmSource
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence
from tracer.workloads import DEFAULT_KERNEL, aligned_problem
from traces.archive import write_archive
from traces.errors import UserError

STUDY = """
interval_ns = 1000
kernel = "gemm:m=256,n=128,k=64"
[axes]
hbm.queue_entries = [16, 64]
l2.ways = [12, 5, 24]
"""


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return load_study(tmp_path / "study.toml")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The archive as one process writes it in one go."""
    folder = tmp_path_factory.mktemp("expected")
    (folder / "study.toml").write_text(STUDY)
    outcome = sweep(load_study(folder / "study.toml"), folder, workers=0)
    assert (outcome.points, outcome.kept, outcome.failed, outcome.lost) == (6, 0, 2, [])
    assert sorted(path.name for path in folder.iterdir()) == [outcome.archive.name, "study.toml"]
    return outcome.archive


def test_a_point_is_a_run_and_failures_have_reasons(expected):
    found = results.open(expected)
    plain = simulate(
        CommandSequence([make_kernel("gemm:m=256,n=128,k=64")]),
        load_preset("v100", {"hbm.queue_entries": 64, "l2.ways": 12}),
        interval_ps=1_000_000,
    )
    run = found.runs[3]
    assert run.point == {"hbm.queue_entries": 64, "l2.ways": 12}
    assert run.totals == plain.totals and run.preset == plain.preset and run.series.keys() == plain.series.keys()
    assert [number for number, _ in found.failures()] == [1, 4]
    assert "l2.bytes: found 6291456, allowed is a multiple of l2.banks" in found.runs[4].reason
    assert found.dataset()["time_ns"].dims == ("hbm.queue_entries", "l2.ways")


def test_workers_write_the_same_bytes(study, expected, tmp_path):
    calls = []
    outcome = sweep(study, tmp_path, workers=2, progress=lambda done, total: calls.append((done, total)))
    assert outcome.archive.name == expected.name
    assert outcome.archive.read_bytes() == expected.read_bytes()
    assert calls == [(done, 6) for done in range(7)]


def test_a_scheduler_by_its_address(study, expected, tmp_path):
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
        outcome = sweep(study, tmp_path, scheduler=cluster.scheduler_address)
    assert outcome.archive.read_bytes() == expected.read_bytes()
    with pytest.raises(UserError, match="no Dask scheduler answers there"):
        sweep(study, tmp_path / "..", scheduler="nonsense://x")


def test_an_interrupted_sweep_goes_on_where_it_was(study, expected, tmp_path):
    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(study, tmp_path, workers=0, progress=interrupt)
    folder = tmp_path / expected.with_suffix(".points").name
    assert sorted(path.name for path in folder.glob("*.h5")) == ["00000.h5", "00001.h5"]
    (folder / "00001.h5").write_bytes(b"\x89HDF damaged")  # is done again
    (folder / ".00002.h5.77.tmp").write_bytes(b"half")
    outcome = sweep(study, tmp_path, workers=0)
    assert outcome.kept == 1 and not folder.exists()
    assert outcome.archive.read_bytes() == expected.read_bytes()
    again = sweep(study, tmp_path, workers=0, progress=lambda done, total: pytest.fail("nothing is left to do"))
    assert (again.kept, again.failed) == (6, 2)


def test_killed_with_all_its_workers(expected, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    command = [sys.executable, "-c", "import sys; from traces.command.cli import main; sys.exit(main())", "sweep"]
    command += [str(tmp_path / "study.toml"), "-o", str(tmp_path), "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    folder = tmp_path / expected.with_suffix(".points").name
    until = time.monotonic() + 60
    while not list(folder.glob("*.h5")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    outcome = sweep(load_study(tmp_path / "study.toml"), tmp_path, workers=0)
    assert outcome.kept >= 1
    assert outcome.archive.read_bytes() == expected.read_bytes()


def test_a_replay_of_a_trace_whose_content_counts(tmp_path):
    write_archive(tmp_path / "gemm.h5", CommandSequence([GemmSource(GemmProblem(64, 64, 32))]))
    (tmp_path / "study.toml").write_text('run = "replay"\ntrace = "gemm.h5"\n[axes]\nkernels = [[0], [1]]\n')
    study = load_study(tmp_path / "study.toml")
    outcome = sweep(study, tmp_path, workers=0)
    found = results.open(outcome.archive)
    assert found.runs[0].kernels[0].name == "gemm_64x64x32"
    assert "the trace has 1 kernels" in found.runs[1].reason
    write_archive(tmp_path / "gemm.h5", CommandSequence([GemmSource(GemmProblem(64, 64, 64))]))
    outcome.archive.unlink()
    with pytest.raises(UserError, match="point 0: a file that it names has changed"):
        sweep(study, tmp_path, workers=0)
    assert load_study(tmp_path / "study.toml").digest != study.digest


def test_the_configurations_of_the_paper(tmp_path):
    (tmp_path / "study.toml").write_text(
        'run = "t3"\npreset = "t3_2024"\nkernel = "gemm:m=256,n=256,k=64"\n'
        't3.configurations = ["Sequential", "Ideal-GEMM-RS-Overlap"]\n[axes]\nt3.gpus = [2, 3]\n'
    )
    found = results.open(sweep(load_study(tmp_path / "study.toml"), tmp_path, workers=0).archive)
    case = Scenario(load_preset("t3_2024"), aligned_problem(256, 256, 64), DEFAULT_KERNEL, 2)
    direct = simulate_scenario(case, ("Sequential", "Ideal-GEMM-RS-Overlap"))
    figures = found.runs[0].figures
    assert figures["Sequential.time_ns"] * 1000 == direct.configurations["Sequential"].time_ps
    assert figures["Ideal-GEMM-RS-Overlap.speedup"] == direct.speedup("Ideal-GEMM-RS-Overlap")
    assert figures["Sequential.link_bytes"] == direct.configurations["Sequential"].link_bytes
    assert figures["Sequential.exactly_once"] == 1
    frame = found.runs_frame()
    assert list(frame["t3.gpus"]) == [2, 3] and (frame["Ideal-GEMM-RS-Overlap.speedup"] > 1).all()


def test_time_series_of_the_configurations(tmp_path):
    """A point is a run of figures and, with interval_ns, one for each simulation behind it."""
    text = (
        'run = "t3"\npreset = "t3_2024"\nkernel = "gemm:m=256,n=256,k=64"\nt3.gpus = 2\n'
        't3.configurations = ["T3", "Sequential"]\n[axes]\nlink.GB_per_s = [75.0, 150.0]\n'
    )
    (tmp_path / "plain.toml").write_text(text)
    (tmp_path / "study.toml").write_text("interval_ns = 1000\n" + text)
    study, plain = load_study(tmp_path / "study.toml"), load_study(tmp_path / "plain.toml")
    outcome = sweep(study, tmp_path, workers=2)
    assert (outcome.points, outcome.kept, outcome.failed) == (2, 0, 0)
    found, figures = results.open(outcome.archive), results.open(sweep(plain, tmp_path, workers=0).archive)
    parts = ["all", "gemm", "rs", "ag", "t3"]
    assert [run.point for run in found.runs] == [
        {"link.GB_per_s": speed, "simulation": part} for speed in (75.0, 150.0) for part in parts
    ]
    assert [found.runs[k].figures for k in (0, 5)] == [run.figures for run in figures.runs]
    case = Scenario(load_preset("t3_2024"), aligned_problem(256, 256, 64), DEFAULT_KERNEL, 2, interval_ps=1_000_000)
    direct = case.run("t3").execute()
    fused = found.runs[9]
    assert fused.time_ps == direct.time_ps and fused.totals == direct.totals and fused.interval_ps == 1_000_000
    assert fused.series.keys() == direct.series.keys()
    assert all((fused.series[name] == direct.series[name]).all() for name in direct.series)
    intervals = found.intervals_frame()
    assert set(intervals["simulation"]) == set(parts[1:]) and intervals.loc[9, "dram_comm_write_bytes"].sum() > 0
    assert found.dataset()["time_ns"].dims == ("link.GB_per_s", "simulation")
    content = outcome.archive.read_bytes()
    again = sweep(study, tmp_path, workers=0)
    assert again.kept == 2
    outcome.archive.unlink()
    assert sweep(study, tmp_path, workers=0).archive.read_bytes() == content


def test_two_sweeps_of_one_study_do_not_meet(study, tmp_path):
    def second(done, total):
        with pytest.raises(UserError, match="another sweep of this study is at work"):
            sweep(study, tmp_path, workers=0)

    sweep(study, tmp_path, workers=0, progress=second)


def test_a_place_that_cannot_be_written(study, tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        sweep(study, tmp_path / "none", workers=0)
    (tmp_path / study.archive_name).with_suffix(".points").write_text("a file in the way")
    with pytest.raises(UserError, match=r"points: cannot write"):
        sweep(study, tmp_path, workers=0)


KILLER = "import os\nos.kill(os.getppid(), 9)\n"


def test_a_lost_worker_costs_its_point_only(tmp_path):
    """A policy that kills the worker as lack of memory would: nothing is recorded, the next call tries again."""
    (tmp_path / "killer.py").write_text(KILLER)
    (tmp_path / "study.toml").write_text(
        'kernel = "gemm:m=64,n=64,k=32"\n[[points]]\nflush_l2 = true\n[[points]]\npolicy = "killer.py"\n'
    )
    study = load_study(tmp_path / "study.toml")
    outcome = sweep(study, tmp_path, workers=1)
    assert len(outcome.lost) == 1 and outcome.lost[0].startswith("point 1: KilledWorker")
    assert not outcome.archive.exists()
    assert [path.name for path in outcome.archive.with_suffix(".points").glob("*.h5")] == ["00000.h5"]


@contextmanager
def dask_processes(folder):
    """A scheduler and a worker as processes of their own: (address, scheduler)."""
    found = folder / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = []

    def start(module, *options):
        command = [sys.executable, "-m", f"distributed.cli.{module}", "--no-dashboard", *options]
        started.append(subprocess.Popen([*command, "--scheduler-file", str(found)], env=environment, cwd=folder,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))  # fmt: skip
        return started[-1]

    try:
        scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        start("dask_worker", "--nworkers", "1", "--nthreads", "1", "--no-nanny", "--death-timeout", "60")
        until = time.monotonic() + 60
        while not found.exists() and scheduler.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        yield json.loads(found.read_text())["address"], scheduler
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_killed_scheduler_leaves_finished_points(study, expected, tmp_path):
    """SIGKILL of the scheduler's process, after which neither client nor worker hears anything."""
    (tmp_path / "dask").mkdir()
    with dask_processes(tmp_path / "dask") as (address, scheduler):

        def kill(done, total):
            if done == 1:
                scheduler.send_signal(signal.SIGKILL)
                scheduler.wait()

        outcome = sweep(study, tmp_path, scheduler=address, progress=kill)
    assert outcome.lost and not outcome.archive.exists()
    folder = outcome.archive.with_suffix(".points")
    finished = sorted(folder.glob("*.h5"))
    assert finished
    whole = results.open(expected)
    for path in finished:
        (run,) = results.open(path).runs
        assert run.point == whole.runs[int(path.stem)].point
    again = sweep(study, tmp_path, workers=0)
    assert again.kept == len(finished) and not again.lost
    assert again.archive.read_bytes() == expected.read_bytes()
