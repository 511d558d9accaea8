"""The accuracy that a user asks for: "exact", or the largest error of time that an extrapolated run may state."""

import re

from traces.errors import UserError

EXACT = "exact"
"""Simulate all workgroups."""
LEAST, MOST = 0.001, 0.1
"""Range of an accuracy. Below it a run would hardly ever be shortened; above it the times say little."""
PERCENT = 100


def accuracy_of(text: str, field: str = "accuracy") -> float:
    """Relative error from a text: "1%" -> 0.01, "exact" -> 0.0.

    Raises:
        UserError: names `field` and what was found.
    """
    if text == EXACT:
        return 0.0
    number = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text) if isinstance(text, str) else None
    if number and LEAST <= float(number[1]) / PERCENT <= MOST:
        return float(number[1]) / PERCENT
    raise UserError(
        f"{field}: found {text!r}, allowed are {EXACT} and percentages from {PERCENT * LEAST:g}% to {PERCENT * MOST:g}%"
    )


def accuracy_text(accuracy: float) -> str:
    """The inverse of `accuracy_of`."""
    return f"{PERCENT * accuracy:g}%" if accuracy else EXACT
