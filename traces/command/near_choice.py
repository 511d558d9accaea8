"""A choice of names for an option. A wrong name is answered with the nearest ones."""

from collections.abc import Sequence
from typing import Any

import click

from traces.choices import nearest


class NearChoice(click.Choice[str]):
    """`click.Choice` whose message names the nearest choice first."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self._names = tuple(names)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f"found {value!r}; {nearest(str(value), self._names)}"
