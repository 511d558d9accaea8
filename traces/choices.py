"""For a message about an unknown name: which names are allowed."""

import difflib
from collections.abc import Collection

SHORT_LIST = 12
"""A list of allowed names up to this length is printed whole; of a longer one the nearest names."""


def allowed_names(found: str, allowed: Collection[str], listing: str) -> str:
    """The allowed names, or the nearest of them where there are many, or the command `listing` that shows them."""
    if len(allowed) <= SHORT_LIST:
        return f"allowed are {', '.join(allowed)}"
    near = difflib.get_close_matches(found, allowed, n=3)
    return f"did you mean {' or '.join(near)}?" if near else f"`{listing}` lists all"
