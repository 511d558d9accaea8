"""Effects of a search: for each factor and aggregate, how far apart the means of its levels are, in tolerances."""

from pathlib import Path

from sim.view.paper import new_figure
from sim.view.style import save
from validation.report.effects import reaches
from validation.report.surface import Surface

FULL = 5.0
"""Reach in tolerances with the darkest colour."""


def draw(found: Surface, path: Path) -> None:
    """Draw a table of colours with numbers: factors (the strongest on top) against aggregates."""
    tolerances = {claim: aim.tolerance for claim, aim in found.aims.items()}
    reach = reaches(found.varied, found.values[found.tried]) / tolerances
    reach = reach.loc[reach.mean(axis=1).sort_values(ascending=False, kind="stable").index]
    figure, axes = new_figure(10.5, 0.3 * len(reach) + 2.6)
    axes.imshow(reach, cmap="Blues", vmin=0, vmax=FULL, aspect="auto")
    for row, values in enumerate(reach.to_numpy()):
        for column, value in enumerate(values):
            colour = "white" if value > 0.6 * FULL else "black"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize="x-small", color=colour)
    titles = [claim.removeprefix("paper-") for claim in reach]
    axes.set_xticks(range(len(titles)), titles, rotation=60, ha="right", fontsize="small")
    axes.set_yticks(range(len(reach)), list(reach.index), fontsize="small")
    axes.set_title("Largest less smallest level mean, in tolerances")
    save(figure, path)
