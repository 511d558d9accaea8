"""The notebooks of docs/notebooks: stored with their outputs, and they still run and show the same."""

import os
import re

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.doc_blocks import DOCS
from tests.support.paths import ROOT

ESCAPES = re.compile(r"\x1b\[[?0-9;]*[a-zA-Z]")
OF_THE_HOST = re.compile(r"\b\d[\d.]* s\b|━|compil|/s\b| MB\b")
NOTEBOOKS = sorted(path.name for path in (DOCS / "notebooks").glob("*.ipynb"))


def read(name):
    return nbformat.read(DOCS / "notebooks" / name, as_version=4)


def shown(notebook):
    """Tables and texts of the results of each cell; printed lines can have times in them and are left out."""
    results = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    found = [output["data"] for output in results if output.output_type == "execute_result"]
    texts = [data.get("text/html") or data.get("text/plain", "") for data in found]  # plain text names the code
    return [text for text in texts if "object at 0x" not in text and "Figure" not in text]


def printed(notebook):
    """Printed lines in order, without those of progress bars and those with times of the host."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    texts = "".join(output["text"] for output in outputs if output.output_type == "stream" and output.name == "stdout")
    lines = [ESCAPES.sub("", line).strip() for line in texts.splitlines()]
    return [line for line in lines if line and not OF_THE_HOST.search(line)]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_is_stored_with_outputs_and_without_errors(name):
    notebook = read(name)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert outputs and all(output.output_type != "error" for output in outputs)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert "/tmp/" not in nbformat.writes(notebook)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs_and_shows_the_same(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    fresh = read(name)
    NotebookClient(fresh, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(fresh) == shown(read(name))
    lines = iter(printed(fresh))  # on a slow computer with lines of progress between them
    assert [line for line in printed(read(name)) if line not in lines] == []
