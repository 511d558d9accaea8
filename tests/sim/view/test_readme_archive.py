"""The pages of README's own archive in a browser: every row can be reached, and the times are those of the archive."""

import re
import shlex

import pytest

from sim.results import open as open_results
from sim.scenario.archive import open_scenario
from sim.scenario.result import SEQUENTIAL, T3_MCA
from sim.view.command_text import again
from sim.view.explore_rows import rows_of
from tests.support.browser import needs_browser, opened, reach_every_lane
from tests.support.paths import ROOT
from traces.command.cli import main

COMMAND = shlex.split(re.search(r"^t3sim (t3 .*)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)[1])
"""The first command of README, without t3sim."""
LEFT = ROOT / COMMAND[-1]
"""Where .ci/run leaves the archive of that command, as does everybody who types it in the checkout."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    if LEFT.exists():
        return LEFT
    path = tmp_path_factory.mktemp("readme") / LEFT.name
    assert COMMAND[-2] == "-o" and main([*COMMAND[:-1], str(path)]) == 0
    return path


def page(archive, folder, verb):
    path = folder / f"{verb}.html"
    assert main([verb, str(archive), "-o", str(path)]) == 0
    return path


@pytest.mark.slow
def test_the_archive_is_that_of_the_command(archive):
    row, runs = open_scenario(archive)
    found = {name: row.options[name] for name in ("m", "n", "k", "gpus")}
    assert found == {"m": 2048, "n": 2048, "k": 512, "gpus": 8} and f"--gpus {found['gpus']}" in " ".join(COMMAND)
    assert again(row).command.startswith("t3sim t3 --kernel gemm:m=2048,n=2048,k=512") and len(runs) == 6


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (375, True)])
def test_every_row_of_the_timeline_can_be_reached(archive, tmp_path, width, dark):
    row, runs = open_scenario(archive)
    units = runs["t3"].preset.machine.cu.count + runs["t3"].preset.machine.hbm.channels
    with opened(page(archive, tmp_path, "timeline"), width, 640, dark) as shown:
        folded = reach_every_lane(shown)
        groups = shown.locator("#names button[aria-expanded=false]")
        while groups.count():
            groups.first.click()
        assert reach_every_lane(shown) == folded + 2 * units
        sections = shown.locator("#phases li").all_inner_texts()
        for name, text in zip((SEQUENTIAL, T3_MCA), sections, strict=True):
            assert text.startswith(f"{name}: {row.figures[f'{name}.time_ns'] / 1000:.2f} us")
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
@needs_browser
def test_the_rows_of_explore_are_those_of_the_archive(archive, tmp_path):
    rows, _, _ = rows_of([open_results(archive)])
    with opened(page(archive, tmp_path, "explore")) as shown:
        shown.wait_for_selector("#chart-times svg path[aria-roledescription=bar]")
        lines = shown.locator("#rows tbody tr")
        assert [lines.nth(k).locator("td").nth(1).inner_text() for k in range(lines.count())] == [r.label for r in rows]
        times = [lines.nth(k).locator("td[title*=end_ps]").inner_text() for k in range(lines.count())]
        assert [float(text) for text in times] == pytest.approx([r.values["time, us"] for r in rows], rel=1e-3)
