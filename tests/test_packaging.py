"""What an installed t3sim holds: every data file of the rooms is named by pyproject.toml, and the metadata agree."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from tests.support.checkout import FILES, ROOMS
from traces.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LEFT_OUT = {".png"}
"""Figures of the README, which no program opens."""


def test_data_files_are_installed():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["*"]
    data = [Path(name) for name in FILES if name.split("/")[0] in ROOMS and not name.endswith(".py")]
    assert {".toml", ".csv", ".h5", ".xz"} <= {path.suffix for path in data}
    forgotten = [
        str(path)
        for path in data
        if path.suffix not in LEFT_OUT and not any(fnmatch(path.name, pattern) for pattern in patterns)
    ]
    assert forgotten == []


def test_versions_agree():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == VERSION
    assert f"## {VERSION}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    assert named[0] == oldest == PROJECT["tool"]["mypy"]["python_version"]


def test_the_classifiers_are_the_versions_of_python_that_were_tried():
    """The newest dependencies ran with the oldest one in every test; the page of contributors names the others."""
    oldest, *later = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["project"]["classifiers"]))
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    tried = page[page.index("\nPython 3") :].partition(" were tried ")[0]
    assert later == re.findall(r"(3\.\d+)\.\d+", tried) and f"Python {oldest}" in page


def test_every_change_is_tagged():
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    changes = [line for line in lines if line.startswith("* ")]
    assert changes and all(re.match(r"\* (new|change|fix|model): .*[.]$", line) for line in changes)
