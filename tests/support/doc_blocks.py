"""Fenced blocks of the pages in docs/: ```language, or ```language file for one that is a file."""

import re

from tests.support.paths import ROOT

DOCS = ROOT / "docs"


def blocks(name):
    """(language, file or "", text) of every fenced block of a page."""
    text = (DOCS / name).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w+) ?([\w.]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert 2 * len(found) == len(re.findall(r"^```", text, re.MULTILINE)), f"{name}: a block without a language"
    return found


def file_of(name, file):
    """The text of a file that a page shows."""
    return next(text for _, found, text in blocks(name) if found == file)
