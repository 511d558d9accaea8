"""Lists of numbers in the form that a user types: `3-7`, `0,2,5-8`."""

import re

from traces.errors import UserError

MOST = 1_000_000
"""Largest number of a list. A typing error must not fill the memory."""


def numbers_of(text: str, field: str) -> list[int]:
    """Sorted whole numbers from a list of numbers and ranges, each once. Both ends of a range are included.

    Raises:
        UserError: names `field` and what was found.
    """
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= MOST:
            raise UserError(f"{field}: found {text!r}, allowed are numbers and ranges to {MOST}, e.g. 0,2,5-8")
        numbers = set(range(first, last + 1))
        if numbers & chosen:
            raise UserError(f"{field}: found {min(numbers & chosen)} twice in {text!r}, allowed is each number once")
        chosen |= numbers
    return sorted(chosen)
