"""The timeline: every workgroup, transfer and trigger at its time; the file for Perfetto and the page in a browser."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sim.results import Failure, write_results, write_runs
from sim.results import open as open_results
from sim.run.run import KernelRun
from sim.run.store import Store, run_or_get
from sim.scenario.archive import open_scenario, write_scenario
from sim.scenario.result import DECOMPOSED, FLUX, LIBRARY, SEQUENTIAL, T3, T3_MCA
from sim.scenario.scenario import Scenario, simulate_scenario
from sim.view.lanes import WAITS, Levels, places, section
from sim.view.perfetto import trace_events
from tests.support.browser import colours, contrasts, needs_browser, opened, reach_every_lane, tab_through, tab_to
from tests.support.colour_vision import READABLE, contrast
from tests.support.programs import small_preset
from tracer.gemm.source import GemmKernel
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence
from tracer.workloads import aligned_problem
from traces.command.cli import main

GPUS = 4


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("timeline") / "small.h5"
    kernel = GemmKernel(64, 64, 32, 2, 2)
    case = Scenario(small_preset(), aligned_problem(256, 256, 64), kernel, GPUS, interval_ps=1_000_000)
    write_scenario(path, simulate_scenario(case, [SEQUENTIAL, T3, T3_MCA]))
    return path


@pytest.fixture(scope="module")
def runs(archive):
    return open_scenario(archive)[1]


@pytest.fixture(scope="module")
def fused(runs):
    return section("T3", [("t3", runs["t3"]), ("ag", runs["ag"])])


@pytest.fixture(scope="module")
def every_gpu(tmp_path_factory):
    """An archive in which each GPU was simulated."""
    path = tmp_path_factory.mktemp("timeline") / "explicit.h5"
    case = Scenario(
        *(small_preset(), aligned_problem(256, 256, 64), GemmKernel(64, 64, 32, 2, 2), GPUS),
        explicit=True,
        interval_ps=1_000_000,
    )
    write_scenario(path, simulate_scenario(case, [T3]))
    return path


@pytest.fixture(scope="module")
def page(archive):
    path = archive.with_suffix(".html")
    assert main(["timeline", str(archive), "-o", str(path)]) == 0
    return path


def lanes(part, name, gpu=0):
    return next(group.lanes for group in part.groups if (group.name, group.gpu) == (name, gpu))


def tags(part, name, gpu=0):
    return sorted(row["tag"] for lane in lanes(part, name, gpu) for row in lane.at if row["phase"] == 0)


def test_every_workgroup_transfer_and_trigger_is_there(fused, runs):
    assert tags(fused, "CUs") == list(range(16))
    assert tags(fused, "DMA engines") == list(range(4, 12))  # neither the first nor the own chunk
    assert tags(fused, "Tracker") == list(range(4, 16))
    kernels, stages = lanes(fused, "kernels")
    assert kernels.labels == ("t3", "ag")
    assert stages.at["chunk"].tolist() == list(range(GPUS))
    for lane in lanes(fused, "CUs"):
        assert (lane.at["end_ps"] <= fused.time_ps).all()
    assert fused.time_ps == runs["t3"].time_ps + runs["ag"].time_ps


def test_stages_are_chunks_without_a_ring_too():
    """Where tiles leave for their owner at once, only the own chunk triggers. Decomposed makes chunk after chunk."""
    kernel, straight = GemmKernel(64, 64, 32, 2, 2), small_preset("link.topology=fully_connected")
    case = Scenario(straight, aligned_problem(256, 256, 64), kernel, GPUS, interval_ps=1_000_000)
    found = simulate_scenario(case, [T3, FLUX, DECOMPOSED]).runs
    for name in ("t3", "flux", "decomposed"):
        stages = lanes(section(name, [(name, found[name])]), "kernels")[1].at
        assert sorted(stages["chunk"]) == list(range(GPUS)), name
        if name == "decomposed":
            assert (np.diff(stages[np.argsort(stages["chunk"])]["start_ps"]) > 0).all()


def test_an_arrow_goes_from_the_trigger_to_the_transfer(fused):
    assert sorted(arrow.tag for arrow in fused.arrows) == list(range(4, 12))
    for arrow in fused.arrows:
        assert arrow.trigger_ps <= arrow.start_ps
        chunk = next(lane for lane in lanes(fused, "Tracker") if lane.name == f"chunk {arrow.chunk}")
        assert (arrow.tag, arrow.trigger_ps) in zip(chunk.at["tag"], chunk.at["start_ps"], strict=True)


def test_runs_of_a_configuration_follow_each_other(runs):
    sequential = section(SEQUENTIAL, [(name, runs[name]) for name in ("gemm", "rs", "ag")])
    kernels = lanes(sequential, "kernels")[0].at
    assert (kernels["start_ps"][1:] >= kernels["end_ps"][:-1]).all()
    assert sequential.time_ps == sum(runs[name].time_ps for name in ("gemm", "rs", "ag"))
    traffic = lanes(sequential, "DRAM")[0]
    assert (traffic.start_ps[1:] >= traffic.end_ps[:-1]).all()


def test_levels_add_up_to_the_traffic(runs):
    alone = section("t3", [("t3", runs["t3"])])
    traffic = lanes(alone, "DRAM")[0]
    assert isinstance(traffic, Levels)
    moved = sum(column.sum() for column in traffic.columns.values()) * runs["t3"].interval_ps / 1000
    assert moved == pytest.approx(runs["t3"].dram_bytes.sum(), rel=1e-3)
    assert (
        max(sum(column[k] for column in traffic.columns.values()) for k in range(len(traffic.start_ps))) < traffic.peak
    )


def test_each_channel_has_a_lane_and_their_sum_is_the_traffic(fused):
    channels, traffic = lanes(fused, "DRAM channels"), lanes(fused, "DRAM")[0]
    assert [lane.name for lane in channels] == [f"channel {number}" for number in range(len(channels))]
    moved = sum(lane.columns["traffic"] for lane in channels)
    assert moved == pytest.approx(sum(traffic.columns.values()))
    assert all(lane.columns["traffic"].max() <= lane.peak * 1.001 for lane in channels)


def test_warps_are_shown_by_what_they_wait_for(fused, runs):
    (lane,) = lanes(fused, "warps")
    assert list(lane.columns) == list(WAITS)
    resident = lanes(fused, "CUs")
    warps = sum(column for column in lane.columns.values())
    assert 0 < warps.max() <= len(resident) * 64
    assert lane.columns["data"].max() > 0


def test_every_simulated_gpu_has_its_lanes(every_gpu, runs):
    stored = open_scenario(every_gpu)[1]
    part = section("T3", [("t3", stored["t3"]), ("ag", stored["ag"])])
    assert (part.gpus, part.note) == (GPUS, f"all {GPUS} GPUs")
    for gpu in range(GPUS):
        assert tags(part, "CUs", gpu) == list(range(16))
        assert len(tags(part, "DMA engines", gpu)) == 8 and len(tags(part, "Tracker", gpu)) == 12
        own = [arrow for arrow in part.arrows if arrow.gpu == gpu]
        assert len(own) == 8 and all(arrow.trigger_ps <= arrow.start_ps for arrow in own)
    assert tags(part, "Tracker", 1) != tags(part, "Tracker", 0)  # each GPU sends another chunk at once
    ends = [e for e in trace_events([part]) if e["ph"] in "sf"]
    slices = {(e["pid"], e["tid"], e["ts"]) for e in trace_events([part]) if e["ph"] == "X"}
    assert len(ends) == 2 * len(part.arrows) and all((e["pid"], e["tid"], e["ts"]) in slices for e in ends)
    alike = section("T3", [("t3", runs["t3"])])
    assert (alike.gpus, alike.note) == (1, f"GPU 0; the other {GPUS - 1} GPUs do the same")


def test_bars_of_a_place_do_not_overlap():
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
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C", "s", "f"}
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert {"Sequential: CUs", "T3-MCA: CUs", "T3-MCA: Tracker"} <= set(names)
    assert main(["timeline", str(archive), "--run", "rs_nmc", "-o", str(tmp_path / "t.json")]) == 2
    assert "--run: found 'rs_nmc', allowed are Sequential" in capsys.readouterr().err
    assert main(["timeline", str(archive), "-o", str(tmp_path / "t.txt")]) == 2


def test_arrows_of_perfetto_begin_and_end_in_slices(fused):
    events = list(trace_events([fused]))
    slices = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    ends = [e for e in events if e["ph"] in "sf"]
    assert len(ends) == 2 * len(fused.arrows)
    assert all((e["pid"], e["tid"], e["ts"]) in slices for e in ends)


def test_slices_of_a_thread_never_overlap(runs):
    """Triggers are drawn one nanosecond long. Closer ones get threads of their own, and their arrows begin there."""
    close = runs["t3"].triggers.copy()
    close[:, 1] = 400 * np.arange(len(close))
    part = section("T3", [("t3", replace(runs["t3"], triggers=close))])
    events = list(trace_events([part]))
    names = {(e["pid"], e["tid"], e["ts"]): e["name"] for e in events if e["ph"] == "X"}
    ends: dict[tuple[int, int], float] = {}
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        thread = event["pid"], event["tid"]
        assert event["ts"] >= ends.get(thread, 0) - 1e-9, event
        ends[thread] = event["ts"] + event["dur"]
    begins = [e for e in events if e["ph"] == "s"]
    assert [names[e["pid"], e["tid"], e["ts"]] for e in begins] == [f"trigger {arrow.tag}" for arrow in part.arrows]


def test_a_single_run_has_a_timeline(tmp_path, capsys):
    preset = small_preset()
    case = KernelRun(
        preset=preset, source=CommandSequence([make_kernel("gemm:m=128,n=128,k=32")]), interval_ps=1_000_000
    )
    write_results(tmp_path / "a.h5", run_or_get(case, Store()).result)
    assert main(["timeline", str(tmp_path / "a.h5"), "-o", str(tmp_path / "t.html")]) == 0
    assert main(["timeline", str(tmp_path / "a.h5"), "--run", "T3", "-o", str(tmp_path / "t.html")]) == 2
    assert "--run: found 'T3', allowed are 0 to 0" in capsys.readouterr().err


def test_a_simulation_without_series_has_no_timeline(tmp_path, capsys):
    case = Scenario(small_preset(), aligned_problem(128, 128, 32), GemmKernel(64, 64, 32, 2, 2), 2)
    write_scenario(tmp_path / "a.h5", simulate_scenario(case, [T3]))
    assert main(["timeline", str(tmp_path / "a.h5"), "-o", str(tmp_path / "t.json")]) == 2
    assert "run t3 has none" in capsys.readouterr().err


def test_a_study_shows_its_first_run_with_a_series(archive, tmp_path, capsys):
    """The row of a scenario has figures only, a failed point nothing."""
    whole = open_results(archive)
    write_runs(tmp_path / "study.h5", [Failure({}, "no room"), *whole.runs, *whole.runs])
    made = ["timeline", str(tmp_path / "study.h5"), "-o", str(tmp_path / "t.json")]
    assert main(made) == 0
    first = (tmp_path / "t.json").read_bytes()
    assert main([*made, "--run", "2"]) == 0 and (tmp_path / "t.json").read_bytes() == first
    assert main([*made, "--run", "1"]) == 2 and "run 1 has none" in capsys.readouterr().err


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (375, True)])
def test_a_browser_reaches_every_lane(page, width, dark):
    with opened(page, width, 700, dark) as shown:
        folded = reach_every_lane(shown)
        for number in range(2):
            shown.locator("#names button", has_text="CUs").nth(number).click()
        assert reach_every_lane(shown) > folded
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert shown.locator("html").get_attribute("data-theme") == ("dark" if dark else "light")
        assert colours(shown, "#view") > 20
        assert int(shown.locator("#axis").get_attribute("data-ticks")) >= 2


@needs_browser
def test_a_browser_unfolds_a_gpu(every_gpu):
    path = every_gpu.with_suffix(".html")
    assert main(["timeline", str(every_gpu), "-o", str(path)]) == 0
    with opened(path) as shown:
        rows, buttons = reach_every_lane(shown), shown.locator("#names button.gpu")
        assert [text[2:] for text in buttons.all_inner_texts()] == [f"GPU {number}" for number in range(GPUS)]
        buttons.nth(2).click()
        assert buttons.nth(2).get_attribute("aria-expanded") == "true" and reach_every_lane(shown) > rows
        assert int(shown.locator("#view").get_attribute("data-arrows")) > 0


@needs_browser
def test_zoom_stops_at_the_ends(page):
    with opened(page) as shown:
        view = shown.locator("#view")

        def ends():
            return float(view.get_attribute("data-from")), float(view.get_attribute("data-to"))

        whole = ends()
        shown.locator("#out").click()
        assert ends() == whole
        for _ in range(40):
            shown.locator("#in").click()
        assert 0 < ends()[1] - ends()[0] < 100
        for _ in range(30):
            shown.locator("#scroll").press("ArrowRight")
        shown.locator("#scroll").press("0")
        assert ends() == whole
        shown.locator("#scroll").press("+")
        for _ in range(10):
            shown.locator("#scroll").press("ArrowRight")
        assert ends()[1] == whole[1]


@needs_browser
def test_pointing_names_tile_and_chunk(page, runs):
    with opened(page) as shown:
        shown.locator("#names > div", has_text="chunk 3").scroll_into_view_if_needed()
        box, lane = (
            shown.locator("#view").bounding_box(),
            shown.locator("#names > div", has_text="chunk 3").bounding_box(),
        )
        tile, time_ps, _ = next(row for row in runs["t3_mca"].triggers.tolist() if row[2] == 3)
        end_ns = float(shown.locator("#view").get_attribute("data-to"))
        shown.mouse.move(box["x"] + time_ps / 1000 / end_ns * box["width"], lane["y"] + 8)
        assert f"tile {tile}\nchunk 3" in shown.locator("#tip").inner_text()
        assert int(shown.locator("#view").get_attribute("data-arrows")) == 8
        shown.locator("#arrows").click()
        assert int(shown.locator("#view").get_attribute("data-arrows")) == 0


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read(page, dark):
    with opened(page, dark=dark) as shown:
        found = contrasts(shown)
        assert len(found) > 40 and any(text == "transfer" for _, text in found)
        assert [(value, text) for value, text in found if value < READABLE] == []
        inks = shown.evaluate("PALETTE.map(colour => [inkOn(colour), colour])")  # labels on bars, in a canvas
        assert {ink for ink, _ in inks} == {"#ffffff", "#000000"}
        assert all(contrast(*pair) >= READABLE for pair in inks)


@pytest.mark.slow
@needs_browser
def test_lanes_are_unfolded_with_keys_only(page):
    with opened(page) as shown:
        assert tab_through(shown) == list(range(shown.evaluate("stops.length")))
        group = "#names button[aria-expanded=false]"
        rows, folded = shown.locator("#names > *").count(), shown.locator(group).count()
        tab_to(shown, group)
        name = shown.locator(":focus").get_attribute("data-group")
        shown.keyboard.press("Enter")
        assert shown.locator("#names > *").count() > rows and shown.locator(group).count() == folded - 1
        assert shown.locator(":focus").get_attribute("data-group") == name  # the focus stays on it
        shown.keyboard.press("+")
        assert float(shown.locator("#view").get_attribute("data-from")) > 0


@pytest.mark.slow
def test_bars_of_a_library_begin_after_its_launch():
    preset = small_preset("collective.library=nccl_v100", "cu.count=16")
    case = Scenario(preset, aligned_problem(256, 256, 64), GemmKernel(64, 64, 32, 2, 2), GPUS, interval_ps=1_000_000)
    run = simulate_scenario(case, [LIBRARY]).runs["ar_library"]
    launch_ps = run.preset.machine.collective.launch_ps
    part = section(LIBRARY, [("ar_library", run)])
    bars = np.concatenate([lane.at for lane in lanes(part, "CUs")])
    assert launch_ps > 1_000_000 and launch_ps <= bars["start_ps"].min() and bars["end_ps"].max() <= part.time_ps
    traffic = lanes(part, "DRAM")[0]
    assert traffic.start_ps[0] == launch_ps and abs(int(traffic.end_ps[-1]) - part.time_ps) <= 2_000_000
