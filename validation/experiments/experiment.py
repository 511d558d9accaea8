"""Base classes of experiments. An experiment lists its runs, and computes answers from their results."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from sim.host.gpu import Progress
from sim.host.state import SavePoints
from sim.run.result import RunResult
from sim.run.run import Run
from validation.claims.claim import Claim

Results = Mapping[str, RunResult]
"""Key of a run -> its result."""


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    """Base of all kinds of experiments. A TOML file gives the values of its attributes.

    Attributes:
        title: one line for people.
        full: True = only `t3sim validate --full` runs it.
        named: True = only `t3sim validate --only` with its name runs it, as it takes hours.
        partial: True = some results are enough for answers, and its runs are done in their order.
        assumed: assumptions in words, printed with the answers.
    """

    partial: ClassVar[bool] = False

    title: str
    full: bool = True
    named: bool = False
    assumed: tuple[str, ...] = ()

    def runs(self) -> list[Run]:
        """The runs that the answers need. Several experiments may share a run."""
        raise TypeError(f"{type(self).__name__} has no runs")

    def answers(self, results: Results) -> dict[str, float]:
        """Name -> number. The names contain the units."""
        raise TypeError(f"{type(self).__name__} has no answers")

    def claims(self, name: str) -> list[Claim]:
        """Rows of a file of references, as claims beside those of `validation/claims`. name: of the experiment."""
        return []


@dataclass(frozen=True, kw_only=True)
class FiguresRun(Run):
    """A run whose result has figures only: a measurement of one unit, or several small simulations of a machine.

    Attributes:
        name: one line for people; not part of the key.
        requests: estimated number of line requests.
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
        """Run the measurement. Returns name -> number."""

    def own_options(self) -> dict[str, str]:
        return {}

    def simulated(self, progress: Progress | None, save_points: SavePoints | None) -> RunResult:
        return RunResult(self.preset, {}, {}, [], figures=self.figures())


@dataclass(frozen=True, kw_only=True)
class MeasuredRun(FiguresRun):
    """What a function of a module measures.

    Attributes:
        measure: the function; it returns name -> number. The names are those of answers.
        given: its arguments.
        instead: plain values that decide the result in place of the preset's; empty = the preset decides.
    """

    measure: Callable[..., dict[str, float]]
    given: tuple[Any, ...]
    instead: dict[str, Any] = field(default_factory=dict)

    def input(self) -> dict[str, Any]:
        return {"measure": self.measure.__name__, "given": msgspec.to_builtins(self.given)} | self.instead

    def modules(self) -> tuple[str, ...]:
        return (self.measure.__module__, __name__)

    def reads(self, field: str) -> bool:
        return not self.instead

    def figures(self) -> dict[str, float]:
        return self.measure(*self.given)


def figures_of(runs: Iterable[Run], results: Results) -> dict[str, float]:
    """All figures of these runs."""
    return {name: value for run in runs for name, value in results[run.key].figures.items()}
