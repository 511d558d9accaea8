"""The benchmark on small sizes: its profiled loop is the engine's, its report is whole, its units do what they time."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from sim.host.gpu import Gpu
from sim.machine.build import phases_of
from tests.support.programs import small_preset
from tracer.gemm.source import GemmKernel, GemmProblem, GemmSource
from validation.bench import run as bench_run
from validation.bench.engine_profile import BETWEEN, TimedGpu
from validation.bench.units import LOOPS, request_ns

SOURCE = GemmSource(GemmProblem(256, 256, 256), GemmKernel(64, 64, 32, 2, 2))


def test_the_profiled_loop_gives_what_the_engine_gives():
    machine = small_preset().machine
    plain, timed = Gpu(machine), TimedGpu(machine)
    assert timed.run_kernel(SOURCE, 0, None) == plain.run_kernel(SOURCE, 0, None)
    for unit, records in plain.counters().items():
        assert records.tobytes() == timed.counters()[unit].tobytes(), unit
    assert set(timed.phase_s) == {*(phase.title for phase in phases_of(plain.node)), BETWEEN}
    assert all(seconds != 0 for seconds in timed.phase_s.values())
    assert plain.node.engine[0]["windows"] == timed.node.engine[0]["windows"]
    assert (plain.node.steps == timed.node.steps).all()


@pytest.mark.slow
def test_every_unit_is_timed():
    assert all(0 < request_ns(make(2000), 2000) < 1e6 for make in LOOPS.values())


@pytest.mark.slow
def test_the_report_is_whole(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(bench_run, "named_sublayer", lambda name: (SOURCE.problem, 2))
    monkeypatch.setattr(bench_run, "SCALE_SHAPE", (64, 64))
    monkeypatch.setattr(bench_run, "TABLE", tmp_path / "bench.md")
    start = {"wall_s": 1.0, "cpu_s": 1.0, "compile_s": 0.0, "rss_bytes": None, "yardsticks": 1e9}
    monkeypatch.setattr(bench_run, "start", lambda: {"cold": start, "warm": start})
    monkeypatch.setattr("sys.argv", ["bench_run", "--requests", "2000", "--json", "--save"])
    bench_run.main()
    report = json.loads(capsys.readouterr().out)
    assert report["end_to_end"]["line_requests"] > 0
    assert report["end_to_end"]["yardsticks"] > 0
    text = (tmp_path / "bench.md").read_text()
    assert f"| {1e9 / bench_run.BASE['empty']:.2f} |" in text
    assert all(name in text for name in (*LOOPS, *report["profile"]["phase_s"], report["machine"], report["date"]))


def test_no_start_finds_its_result_in_a_store(monkeypatch):
    stores = []

    def run(_, env, **__):
        stores.append(env["T3SIM_STORE"])
        return SimpleNamespace(stdout=json.dumps({"compile_s": 0.0, "peak_rss_bytes": 1}))

    monkeypatch.setattr(subprocess, "run", run)
    started = bench_run.start()
    assert started["cold"].keys() == started["warm"].keys() and len(set(stores)) == 2
