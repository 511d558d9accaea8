"""Speed-ups of the configurations over Sequential for each sub-layer, with their geometric mean."""

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from sim.scenario.result import CONFIGURATIONS, SEQUENTIAL
from sim.view.paper import case_title, grouped_bars, legend_below, new_figure
from sim.view.style import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(answers: Mapping[str, float], cases: Sequence[str], path: Path) -> None:
    """Draw the speed-ups of an experiment from its answers."""
    shown = [name for name in CONFIGURATIONS if name != SEQUENTIAL]
    speedups = {name: [answers[f"{case}/{name}/speedup"] for case in cases] for name in shown}
    means = {name: answers[f"geomean/{name}/speedup"] for name in shown}
    save(draw_speedups([case_title(case) for case in cases], speedups, means), path)


def draw_speedups(
    titles: Sequence[str], speedups: Mapping[str, Sequence[float | None]], means: Mapping[str, float | None]
) -> "Figure":
    """Draw bars that begin at 1, the time of Sequential.

    Args:
        titles: titles of the cases.
        speedups: configuration -> speed-up of each case; None = no bar.
        means: configuration -> geometric mean; None = no bar. Empty: no means are shown.
    """
    series = {}
    for name, values in speedups.items():
        mean = means.get(name)
        bars = [nan if value is None else value for value in [*values, *([mean] if means else [])]]
        series[name if mean is None else f"{name}, geomean {mean:.3f}"] = bars
    figure, axes = new_figure(max(6.0, 0.75 * len(titles) + 2), 4.2)
    grouped_bars(axes, [*titles, *(["geomean"] if means else [])], series, base=1.0)
    axes.axhline(1, color="black", linewidth=1)
    axes.set(ylabel="speed-up (x)", title="Speed-ups over Sequential")
    legend_below(figure, axes, 2)
    drawn: Figure = figure
    return drawn
