"""Self-contained HTML pages: style, scripts and data stand in one file, which opens without a network.

A page consists of the files of `sim/view/web`: `frame.html`, `base.css` and `base.js` for all pages, and NAME.html,
NAME.css and NAME.js of its own. Its data are JSON. A policy in the page forbids every connection to elsewhere.
"""

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from traces.plain_text import shown

WEB = Path(__file__).with_name("web")
MARK = re.compile("@([A-Z]+)@")


def page(name: str, title: str, data: object, libraries: Sequence[str] = (), modules: Sequence[str] = ()) -> str:
    """The text of a page.

    Args:
        name: of the page: timeline or explore.
        title: of the window.
        data: plain values for JSON.
        libraries: texts of scripts that run before the page's own.
        modules: names of further scripts of the page, which run before NAME.js.
    """
    scripts = [*libraries, *(_text(f"{script}.js") for script in ("base", *modules, name))]
    parts: Mapping[str, str] = {
        "TITLE": escape(shown(title)),
        "STYLE": _text("base.css") + _text(f"{name}.css"),
        "BODY": _text(f"{name}.html"),
        "DATA": _as_json(data),
        "EVAL": "'unsafe-eval'" if libraries else "",
        "SCRIPT": "".join(f"<script>\n{script}</script>\n" for script in scripts),
    }
    return MARK.sub(lambda mark: parts[mark[1]], _text("frame.html"))


def _text(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")


def _as_json(data: object) -> str:
    """JSON that cannot end the element of the page in which it stands."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
