"""Types of what a caller gives: for a wrong one, a sentence names the argument, what was found and what is allowed."""

from collections.abc import Collection, Mapping, Sequence
from os import PathLike
from pathlib import Path

from sim.run.store import Store
from sim.study.fields import STUDY_BOUNDS
from traces.choices import nearest
from traces.errors import UserError
from traces.units import PS_PER_NS


def text_of(where: str, given: object) -> str:
    """A text."""
    if not isinstance(given, str):
        raise UserError(f"{where}: found {given!r}, allowed is a text")
    return given


def path_of(where: str, given: object) -> Path:
    """A path."""
    if not isinstance(given, str | PathLike):
        raise UserError(f"{where}: found {given!r}, allowed is a path")
    return Path(given)


def count_of(where: str, given: object) -> int:
    """A whole number from 0."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise UserError(f"{where}: found {given!r}, allowed is a whole number from 0")
    return given


def switch_of(where: str, given: object) -> bool:
    """True or False."""
    if not isinstance(given, bool):
        raise UserError(f"{where}: found {given!r}, allowed are True and False")
    return given


def interval_ps_of(where: str, given: object) -> int:
    """An interval of a time series, given in ns, in ps."""
    bound = STUDY_BOUNDS["interval_ns"]
    interval_ns = count_of(where, given)
    if not bound.holds(interval_ns):
        raise UserError(f"{where}: found {given!r}, allowed is {bound.allowed}")
    return interval_ns * PS_PER_NS


def store_of(where: str, given: object) -> Store:
    """A store; None = the user's."""
    if given is not None and not isinstance(given, Store):
        raise UserError(f"{where}: found {given!r}, allowed is a t3sim.Store, e.g. Store('folder')")
    return given or Store()


def changes_of(where: str, given: object) -> Mapping[str, object] | Sequence[str]:
    """Changes of a machine."""
    if isinstance(given, Mapping) or (
        isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(each, str) for each in given)
    ):
        return given
    raise UserError(f'{where}: found {given!r}, allowed is {{"hbm.queue_entries": 32}} or ["hbm.queue_entries=32"]')


def names_of(where: str, given: object, allowed: Collection[str]) -> Sequence[str]:
    """Some of the allowed names."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise UserError(f"{where}: found {given!r}, allowed is a list of {', '.join(allowed)}")
    for name in given:
        if name not in allowed:
            raise UserError(f"{where}: found {name!r}, {nearest(str(name), allowed)}")
    return given
