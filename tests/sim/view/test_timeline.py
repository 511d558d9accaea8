"""The timeline of a fused GEMM: every workgroup, transfer and trigger at its time, and pages that browsers show."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from sim.scenario.archive import open_scenario, write_scenario
from sim.scenario.result import T3
from sim.scenario.scenario import Scenario, simulate_scenario
from sim.view.timeline import CUS, DMAS, STAGES, TRACKER, places, trace_events
from tests.support.programs import small_preset
from tracer.gemm.source import GemmKernel
from tracer.workloads import aligned_problem
from traces.command.cli import main

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
GPUS = 4


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("timeline") / "small.h5"
    kernel = GemmKernel(64, 64, 32, 2, 2)
    case = Scenario(small_preset(), aligned_problem(256, 256, 64), kernel, GPUS, interval_ps=1_000_000)
    write_scenario(path, simulate_scenario(case, [T3]))
    return path


@pytest.fixture(scope="module")
def run(archive):
    return open_scenario(archive)[1]["t3"]


def of(events, process, phase):
    return [event for event in events if event["pid"] == process and event["ph"] == phase]


def test_every_workgroup_transfer_and_trigger_is_there(run):
    events = trace_events(run)
    workgroups, sent = of(events, CUS, "X"), of(events, DMAS, "X")
    assert sorted(event["args"]["tag"] for event in workgroups) == list(range(16))
    assert sorted(event["args"]["tag"] for event in sent) == list(range(4, 12))  # neither the first nor the own chunk
    triggers = {event["args"]["tile"]: event for event in of(events, TRACKER, "i")}
    assert sorted(triggers) == list(range(4, 16))
    for event in sent:  # a tile leaves only when it is complete
        assert event["ts"] >= triggers[event["args"]["tag"]]["ts"]
    assert [event["args"]["workgroups"] for event in of(events, STAGES, "X")] == [4] * GPUS
    end_us = run.time_ps / 1e6
    assert all(event["ts"] >= 0 and event["ts"] + event["dur"] <= end_us for event in workgroups + sent)


def test_counters_add_up_to_the_traffic(run):
    events = trace_events(run)
    rates = [event["args"] for event in events if event["name"] == "DRAM GB/s"]
    moved = sum(sum(rate.values()) for rate in rates) * 1_000_000 / 1000
    assert moved == pytest.approx(run.dram_bytes.sum(), rel=1e-3)


def test_rows_do_not_overlap():
    random = np.random.default_rng(1)
    starts = random.integers(0, 1000, 200)
    ends = starts + random.integers(1, 50, 200)
    rows = places(starts, ends)
    for row in np.unique(rows):
        own = np.flatnonzero(rows == row)
        order = own[np.argsort(starts[own])]
        assert (starts[order][1:] >= ends[order][:-1]).all()
    deepest = max(int(((starts <= t) & (t < ends)).sum()) for t in range(1000))
    assert rows.max() + 1 == deepest


def test_the_verb_writes_what_perfetto_reads(archive, tmp_path, capsys):
    assert main(["timeline", str(archive), "-o", str(tmp_path / "t.json")]) == 0
    content = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert {event["ph"] for event in content["traceEvents"]} == {"M", "X", "i", "C"}
    assert main(["timeline", str(archive), "--run", "rs", "-o", str(tmp_path / "t.json")]) == 2
    assert "--run: found 'rs', allowed are" in capsys.readouterr().err
    assert main(["timeline", str(archive), "-o", str(tmp_path / "t.txt")]) == 2


def test_a_simulation_without_series_has_no_timeline(tmp_path, capsys):
    case = Scenario(small_preset(), aligned_problem(128, 128, 32), GemmKernel(64, 64, 32, 2, 2), 2)
    write_scenario(tmp_path / "a.h5", simulate_scenario(case, [T3]))
    assert main(["timeline", str(tmp_path / "a.h5"), "-o", str(tmp_path / "t.json")]) == 2
    assert "this run has none" in capsys.readouterr().err


@pytest.mark.skipif(BROWSER is None, reason="no chromium here: the page is not shown")
def test_a_browser_shows_the_page(archive, tmp_path):
    page = tmp_path / "t.html"
    assert main(["timeline", str(archive), "-o", str(page)]) == 0
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom")
    done = subprocess.run([BROWSER, *options, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    assert re.search(r'<h1 id="title">t3: GEMM 256 x 256 x 64 on 4 GPUs', done.stdout)
    bars = 16 + 8 + 12 + GPUS
    assert f'<p id="count">{bars} bars, 7 counters' in done.stdout
    assert re.search(r'<canvas[^>]*data-high="[\d.]+"', done.stdout)  # drawn to the end
