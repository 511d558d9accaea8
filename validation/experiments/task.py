"""Units of work of an experiment, and what every kind of experiment offers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from json import dumps
from typing import Any

import msgspec

from sim.run.code import code_key, policy_key

Outcome = dict[str, Any]
"""What a task found: plain values that JSON can hold."""
Outcomes = Mapping[str, Outcome]
"""Task key -> what it found."""


@dataclass(frozen=True)
class Task:
    """A piece of work that two processes can do with the same result.

    Attributes:
        key: hash of everything that decides the result: input and code of the simulator.
        title: one line for people.
        cost: guess of the work, for the order in which tasks start; any unit.
        work: does it; picklable.
    """

    key: str
    title: str
    cost: float
    work: Callable[[], Outcome]


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """Base of the kinds of experiments; a TOML file fills one.

    Attributes:
        title: one line for people.
        full: runs with `t3sim validate --full` only.
        assumed: assumptions in words, printed with the answers.
    """

    title: str
    full: bool = True
    assumed: tuple[str, ...] = ()

    def tasks(self) -> list[Task]:
        """What must be simulated; several experiments may share a task."""
        raise TypeError(f"{type(self).__name__} has no tasks")

    def answers(self, outcomes: Outcomes) -> dict[str, float]:
        """Name -> number; units stand in the names."""
        raise TypeError(f"{type(self).__name__} has no answers")


def task_key(module: str, *inputs: object) -> str:
    """Key of a task.

    Args:
        module: dotted name of the module whose code, imports included, decides the result.
        inputs: plain values that decide it.
    """
    return sha256(dumps([code_key(module), policy_key(), inputs], sort_keys=True, default=str).encode()).hexdigest()
