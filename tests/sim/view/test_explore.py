"""The page of all runs: its numbers are those of the archives, it filters, compares and copies, in a browser too."""

import csv
import io
import json
import re
import socket
import struct
import sys
import threading
import urllib.request
from http.server import ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from sim.results import ResultsArchive, RunResult, write_results
from sim.results import open as open_results
from sim.run.run import KernelRun
from sim.run.store import Store, run_or_get
from sim.scenario.archive import open_scenario, write_scenario
from sim.scenario.result import TRAFFIC
from sim.scenario.scenario import Scenario, simulate_scenario
from sim.study.driver import run_study
from sim.study.study import load_study
from sim.verbs.explore import explore, handler_of
from sim.view.explore_rows import CONFIGURATION, rows_of
from tests.support.browser import contrasts, needs_browser, opened, tab_through, tab_to
from tests.support.colour_vision import READABLE
from tests.support.programs import small_preset
from tracer.gemm.source import GemmKernel
from tracer.kernels import make_kernel
from tracer.sequence import CommandSequence
from tracer.workloads import aligned_problem
from traces.errors import UserError

STUDY = """
run = "kernel"
preset = "v100"
kernel = "gemm:m=128,n=128,k=64"
[axes]
hbm.queue_entries = [16, 64]
hbm.request_ps = [50000, 120000]
"""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "small.h5"
    case = Scenario(small_preset(), aligned_problem(256, 256, 64), GemmKernel(64, 64, 32, 2, 2), 4)
    write_scenario(path, simulate_scenario(case))
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.toml").write_text(STUDY)
    return run_study(load_study(folder / "study.toml"), folder, 0).archive


@pytest.fixture(scope="module")
def page(scenario, study):
    path = scenario.with_suffix(".html")
    done = CliRunner().invoke(explore, [str(scenario), str(study), "-o", str(path)])
    assert done.exit_code == 0, done.output
    return path


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)[1])


def test_rows_hold_the_numbers_of_the_archive(scenario):
    row, runs = open_scenario(scenario)
    rows, columns, failed = rows_of([open_results(scenario)])
    assert not failed
    for found in rows:
        name = found.values["simulation"]
        whole = row.figures[f"{name}.time_ns"] if found.kind == CONFIGURATION else runs[name].time_ps / 1000
        assert found.values["time, us"] * 1000 == pytest.approx(whole)
        assert sum(found.times.values()) == pytest.approx(found.values["time, us"])
        assert sum(found.traffic.values()) == pytest.approx(found.values["DRAM, MB"])
        assert found.values.keys() >= {"machine", "workload", "GPUs"}
    assert len(rows) == 5 + len(runs)
    assert len({found.label for found in rows}) == len(rows)
    assert "t3.gpus" not in columns


def test_a_study_shows_its_swept_fields_and_machines(study):
    rows, columns, _ = rows_of([open_results(study)])
    assert {"hbm.queue_entries", "hbm.request_ps"} <= columns.keys()
    assert not columns["hbm.queue_entries"].is_figure and columns["time, us"].is_figure
    assert rows[0].label == "queue_entries 16, request_ps 50000"
    assert rows[0].machine["hbm.queue_entries"][:2] == [16, "override"]
    assert len(columns) == len(set(columns))


def test_an_all_reduce_in_one_kernel_is_called_so():
    times = {"time_ns": 300.0, "gemm_ns": 100.0, "rs_ns": 0.0, "ag_ns": 200.0, "link_bytes": 0}
    own = (
        times
        | {f"dram_{kind}_bytes": 0 for kind in TRAFFIC}
        | {"dram_ag_reads_bytes": 3e6, "dram_ag_writes_bytes": 1e6}
    )
    figures = {f"Library.{name}": value for name, value in own.items()}
    (row,), _, _ = rows_of([ResultsArchive([RunResult(small_preset(), {}, {}, [], figures=figures)])])
    assert row.times == {"GEMM": 0.1, "all-reduce": 0.2}
    assert row.traffic == {"all-reduce reads": 3, "all-reduce writes": 1}


