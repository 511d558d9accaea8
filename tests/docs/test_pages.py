"""The pages of docs/: every file, command and line of Python is run, links lead somewhere, tables are current."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from sim.scenario.result import ALL_CONFIGURATIONS
from sim.view.counter_names import page
from tests.support.doc_blocks import DOCS, blocks
from tests.support.paths import ROOT, SMALL_TRACE_TEXT
from traces.command.cli import main

PAGES = sorted(path.name for path in DOCS.glob("*.md"))
PROGRAM = "import sys; from traces.command.cli import main; sys.exit(main())"


def run_command(line, desk):
    """A line of a shell block; one that binds a policy in a process of its own."""
    line, may_fail, _ = line.partition(" || true")
    words = [word for piece in shlex.split(line) for word in expanded(piece, desk)]
    assert words[0] == "t3sim", line
    if "--policy" in words:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", PROGRAM, *words[1:]]
        status = subprocess.run(command, env=environment, check=False).returncode
    else:
        status = main(words[1:])
    assert status == 0 or (may_fail and status == 1), line


def expanded(piece, desk):
    """As a shell does: file names for a pattern."""
    return sorted(path.name for path in desk.glob(piece)) if "*" in piece else [piece]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_everything_on_a_page_runs(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SMALL_TRACE_TEXT, tmp_path / "traces")
    names = {}
    for language, file, text in blocks(name):
        if file:
            (tmp_path / file).write_text(text)
        elif language == "sh":
            for line in text.splitlines():
                run_command(line, tmp_path)
        elif language == "python":
            exec(compile(text, name, "exec"), names)
        else:
            pytest.fail(f"{name}: a block of {language} that nothing runs")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    text = (DOCS / name).read_text(encoding="utf-8")
    files = re.findall(r"\]\(((?!https?:)[^)#]+)", text)
    assert [file for file in files if not (DOCS / file).exists()] == []
    named = re.findall(r"`((?:sim|validation|traces|tracer|tests)/[\w./]+)`", text)
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_the_index_names_every_page():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in DOCS.iterdir() if path.is_file() and path.name not in index] == ["README.md"]


def test_the_page_of_counters_is_current():
    """Written by `python -m sim.view.counter_names`."""
    assert (DOCS / "counters.md").read_text(encoding="utf-8") == page()


def test_the_glossary_names_every_configuration():
    lines = (DOCS / "glossary.md").read_text(encoding="utf-8").splitlines()
    (row,) = [line for line in lines if line.startswith("| configuration |")]
    named = set(re.split(r"[ ,:()]+", row))
    assert [name for name in ALL_CONFIGURATIONS if name not in named] == []
