"""Lists of numbers as people type them: `3-7`, `0,2,5-8`."""

import re

from traces.errors import UserError

MOST = 1_000_000
"""Largest number of a list, so that a slip of the hand does not fill the memory."""


def numbers_of(text: str, field: str) -> list[int]:
    """Sorted whole numbers of a list of numbers and ranges, both ends included.

    Raises:
        UserError: names `field` and what was found.
    """
    chosen: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last <= MOST:
            raise UserError(f"{field}: found {text!r}, allowed are numbers and ranges to {MOST}, e.g. 0,2,5-8")
        chosen.update(range(first, last + 1))
    return sorted(chosen)