def test_the_page_stands_alone_and_is_small(page):
    text = page.read_text(encoding="utf-8")
    assert len(text) < 2_000_000
    assert not re.search(r'(src|href)="https?:', text)
    assert "default-src 'none'" in text
    shown = data_of(page)
    assert len(shown["rows"]) == 5 + 6 + 4
    assert all(len(row["values"]) == len(shown["columns"]) for row in shown["rows"])


def test_a_hundred_runs_take_less_than_5_megabytes(page):
    shown = data_of(page)
    each = max(len(json.dumps(row)) for row in shown["rows"])
    assert len(page.read_text(encoding="utf-8")) + 100 * each < 5_000_000


def test_a_store_is_a_source(tmp_path):
    store = Store(tmp_path / "store")
    case = KernelRun(preset=small_preset(), source=CommandSequence([make_kernel("gemm:m=128,n=128,k=32")]))
    run_or_get(case, store)
    done = CliRunner().invoke(explore, [str(tmp_path / "store"), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert data_of(tmp_path / "page.html")["rows"][0]["origin"]["file"] == f"{case.key}.h5"


def test_wrong_input_is_named(tmp_path):
    for arguments, text in (
        ([], "give --output FILE.html or --serve"),
        (["-o", str(tmp_path / "page.txt")], "ends with .html"),
        ([str(tmp_path), "-o", str(tmp_path / "page.html")], "found no run"),
    ):
        failure = CliRunner().invoke(explore, arguments).exception
        assert isinstance(failure, UserError) and text in str(failure)


def test_texts_of_an_archive_cannot_become_a_script(tmp_path):
    case = KernelRun(preset=small_preset(), source=CommandSequence([make_kernel("gemm:m=64,n=64,k=32")]))
    result = run_or_get(case, Store()).result
    result.point = {"</script><script>alert(1)</script>": "<b>@SCRIPT@</b>"}
    write_results(tmp_path / "a.h5", result)
    assert CliRunner().invoke(explore, [str(tmp_path / "a.h5"), "-o", str(tmp_path / "a.html")]).exit_code == 0
    assert "<script>alert" not in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert data_of(tmp_path / "a.html")["rows"][0]["values"].count("<b>@SCRIPT@</b>") == 1


def test_names_of_files_may_have_any_bytes(study, tmp_path):
    odd = tmp_path / b"<i>&\xff.h5".decode(errors="surrogateescape")
    odd.write_bytes(study.read_bytes())
    assert CliRunner().invoke(explore, [str(odd), "-o", str(tmp_path / "odd.html")]).exit_code == 0
    assert "&lt;i&gt;&amp;\\udcff.h5</title>" in (tmp_path / "odd.html").read_text(encoding="utf-8")
    assert data_of(tmp_path / "odd.html")["title"] == odd.name


def test_it_is_served_on_the_loopback_only():
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of("<p>page</p>")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert urllib.request.urlopen(f"{address}/").read() == b"<p>page</p>"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/etc/passwd")
        server.shutdown()


def test_a_browser_that_leaves_is_no_error():
    errors = []
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of("x" * 50_000_000)) as server:
        server.daemon_threads = False  # the end of the block waits for the answer
        server.handle_error = lambda *_: errors.append(sys.exception())
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with socket.create_connection(("127.0.0.1", server.server_port)) as browser:
            browser.send(b"GET / HTTP/1.0\r\n\r\n")
            assert browser.recv(4) == b"HTTP"
        server.shutdown()
    assert errors == []


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.0\r\n\r\n", b"GET /icon HTTP/1.0\r\n\r\n"])
def test_a_browser_that_leaves_at_once_is_no_error(sent):
    errors = []
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of("<p>page</p>")) as server:
        server.daemon_threads = False  # the end of the block waits for the answer
        server.handle_error = lambda *_: errors.append(sys.exception())
        browser = socket.create_connection(("127.0.0.1", server.server_port))
        browser.send(sent)
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        browser.close()  # a reset, before the server reads
        server.handle_request()
    assert errors == []


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (375, True)])
def test_a_browser_draws_every_chart(page, width, dark):
    with opened(page, width, 800, dark) as shown:
        for chart in ("times", "traffic", "study", "pareto"):
            shown.wait_for_selector(f"#chart-{chart} svg")
        assert shown.locator("#chart-times svg path[aria-roledescription=bar]").count() >= 5
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
        shown.locator("#theme").click()
        assert shown.locator("html").get_attribute("data-theme") == ("light" if dark else "dark")


