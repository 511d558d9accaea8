"""Studies: the same archive from one process, from workers, after any interruption; what fails, what is lost."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from distributed import LocalCluster

from sim import results
from sim.gemm_facts import gpu_facts
from sim.presets import load_preset
from sim.run.one_gpu import simulate
from sim.run.run import Run
from sim.run.store import Store
from sim.scenario.result import CONFIGURATIONS, SOFTWARE
from sim.scenario.scenario import Scenario, simulate_scenario
from sim.study import load_study, run_study
from sim.study.asked import asked_of
from tests.support.paths import ROOT
from tracer.gemm.source import GemmProblem, GemmSource
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence
from tracer.workloads import DEFAULT_KERNEL, aligned_problem
from traces.archive import write_archive
from traces.errors import Notice, UserError

PROGRAM = """
import sys
from pathlib import Path
from sim.verbs.study import study
if __name__ == "__main__":
    study(sys.argv[1:])
"""
STUDY = """
interval_ns = 1000
kernel = "gemm:m=256,n=128,k=64"
[axes]
hbm.queue_entries = [16, 64]
l2.ways = [12, 5, 24]
"""


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    """The user's, empty."""
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "store"))
    return Store()


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    return load_study(tmp_path / "study.toml")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The archive as one process writes it in one go."""
    folder = tmp_path_factory.mktemp("expected")
    (folder / "study.toml").write_text(STUDY)
    outcome = run_study(load_study(folder / "study.toml"), folder, workers=0, store=Store(folder / "store"))
    assert (outcome.points, outcome.runs, outcome.kept, outcome.failed, outcome.lost) == (6, 4, 0, 2, [])
    assert sorted(path.name for path in folder.iterdir()) == ["store", outcome.archive.name, "study.toml"]
    return outcome.archive


def test_a_point_is_a_run_and_failures_have_reasons(expected):
    found = results.open(expected)
    preset = load_preset("v100", {"hbm.queue_entries": 64, "l2.ways": 12})
    kernel = make_kernel("gemm:m=256,n=128,k=64", gpu_facts(preset.machine))
    plain = simulate(CommandSequence([kernel]), preset, interval_ps=1_000_000)
    run = found.runs[3]
    assert run.point == {"hbm.queue_entries": 64, "l2.ways": 12}
    assert run.totals == plain.totals and run.preset == plain.preset and run.series.keys() == plain.series.keys()
    assert [number for number, _ in found.failures()] == [1, 4]
    assert "l2.bytes: found 6291456, allowed is a multiple of l2.banks" in found.runs[4].reason
    assert found.dataset()["time_ns"].dims == ("hbm.queue_entries", "l2.ways")


@pytest.mark.slow
def test_workers_write_the_same_bytes(study, expected, tmp_path):
    calls = []
    outcome = run_study(study, tmp_path, workers=2, progress=lambda done, total: calls.append((done, total)))
    assert outcome.archive.name == expected.name
    assert outcome.archive.read_bytes() == expected.read_bytes()
    assert calls == [(done, 4) for done in range(5)]


@pytest.mark.slow
def test_a_scheduler_by_its_address(study, expected, tmp_path):
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
        outcome = run_study(study, tmp_path, scheduler=cluster.scheduler_address)
    assert outcome.archive.read_bytes() == expected.read_bytes()
    with pytest.raises(UserError, match="no Dask scheduler answers there"):
        run_study(study, tmp_path, scheduler="nonsense://x", fresh=True)


@pytest.mark.slow
def test_a_scheduler_whose_workers_come_later(study, expected, tmp_path, monkeypatch):
    monkeypatch.setattr("sim.run.workers.SCHEDULER_PATIENCE_S", 1)
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=":0") as cluster:
        coming = threading.Timer(4, cluster.scale, [1])
        coming.start()
        with pytest.warns(Notice, match="has no workers yet; the runs start when one comes"):
            outcome = run_study(study, tmp_path, scheduler=cluster.scheduler_address)
        coming.join()
    assert outcome.archive.read_bytes() == expected.read_bytes()


@pytest.mark.slow
def test_an_interrupted_study_goes_on_where_it_was(study, expected, tmp_path, store):
    def interrupt(done, whole):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path, workers=0, progress=interrupt)
    assert len(store.entries()) == 2
    store.entries()[0].path.write_bytes(b"\x89HDF damaged")  # is done again
    outcome = run_study(study, tmp_path, workers=0)
    assert (outcome.runs, outcome.kept) == (4, 1)
    assert outcome.archive.read_bytes() == expected.read_bytes()
    again = run_study(study, tmp_path, workers=0, progress=lambda *_: pytest.fail("nothing is left to do"))
    assert (again.kept, again.failed) == (4, 2)
    fresh = run_study(study, tmp_path, workers=0, fresh=True)
    assert fresh.kept == 0 and fresh.archive.read_bytes() == expected.read_bytes()


@pytest.mark.slow
def test_killed_with_all_its_workers(expected, tmp_path, store):
    (tmp_path / "study.toml").write_text(STUDY)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "study.toml"), "-o", str(tmp_path), "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while not store.entries() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    outcome = run_study(load_study(tmp_path / "study.toml"), tmp_path, workers=0)
    assert outcome.kept >= 1
    assert outcome.archive.read_bytes() == expected.read_bytes()


@pytest.mark.slow
def test_a_study_over_links_simulates_its_gemm_once(tmp_path, store, monkeypatch):
    """Of what was simulated nothing is again, by whatever asks for it."""
    simulated = []
    execute = Run.execute
    monkeypatch.setattr(Run, "execute", lambda run, *args: simulated.append(run.title) or execute(run, *args))
    text = 'run = "t3"\npreset = "t3_2024"\nkernel = "gemm:m=256,n=256,k=64"\nt3.gpus = 2\n'
    (tmp_path / "study.toml").write_text(text + "[axes]\nlink.GB_per_s = [75.0, 150.0, 300.0]\n")
    outcome = run_study(load_study(tmp_path / "study.toml"), tmp_path, workers=0)
    assert (outcome.points, outcome.runs, outcome.kept) == (3, 1 + 3 * 5, 0)
    assert len(simulated) == 16 and sum("GPUs" not in title for title in simulated) == 1
    scenario = Scenario(load_preset("t3_2024"), aligned_problem(256, 256, 64), DEFAULT_KERNEL, 2)
    simulate_scenario(scenario, store=store)
    assert len(simulated) == 16


def test_a_replay_of_a_trace_whose_content_counts(tmp_path):
    write_archive(tmp_path / "gemm.h5", CommandSequence([GemmSource(GemmProblem(64, 64, 32))]))
    (tmp_path / "study.toml").write_text('run = "replay"\ntrace = "gemm.h5"\n[axes]\nkernels = [[0], [1]]\n')
    study = load_study(tmp_path / "study.toml")
    outcome = run_study(study, tmp_path, workers=0)
    found = results.open(outcome.archive)
    assert found.runs[0].kernels[0].name == "gemm_64x64x32"
    assert "the trace has 1 kernels" in found.runs[1].reason
    write_archive(tmp_path / "gemm.h5", CommandSequence([GemmSource(GemmProblem(64, 64, 64))]))
    (moved,) = pickle.loads(pickle.dumps(study.points[0].runs))
    assert moved.key != study.points[0].runs[0].key  # as another process reads it now: it would refuse the run
    assert load_study(tmp_path / "study.toml").digest != study.digest


def test_the_configurations_of_the_paper(tmp_path):
    (tmp_path / "study.toml").write_text(
        'run = "t3"\npreset = "t3_2024"\nkernel = "gemm:m=256,n=256,k=64"\n'
        't3.configurations = ["Sequential", "Ideal-GEMM-RS-Overlap"]\n[axes]\nt3.gpus = [2, 3]\n'
    )
    found = results.open(run_study(load_study(tmp_path / "study.toml"), tmp_path, workers=0).archive)
    scenario = Scenario(load_preset("t3_2024"), aligned_problem(256, 256, 64), DEFAULT_KERNEL, 2)
    direct = simulate_scenario(scenario, ("Sequential", "Ideal-GEMM-RS-Overlap"))
    figures = found.runs[0].figures
    assert figures["Sequential.time_ns"] * 1000 == direct.configurations["Sequential"].time_ps
    assert figures["Ideal-GEMM-RS-Overlap.speedup"] == direct.speedup("Ideal-GEMM-RS-Overlap")
    assert figures["Sequential.link_bytes"] == direct.configurations["Sequential"].link_bytes
    assert figures["Sequential.exactly_once"] == 1
    frame = found.runs_frame()
    assert list(frame["t3.gpus"]) == [2, 3] and (frame["Ideal-GEMM-RS-Overlap.speedup"] > 1).all()


@pytest.mark.slow
def test_all_configurations_of_each_machine(tmp_path):
    (tmp_path / "study.toml").write_text(
        'run = "t3"\npreset = "t3_2024"\nkernel = "gemm:m=256,n=256,k=64"\n'
        't3.configurations = ["all"]\nt3.gpus = 2\n[axes]\nlink.topology = ["ring", "switch"]\n'
    )
    points = load_study(tmp_path / "study.toml").points
    ring, switch = (set(asked_of(point.settings, point.folder).configurations) for point in points)
    assert ring == {*CONFIGURATIONS} and switch == {*CONFIGURATIONS, *SOFTWARE}


def test_time_series_of_the_configurations(tmp_path):
    """A point is a run of figures and, with interval_ns, one for each simulation behind it."""
    text = (
        'run = "t3"\npreset = "t3_2024"\nkernel = "gemm:m=256,n=256,k=64"\nt3.gpus = 2\n'
        't3.configurations = ["T3", "Sequential"]\n[axes]\nlink.GB_per_s = [75.0, 150.0]\n'
    )
    (tmp_path / "plain.toml").write_text(text)
    (tmp_path / "study.toml").write_text("interval_ns = 1000\n" + text)
    study, plain = load_study(tmp_path / "study.toml"), load_study(tmp_path / "plain.toml")
    outcome = run_study(study, tmp_path, workers=2)
    assert (outcome.points, outcome.kept, outcome.failed) == (2, 0, 0)
    found, figures = results.open(outcome.archive), results.open(run_study(plain, tmp_path, workers=0).archive)
    names = ["all", "gemm", "rs", "ag", "t3"]
    assert [run.point for run in found.runs] == [
        {"link.GB_per_s": speed, "simulation": name} for speed in (75.0, 150.0) for name in names
    ]
    assert [found.runs[k].figures for k in (0, 5)] == [run.figures for run in figures.runs]
    scenario = Scenario(load_preset("t3_2024"), aligned_problem(256, 256, 64), DEFAULT_KERNEL, 2, interval_ps=1_000_000)
    direct = scenario.run("t3").execute()
    fused = found.runs[9]
    assert fused.time_ps == direct.time_ps and fused.totals == direct.totals and fused.interval_ps == 1_000_000
    assert fused.series.keys() == direct.series.keys()
    assert all((fused.series[name] == direct.series[name]).all() for name in direct.series)
    intervals = found.intervals_frame()
    assert set(intervals["simulation"]) == set(names[1:]) and intervals.loc[9, "dram_comm_write_bytes"].sum() > 0
    assert found.dataset()["time_ns"].dims == ("link.GB_per_s", "simulation")
    content = outcome.archive.read_bytes()
    again = run_study(study, tmp_path, workers=0)
    assert again.kept == again.runs == 7
    outcome.archive.unlink()
    assert run_study(study, tmp_path, workers=0).archive.read_bytes() == content


def test_a_place_that_cannot_be_written(study, tmp_path, monkeypatch, expected):
    with pytest.raises(UserError, match="no such folder"):
        run_study(study, tmp_path / "none", workers=0)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("T3SIM_STORE", str(tmp_path / "file" / "store"))
    with pytest.warns(Notice, match="a temporary folder takes its place"):
        outcome = run_study(study, tmp_path, workers=0)
    assert outcome.archive.read_bytes() == expected.read_bytes()


KILLER = "import os\nos.kill(os.getppid(), 9)\n"


@pytest.mark.slow
def test_a_lost_worker_costs_its_point_only(tmp_path, store):
    """A policy that kills the worker as lack of memory would: nothing is recorded, the next call tries again."""
    (tmp_path / "killer.py").write_text(KILLER)
    (tmp_path / "study.toml").write_text(
        'kernel = "gemm:m=64,n=64,k=32"\n[[points]]\nflush_l2 = true\n[[points]]\npolicy = "killer.py"\n'
    )
    study = load_study(tmp_path / "study.toml")
    outcome = run_study(study, tmp_path, workers=2)
    assert len(outcome.lost) == 1 and outcome.lost[0].startswith("point 1: KilledWorker")
    assert not outcome.archive.exists()
    assert [entry.key for entry in store.entries()] == [study.points[0].runs[0].key]


def _text(path):
    """Of a file that another process may not have written yet."""
    return path.read_text() if path.exists() else ""


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
        while not (text := _text(found)) and scheduler.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        yield json.loads(text)["address"], scheduler
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_killed_scheduler_leaves_finished_runs(study, expected, tmp_path, store):
    """SIGKILL of the scheduler's process, after which neither client nor worker hears anything."""
    (tmp_path / "dask").mkdir()
    with dask_processes(tmp_path / "dask") as (address, scheduler):

        def kill(done, whole):
            if done == 1:
                scheduler.send_signal(signal.SIGKILL)
                scheduler.wait()

        outcome = run_study(study, tmp_path, scheduler=address, progress=kill)
    assert outcome.lost and not outcome.archive.exists()
    finished = len(store.entries())
    assert finished
    again = run_study(study, tmp_path, workers=0)
    assert again.kept == finished and not again.lost
    assert again.archive.read_bytes() == expected.read_bytes()
