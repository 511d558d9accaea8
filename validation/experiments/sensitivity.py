"""Experiment: the change of each headline when one assumed parameter has another plausible value."""

from dataclasses import dataclass

import msgspec

from sim.run.run import Run
from sim.scenario.result import IDEAL, SEQUENTIAL, T3, T3_MCA
from validation.experiments.experiment import Experiment, Results
from validation.experiments.sublayers import Sublayers
from validation.experiments.workbench import Workbench

CONFIGURATIONS = (SEQUENTIAL, T3, T3_MCA, IDEAL)
HEADLINES = (
    "geomean/T3/speedup",
    "geomean/T3-MCA/speedup",
    "geomean/T3-MCA/dram_change",
    "fc/most/T3/loss",
    "fc/most/T3-MCA/loss",
    "op/most/T3/loss",
)
"""Answers of `Sublayers` that the tornado charts show."""
BASE = "base"


class Variation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One parameter with another value.

    Attributes:
        parameter: its name in the tornado chart; variations of one parameter share a bar.
        value: the value in words.
        overrides, kernel: as in Workbench, added to those of the base.
    """

    parameter: str
    value: str
    overrides: tuple[str, ...] = ()
    kernel: dict[str, int | str] = {}

    @property
    def name(self) -> str:
        return f"{self.parameter} = {self.value}"


@dataclass(frozen=True)
class Swing:
    """The effect of a parameter on one headline."""

    parameter: str
    base: float
    values: dict[str, float]  # value in words -> headline

    @property
    def reach(self) -> float:
        return max(abs(value - self.base) for value in self.values.values())


class Sensitivity(Experiment, tag="sensitivity", frozen=True, kw_only=True):
    """Sub-layers under variations of single parameters.

    Attributes:
        scenarios: `model/layer/tpN`.
        bench: the base.
        variation: the variations, applied one at a time.
    """

    scenarios: tuple[str, ...]
    bench: Workbench = Workbench()
    variation: tuple[Variation, ...]

    def varied(self) -> dict[str, Sublayers]:
        """Name of a variation -> the sub-layers with it. The base is first."""
        benches = {BASE: self.bench} | {each.name: self._varied(each) for each in self.variation}
        return {
            name: Sublayers(title=name, scenarios=self.scenarios, configurations=CONFIGURATIONS, bench=bench)
            for name, bench in benches.items()
        }

    def _varied(self, variation: Variation) -> Workbench:
        return msgspec.structs.replace(
            self.bench,
            overrides=(*self.bench.overrides, *variation.overrides),
            kernel=self.bench.kernel | variation.kernel,
        )

    def runs(self) -> list[Run]:
        return [run for each in self.varied().values() for run in each.runs()]

    def answers(self, results: Results) -> dict[str, float]:
        """`<variation>/<headline>` and `<variation>/<sub-layer>/<configuration>/<figure>`; the base is `base`."""
        answers: dict[str, float] = {}
        for name, sublayers in self.varied().items():
            answers |= {f"{name}/{key}": value for key, value in sublayers.answers(results).items()}
        return answers


def swings(experiment: Sensitivity, answers: dict[str, float], headline: str) -> list[Swing]:
    """The effect of each parameter on a headline, the largest first."""
    base = answers[f"{BASE}/{headline}"]
    by_parameter: dict[str, Swing] = {}
    for variation in experiment.variation:
        swing = by_parameter.setdefault(variation.parameter, Swing(variation.parameter, base, {}))
        swing.values[variation.value] = answers[f"{variation.name}/{headline}"]
    return sorted(by_parameter.values(), key=lambda swing: -swing.reach)
