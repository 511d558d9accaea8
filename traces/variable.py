"""Whole numbers in variables of the environment."""

import os

from traces.errors import UserError

DIGITS = 20
"""Most digits of a number, and of one that a message shows."""


def number_in(variable: str, least: int, most: int) -> int | None:
    """The number in a variable of the environment; None = the variable is not set, or empty.

    Raises:
        UserError: no whole number from `least` to `most`.
    """
    text = os.environ.get(variable, "")
    if not text:
        return None
    number = int(text) if text.isdecimal() and len(text) <= DIGITS else least - 1
    if not least <= number <= most:
        found = repr(text) if len(text) <= DIGITS else f"{text[:DIGITS]!r}..."
        raise UserError(f"{variable}: found {found}, allowed is a whole number from {least} to {most}")
    return number
