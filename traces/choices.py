"""The names that are allowed, for a message about an unknown name."""

import difflib
from collections.abc import Collection

SHORT_LIST = 14
"""Up to this number of allowed names, a message lists all of them. Above it, it lists the nearest."""


def allowed_names(found: str, allowed: Collection[str], listing: str) -> str:
    """The nearest names, and all if they are few; without a near one of many, the command `listing` that shows all."""
    if len(allowed) <= SHORT_LIST:
        return nearest(found, allowed)
    return _did_you_mean(found, allowed) or f"`{listing}` lists all"


def nearest(found: str, allowed: Collection[str]) -> str:
    """All allowed names, after the nearest of them."""
    return f"{_did_you_mean(found, allowed)} allowed are {', '.join(allowed)}".strip()


def _did_you_mean(found: str, allowed: Collection[str]) -> str:
    near = difflib.get_close_matches(found, allowed, n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""
