"""Generated pages hold the notes that were written for them."""

from pathlib import Path

import pytest

VALIDATION = Path(__file__).parents[2] / "validation"
NOTES = sorted(VALIDATION.rglob("*_notes.md"))
PARSED = "evaluation_notes"
"""Those of the report become blocks of its page, and are written again from them (`test_report.py`)."""
PAGES = [page.read_text(encoding="utf-8") for page in (VALIDATION / "tables").rglob("*.md")]


@pytest.mark.parametrize("notes", [one for one in NOTES if one.stem != PARSED], ids=lambda path: path.stem)
def test_a_page_has_its_notes_as_they_are_now(notes):
    text = notes.read_text(encoding="utf-8").strip()
    assert sum(text in page for page in PAGES) == 1
