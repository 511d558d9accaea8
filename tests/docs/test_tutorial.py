"""The notebook runs from top to bottom, and is stored without output."""

import os

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.doc_blocks import DOCS
from tests.support.paths import ROOT

NOTEBOOK = DOCS / "tutorial.ipynb"


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    figures = [output for output in shown if "image/png" in output.get("data", {})]
    assert len(figures) == 2, "both figures are drawn in the notebook"


def test_it_is_stored_without_output():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in notebook.cells)
