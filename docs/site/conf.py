"""Settings of the documentation site: `python -m sphinx -c docs/site . site`, in the root of the checkout.

Sources are the pages of docs/, the notebooks with their stored outputs, and the docstrings.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from traces.version import VERSION  # noqa: E402

project, release, author = "t3sim", VERSION, "the authors of t3sim"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
root_doc = "docs/site/index"
include_patterns = [
    "docs/*.md",
    "docs/*.ipynb",
    "docs/notebooks/*.ipynb",
    "docs/site/*.rst",
    "validation/DEVIATIONS.md",
    "validation/tables/report/report.md",
    "validation/tables/*.md",
    "CHANGELOG.md",
]
exclude_patterns = ["docs/README.md"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
nb_execution_mode = "off"
myst_heading_anchors = 3
suppress_warnings = [
    "myst.header",
    "myst.xref_missing",
    "misc.highlighting_failure",
    "mystnb.unknown_mime_type",
    "toc.not_included",
]
html_theme = "furo"
html_title = f"t3sim {VERSION}"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
napoleon_use_ivar = True