@needs_browser
def test_rows_are_filtered_sorted_and_copied(page, scenario):
    row, _ = open_scenario(scenario)
    with opened(page) as shown:
        shown.select_option("#filter-column", "kind")
        shown.fill("#filter-value", "configuration")
        shown.press("#filter-value", "Enter")
        assert shown.locator("#rows tbody tr").count() == 5
        shown.locator("#rows th button", has_text="time, us").click()
        shown.locator("#copy-rows").click()
        shown.wait_for_selector("#copy-rows[data-copied]")
        table = list(csv.DictReader(io.StringIO(shown.locator("#copy-rows").get_attribute("data-copied"))))
        times = [float(line["time, us"]) for line in table]
        assert times == sorted(times)
        for line in table:
            assert float(line["time, us"]) * 1000 == pytest.approx(
                row.figures[f"{line['simulation']}.time_ns"], rel=1e-5
            )
            assert float(line["speed-up"]) == pytest.approx(row.figures[f"{line['simulation']}.speedup"], rel=1e-5)
        shown.locator("#chips button").click()
        assert shown.locator("#rows tbody tr").count() == 15


@needs_browser
def test_every_number_has_an_origin(page, scenario):
    with opened(page) as shown:
        cell = shown.locator("#rows tbody tr").first.locator("td.number").last
        assert f"{scenario.name}, run 0: " in cell.get_attribute("title")
        shown.locator("#rows tbody button").first.press("Enter")
        assert "made again by: t3sim t3 --kernel" in shown.locator("#origin").inner_text()


@needs_browser
def test_two_rows_are_compared(page, scenario):
    row, _ = open_scenario(scenario)
    with opened(page) as shown:
        line = shown.locator("#compare tbody tr", has_text="time, us").locator("td")
        a, b, difference, ratio = (float(line.nth(k).inner_text().replace(",", "")) for k in range(1, 5))
        assert a == pytest.approx(row.figures["Sequential.time_ns"] / 1000, rel=1e-3)
        assert b == pytest.approx(row.figures["T3.time_ns"] / 1000, rel=1e-3)
        assert ratio == pytest.approx(b / a, rel=1e-2) and difference == pytest.approx(b - a, rel=1e-2)


@needs_browser
def test_sensitivity_and_front_are_those_of_the_study(page, study):
    runs = {tuple(run.point.values()): run.time_ps for _, run in open_results(study).results()}
    with opened(page) as shown:
        shown.locator("#choose-none").click()
        shown.select_option("#filter-column", "machine")
        shown.fill("#filter-value", "v100")
        shown.press("#filter-value", "Enter")
        shown.locator("#choose-all").click()
        shown.select_option("#study-y", "time, us")
        line = shown.locator("#sensitivity tbody tr", has_text="request_ps").locator("td")
        changes = sorted(100 * (runs[queue, 120000] / runs[queue, 50000] - 1) for queue in (16, 64))
        assert float(line.nth(5).inner_text().rstrip(" %")) == pytest.approx(changes[0], abs=0.01)
        assert float(line.nth(6).inner_text().rstrip(" %")) == pytest.approx(changes[1], abs=0.01)
        shown.select_option("#pareto-x", "hbm.request_ps")
        shown.select_option("#pareto-y", "time, us")
        front = [float(text) for text in shown.locator("#front tbody tr td:nth-child(3)").all_inner_texts()]
        assert min(front) == pytest.approx(min(runs.values()) / 1e6, rel=1e-3)


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read(page, dark):
    with opened(page, dark=dark) as shown:
        shown.wait_for_selector("#chart-pareto svg")
        shown.locator("#columns summary").click()
        shown.locator("#rows tbody button").first.click()
        found = contrasts(shown)
        assert len(found) > 200 and any(text == "on the front" for _, text in found)
        assert [(value, text) for value, text in found if value < READABLE] == []


