"""Tornado chart: change of a headline with each assumed parameter, largest change on top."""

from collections.abc import Sequence
from pathlib import Path

from sim.view.paper import COLOURS, new_figure
from sim.view.style import save
from validation.experiments.sensitivity import Swing

DOWN, UP = COLOURS[3], COLOURS[0]


def draw(swings: Sequence[Swing], title: str, unit: str, path: Path) -> None:
    """Draw one row per parameter, with bars from the base to each other value. The values are printed at the right.

    Args:
        swings: sorted, largest first.
        title, unit: title and unit of the headline.
    """
    base = swings[0].base
    figure, axes = new_figure(8.5, 0.34 * len(swings) + 1.4)
    rows = range(len(swings) - 1, -1, -1)
    for row, swing in zip(rows, swings, strict=True):
        for value in swing.values.values():
            axes.barh(row, value - base, 0.7, left=base, color=UP if value > base else DOWN, alpha=0.75)
        words = ", ".join(f"{name}: {value:.3g}" for name, value in swing.values.items())
        axes.annotate(words, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize="x-small")
    axes.axvline(base, color="black", linewidth=1)
    axes.set_yticks(list(rows), [swing.parameter for swing in swings], fontsize="small")
    axes.set(xlabel=f"{title} ({unit}); base {base:.4g}", title=f"Sensitivity: {title}")
    axes.grid(axis="x", alpha=0.3)
    save(figure, path)
