"""What every kind of experiment offers: the runs that it needs, and its answers from their results."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from sim.host.gpu import Progress
from sim.host.state import SavePoints
from sim.run.result import RunResult
from sim.run.run import Run

Results = Mapping[str, RunResult]
"""Key of a run -> what it found."""


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

    def runs(self) -> list[Run]:
        """What must be simulated; several experiments may share a run."""
        raise TypeError(f"{type(self).__name__} has no runs")

    def answers(self, results: Results) -> dict[str, float]:
        """Name -> number; units stand in the names."""
        raise TypeError(f"{type(self).__name__} has no answers")


@dataclass(frozen=True, kw_only=True)
class FiguresRun(Run):
    """A measurement of a unit, or of a machine by several small simulations: its result is figures alone.

    Attributes:
        name: one line for people; it decides nothing.
        requests: guess of the line requests.
    """

    name: str
    requests: float

    @property
    def title(self) -> str:
        return self.name

    @property
    def cost(self) -> float:
        return self.requests

    @abstractmethod
    def figures(self) -> dict[str, float]:
        """Measure them."""

    def own_options(self) -> dict[str, str]:
        return {}

    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        return RunResult(self.preset, {}, {}, [], figures=self.figures())