@pytest.mark.slow
@needs_browser
def test_the_tab_key_reaches_every_control_in_order(page):
    with opened(page) as shown:
        shown.wait_for_selector("#chart-pareto svg")
        for place in range(2):  # as it opens, then with all that can be opened
            assert tab_through(shown) == list(range(shown.evaluate("stops.length")))
            if place == 0:
                shown.locator("#columns summary").click()
                shown.locator("#rows tbody button").first.click()
        assert shown.evaluate("stops.some(e => e.textContent === 'Close')")


@pytest.mark.slow
@needs_browser
def test_rows_are_chosen_with_keys_only(page):
    """Filter, sort, choose, columns, origin: the focus stays where the reader works."""
    with opened(page) as shown:
        keys, focus = shown.keyboard, shown.locator(":focus")
        tab_to(shown, "#filter-column")
        keys.type("simulation")
        tab_to(shown, "#filter-value")
        keys.type("T3-MCA")
        keys.press("Enter")
        assert shown.locator("#rows tbody tr").count() == 1
        tab_to(shown, "#chips button")
        keys.press("Space")
        assert shown.locator("#rows tbody tr").count() == 15 and focus.get_attribute("id") == "filter-value"
        tab_to(shown, "#rows th button[data-column='time, us']")
        for order in ("ascending", "descending"):
            keys.press("Enter")
            assert shown.locator("#rows th[aria-sort]").get_attribute("aria-sort") == order
            assert focus.get_attribute("data-column") == "time, us"
        chosen = shown.locator("#rows tr[aria-selected=true]").count()
        tab_to(shown, "#rows tbody input")
        keys.press("Space")
        assert shown.locator("#rows tr[aria-selected=true]").count() == chosen - 1  # the slowest one was chosen
        tab_to(shown, "#columns summary")
        columns = shown.locator("#rows th").count()
        for key in ("Enter", "Tab", "Space"):
            keys.press(key)
        assert abs(shown.locator("#rows th").count() - columns) == 1
        keys.press("Escape")
        assert not shown.locator("#column-boxes").is_visible() and focus.inner_text() == "Columns"


@pytest.mark.slow
@needs_browser
def test_origins_and_comparisons_with_keys_only(page, scenario):
    with opened(page) as shown:
        keys, focus = shown.keyboard, shown.locator(":focus")
        tab_to(shown, "#rows tbody button")
        opener = focus.get_attribute("aria-label")
        keys.press("Enter")
        assert focus.inner_text() == "Close"
        places = shown.locator("#origin tr", has_text="time, us").first.inner_text()
        assert places.endswith(f"{shown.locator('#rows tbody td').nth(1).inner_text().split(',')[0]}.time_ns")
        keys.press("Escape")
        assert not shown.locator("#origin").is_visible() and focus.get_attribute("aria-label") == opener
        tab_to(shown, "#compare-b")
        before = shown.locator("#compare").inner_text()
        keys.press("ArrowDown")
        assert shown.locator("#compare").inner_text() != before
        tab_to(shown, "#copy-compare")
        keys.press("Enter")
        shown.wait_for_selector("#copy-compare[data-copied]")
        assert focus.get_attribute("id") == "copy-compare"
        tab_to(shown, "#pareto-x-better")
        keys.press("ArrowDown")
        assert shown.locator("#pareto-x-better").input_value() == "-1"
        tab_to(shown, "#theme")
        keys.press("Enter")
        assert shown.locator("html").get_attribute("data-theme") == "dark"
