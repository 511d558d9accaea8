"""The range of a number that a user may give, and the reason for it."""

from collections.abc import Mapping
from typing import NamedTuple

from traces.errors import UserError


class Bound(NamedTuple):
    """Lowest and highest value of a field, both allowed, and the reason for them."""

    least: float
    most: float
    why: str

    def holds(self, value: float) -> bool:
        return self.least <= value <= self.most

    @property
    def allowed(self) -> str:
        """The range and its reason, for a message."""
        return f"{self.least:,} to {self.most:,}: {self.why}"


def check_whole_numbers(what: str, values: object, bounds: Mapping[str, Bound]) -> None:
    """Refuse attributes that are not whole numbers in their ranges. None means: not given.

    Args:
        what: name of the thing, for the message.
        values: has an attribute for each name in `bounds`.

    Raises:
        UserError: names the attribute, its value, what is allowed and why.
    """
    for name, bound in bounds.items():
        value = getattr(values, name)
        if value is not None and (type(value) is not int or not bound.holds(value)):
            raise UserError(f"{what} {name} = {value!r}: allowed is a whole number, {bound.allowed}")
