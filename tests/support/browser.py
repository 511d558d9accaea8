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
