"""A headless browser for tests of pages: a chromium of this computer, driven by playwright."""

import importlib.util
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FOUND = next((path for name in NAMES if (path := shutil.which(name))), None)
MISSING = "no chromium" if FOUND is None else "no playwright" if not importlib.util.find_spec("playwright") else ""
needs_browser = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} here: the page is not opened")


@contextmanager
def opened(page_path, width=1280, height=900, dark=False):
    """A page in a window of this size. Errors of its scripts and requests to anywhere else fail the test."""
    from playwright.sync_api import sync_playwright

    faults = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=FOUND, args=["--no-sandbox"])
        try:
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
            )
            page.on("pageerror", lambda error: faults.append(f"script: {error}"))
            page.on("console", lambda text: faults.append(text.text) if text.type == "error" else None)
            page.on(
                "request", lambda sent: None if sent.url.startswith(("file:", "data:")) else faults.append(sent.url)
            )
            page.goto(page_path.as_uri())
            yield page
        finally:
            browser.close()
    assert not faults, faults


def colours(page, selector):
    """Number of different pixels of a canvas."""
    return page.locator(selector).evaluate(
        "c => { const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);"
        " return new Set(d).size; }"
    )


STOPS = (
    "() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex=\"0\"]')]"
    ".filter(e => e.checkVisibility() && e.tabIndex >= 0)"
)
"""The elements of a page that the Tab key must reach, in order."""
FOCUS = """() => {
  const e = document.activeElement, box = e.getBoundingClientRect(), style = getComputedStyle(e);
  const at = document.elementFromPoint(box.left + box.width / 2, box.top + Math.min(box.height, innerHeight) / 2);
  const outline = style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth);
  return [stops.indexOf(e), outline, !e.contains(at), e.outerHTML.slice(0, 120)];
}"""
"""Of the element with the focus: its place in `stops`, width of its outline, is it covered, its begin."""
TEXTS = """() => {
  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const over = (colour, ground) => {
    for (const fill of [ground, colour]) { pen.fillStyle = fill; pen.fillRect(0, 0, 1, 1); }
    const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
    return `rgb(${red}, ${green}, ${blue})`;
  };
  const light = colour => colour.match(/[0-9]+/g).slice(0, 3).map(part => part / 255)
    .map(part => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, k) => sum + part * [0.2126, 0.7152, 0.0722][k], 0.05);
  const ground = e => (e ? over(getComputedStyle(e).backgroundColor, ground(e.parentElement)) : "rgb(255, 255, 255)");
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || ["SCRIPT", "STYLE"].includes(e.tagName) || !e.checkVisibility()) continue;
    const style = getComputedStyle(e), behind = ground(e);
    const front = over(e instanceof SVGElement ? style.fill : style.color, behind);
    const [low, high] = [front, behind].map(light).sort((a, b) => a - b);
    found.push([high / low, text]);
  }
  return found;
}"""
"""Contrast and text of every visible text."""


def tab_through(page):
    """Press Tab from the begin of a page to its end: the places in STOPS of the elements that it reached.

    Each of them must show that it has the focus, and nothing may cover it.
    """
    page.locator("h1").click()  # Tab begins there
    page.evaluate(f"window.stops = ({STOPS})()")
    reached = []
    for _ in range(page.evaluate("stops.length")):
        page.keyboard.press("Tab")
        place, outline_px, covered, name = page.evaluate(FOCUS)
        reached.append(place)
        assert outline_px >= 2, f"the focus does not show: {name}"
        assert not covered, f"the focus is covered: {name}"
    return reached


def tab_to(page, selector):
    """Press Tab until the first element of this selector has the focus."""
    for _ in range(page.evaluate(f"({STOPS})().length") + 1):
        if page.locator(selector).first.evaluate("e => e === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {selector}")


def contrasts(page):
    """(contrast of WCAG 2.1, text) of every visible text of a page, of charts too."""
    return page.evaluate(TEXTS)


def reach_every_lane(page):
    """Scroll to each name: it must come into the visible part of the lanes. The number of names."""
    number, hidden = page.evaluate(
        """() => {
  const names = [...document.querySelectorAll("#names > *")];
  const part = document.getElementById("scroll").getBoundingClientRect();
  const hidden = names.filter(name => {
    name.scrollIntoView({ block: "nearest" });
    const box = name.getBoundingClientRect();
    return box.top < part.top - 1 || box.bottom > part.bottom + 1;
  });
  return [names.length, hidden.map(name => name.title)];
}"""
    )
    assert hidden == []
    return number
