"""The site of the documentation: every page of docs/ and every notebook has a place in its contents."""

import re

from tests.support.doc_blocks import DOCS
from tests.support.paths import ROOT


def test_the_contents_name_every_page():
    contents = (DOCS / "site" / "index.rst").read_text(encoding="utf-8")
    named = set(re.findall(r"^   (/?[\w/-]+)$", contents, re.MULTILINE))
    pages = {f"/docs/{path.stem}" for path in DOCS.iterdir() if path.suffix in (".md", ".ipynb")} - {"/docs/README"}
    notebooks = {f"/docs/notebooks/{path.stem}" for path in (DOCS / "notebooks").glob("*.ipynb")}
    assert sorted((pages | notebooks) - named) == []
    for name in named:
        place = ROOT / name[1:] if name.startswith("/") else DOCS / "site" / name
        assert any(place.with_name(place.name + end).exists() for end in (".md", ".ipynb", ".rst")), name


def test_pictures_of_the_gallery_exist():
    gallery = (DOCS / "site" / "gallery.rst").read_text(encoding="utf-8")
    pictures = re.findall(r"^.. image:: /(.*)$", gallery, re.MULTILINE)
    assert len(pictures) == 3 and all((ROOT / picture).is_file() for picture in pictures)
